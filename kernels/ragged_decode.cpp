// SPDX-License-Identifier: Apache-2.0
// Ladder: a task is a chunk of 1024 rows of one cache, for all query heads of its group, 64 rows at
// a time: dot products along the rows, one exponential pass with a running maximum, then the
// weighted sum of the values, all from L1.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ragged_decode.cpp"
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "kernels/aligned_impl.hpp"
#include "kernels/check.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/load-inl.hpp"
#include "kernels/math-inl.hpp"
#include "kernels/ragged_decode_impl.hpp"
#include "kernels/tanh-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DecodeTag = hn::ScalableTag<float>;
using DecodeVec = hn::Vec<DecodeTag>;
constexpr std::int64_t kDecodeLanes = hn::MaxLanes(DecodeTag());
constexpr std::int64_t kDecodeRows = 64, kDecodeChunk = 1024;
static_assert(kDecodeRows % kDecodeLanes == 0 && kDecodeChunk % kDecodeRows == 0);
constexpr double kDecodeLog2e = 1.4426950408889634;

HWY_INLINE std::int64_t padded(std::int64_t dim) {
  return (dim + kDecodeLanes - 1) / kDecodeLanes * kDecodeLanes;
}

/// Rows of a cache as float32 padded with zeros: where they lie if they are so already, else
/// copied.
class CacheRows {
 public:
  explicit CacheRows(const AnyView<2>& rows)
      : rows_(rows),
        stride_(padded(rows.sizes[1])),
        direct_(rows.type == DType::f32 && rows.strides[1] == 1 && stride_ == rows.sizes[1]),
        buffer_(aligned<float>(direct_ ? 0 : kDecodeRows * stride_)) {}

  /// Rows first .. first + count, stride() apart.
  const float* read(std::int64_t first, std::int64_t count) {
    if (direct_) return static_cast<const float*>(rows_.data) + first * rows_.strides[0];
    for (std::int64_t r = 0; r < count; ++r) {
      float* to = buffer_.get() + r * stride_;
      copy_as_float(rows_.data, rows_.type, (first + r) * rows_.strides[0], rows_.strides[1],
                    rows_.sizes[1], to);
      std::fill(to + rows_.sizes[1], to + stride_, 0.0f);
    }
    return buffer_.get();
  }
  std::int64_t stride() const { return direct_ ? rows_.strides[0] : stride_; }
  std::int64_t width() const { return stride_; }

 private:
  const AnyView<2>& rows_;
  std::int64_t stride_;
  bool direct_;
  hwy::AlignedFreeUniquePtr<float[]> buffer_;
};

/// One thread's scratch.
class DecodeWorker {
 public:
  explicit DecodeWorker(const RaggedDecode& io)
      : io_(io),
        group_(io.queries.sizes[1] / io.starts.sizes[1]),
        keys_(io.keys),
        values_(io.values),
        queries_(aligned<float>(group_ * keys_.width())) {}

  /// Rows first .. first + count of one cache for the group's queries; partial holds, for each
  /// query head, the running maximum, the sum of weights and the weighted sum of values.
  void run(std::int64_t c, std::int64_t g, std::int64_t first, std::int64_t count, float* partial) {
    const float factor = io_.soft_cap > 0
                             ? io_.scale / io_.soft_cap
                             : static_cast<float>(static_cast<double>(io_.scale) * kDecodeLog2e);
    const std::int64_t size = 2 + values_.width();
    for (std::int64_t q = 0; q < group_; ++q) {
      float* query = queries_.get() + q * keys_.width();
      copy_as_float(io_.queries.data, io_.queries.type,
                    c * io_.queries.strides[0] + (g * group_ + q) * io_.queries.strides[1],
                    io_.queries.strides[2], io_.queries.sizes[2], query);
      for (std::int64_t d = 0; d < io_.queries.sizes[2]; ++d) query[d] *= factor;
      std::fill(query + io_.queries.sizes[2], query + keys_.width(), 0.0f);
      partial[q * size] = std::numeric_limits<float>::lowest();
      std::fill(partial + q * size + 1, partial + (q + 1) * size, 0.0f);
    }
    for (std::int64_t r = 0; r < count; r += kDecodeRows) {
      const std::int64_t rows = std::min(kDecodeRows, count - r);
      const float* keys = keys_.read(first + r, rows);
      const float* values = values_.read(first + r, rows);
      for (std::int64_t q = 0; q < group_; ++q) {
        score(queries_.get() + q * keys_.width(), keys, rows);
        accumulate(values, rows, partial + q * size);
      }
    }
  }

 private:
  /// scores_ of `rows` keys in powers of two, -inf behind.
  void score(const float* HWY_RESTRICT query, const float* HWY_RESTRICT keys, std::int64_t rows) {
    const DecodeTag d;
    const std::int64_t width = keys_.width(), stride = keys_.stride();
    std::int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
      auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
      const float* row = keys + r * stride;
      for (std::int64_t k = 0; k < width; k += kDecodeLanes) {
        const auto x = hn::Load(d, query + k);
        sum0 = hn::MulAdd(x, hn::LoadU(d, row + k), sum0);
        sum1 = hn::MulAdd(x, hn::LoadU(d, row + stride + k), sum1);
        sum2 = hn::MulAdd(x, hn::LoadU(d, row + 2 * stride + k), sum2);
        sum3 = hn::MulAdd(x, hn::LoadU(d, row + 3 * stride + k), sum3);
      }
      scores_[r] = hn::GetLane(hn::SumOfLanes(d, sum0));
      scores_[r + 1] = hn::GetLane(hn::SumOfLanes(d, sum1));
      scores_[r + 2] = hn::GetLane(hn::SumOfLanes(d, sum2));
      scores_[r + 3] = hn::GetLane(hn::SumOfLanes(d, sum3));
    }
    for (; r < rows; ++r) {
      auto sum = hn::Zero(d);
      for (std::int64_t k = 0; k < width; k += kDecodeLanes)
        sum = hn::MulAdd(hn::Load(d, query + k), hn::LoadU(d, keys + r * stride + k), sum);
      scores_[r] = hn::GetLane(hn::SumOfLanes(d, sum));
    }
    if (io_.soft_cap > 0) {
      const auto cap =
          hn::Set(d, static_cast<float>(static_cast<double>(io_.soft_cap) * kDecodeLog2e));
      for (std::int64_t s = 0; s < rows; s += kDecodeLanes)
        hn::Store(hn::Mul(cap, tanh(d, hn::Load(d, scores_ + s))), d, scores_ + s);
    }
    std::fill(scores_ + rows, scores_ + kDecodeRows, -std::numeric_limits<float>::infinity());
  }

  /// Adds the values, weighted, to one query's partial.
  void accumulate(const float* HWY_RESTRICT values, std::int64_t rows,
                  float* HWY_RESTRICT partial) {
    const DecodeTag d;
    auto most = hn::Set(d, partial[0]);
    for (std::int64_t s = 0; s < kDecodeRows; s += kDecodeLanes)
      most = hn::Max(most, hn::Load(d, scores_ + s));
    const auto top = hn::MaxOfLanes(d, most);
    auto sum = hn::Zero(d);
    for (std::int64_t s = 0; s < kDecodeRows; s += kDecodeLanes) {
      const auto weight = exp2(d, hn::Sub(hn::Load(d, scores_ + s), top));
      hn::Store(weight, d, scores_ + s);
      sum = hn::Add(sum, weight);
    }
    const float new_top = hn::GetLane(top);
    const float shrink = hn::GetLane(exp2(d, hn::Sub(hn::Set(d, partial[0]), top)));
    partial[0] = new_top;
    partial[1] = partial[1] * shrink + hn::GetLane(hn::SumOfLanes(d, sum));
    const auto factor = hn::Set(d, shrink);
    const std::int64_t stride = values_.stride();
    for (std::int64_t k = 0; k < values_.width(); k += kDecodeLanes) {
      auto even = hn::Mul(factor, hn::LoadU(d, partial + 2 + k)), odd = hn::Zero(d);
      std::int64_t r = 0;
      for (; r + 2 <= rows; r += 2) {
        even = hn::MulAdd(hn::Set(d, scores_[r]), hn::LoadU(d, values + r * stride + k), even);
        odd = hn::MulAdd(hn::Set(d, scores_[r + 1]), hn::LoadU(d, values + (r + 1) * stride + k),
                         odd);
      }
      if (r < rows)
        even = hn::MulAdd(hn::Set(d, scores_[r]), hn::LoadU(d, values + r * stride + k), even);
      hn::StoreU(hn::Add(even, odd), d, partial + 2 + k);
    }
  }

  const RaggedDecode& io_;
  std::int64_t group_;
  CacheRows keys_, values_;
  hwy::AlignedFreeUniquePtr<float[]> queries_;
  HWY_ALIGN float scores_[kDecodeRows];
};

/// Joins the chunks of one query head, in their order.
void join_chunks(const RaggedDecode& io, std::int64_t c, std::int64_t h, const float* partials,
                 std::int64_t chunks, std::int64_t step) {
  float top = std::numeric_limits<float>::lowest();
  for (std::int64_t p = 0; p < chunks; ++p) top = std::max(top, partials[p * step]);
  double sum = 0;
  std::vector<double> weights(static_cast<std::size_t>(chunks));
  for (std::int64_t p = 0; p < chunks; ++p) {
    const double weight =
        std::exp2(static_cast<double>(partials[p * step]) - static_cast<double>(top));
    weights[p] = weight;
    sum += weight * static_cast<double>(partials[p * step + 1]);
  }
  for (std::int64_t d = 0; d < io.values.sizes[1]; ++d) {
    double total = 0;
    for (std::int64_t p = 0; p < chunks; ++p)
      total += weights[p] * static_cast<double>(partials[p * step + 2 + d]);
    io.out(c, h, d) = sum == 0 ? 0.0f : static_cast<float>(total / sum);
  }
  if (io.lse.data)
    io.lse(c, h) = static_cast<float>((static_cast<double>(top) + std::log2(sum)) / kDecodeLog2e);
}

void ragged_decode_body(const RaggedDecode& io) {
  const std::int64_t candidates = io.queries.sizes[0], kv_heads = io.starts.sizes[1];
  const std::int64_t group = io.queries.sizes[1] / kv_heads;
  const std::int64_t size = 2 + padded(io.values.sizes[1]);
  struct Task {
    std::int64_t c, g, chunk;
  };
  std::vector<Task> tasks;
  std::vector<std::int64_t> first_task;
  for (std::int64_t c = 0; c < candidates; ++c) {
    for (std::int64_t g = 0; g < kv_heads; ++g) {
      first_task.push_back(static_cast<std::int64_t>(tasks.size()));
      for (std::int64_t chunk = 0; chunk * kDecodeChunk < io.lengths(c, g); ++chunk)
        tasks.push_back({c, g, chunk});
    }
  }
  const auto total = static_cast<std::int64_t>(tasks.size());
  first_task.push_back(total);
  std::vector<float> partials(static_cast<std::size_t>(total * group * size));
  std::vector<std::unique_ptr<DecodeWorker>> workers(static_cast<std::size_t>(thread_count()));
  parallel_for(total, [&](std::int64_t t, int worker) {
    auto& mine = workers[worker];
    if (!mine) mine = std::make_unique<DecodeWorker>(io);
    const Task& task = tasks[t];
    const std::int64_t first = task.chunk * kDecodeChunk;
    mine->run(task.c, task.g, io.starts(task.c, task.g) + first,
              std::min(kDecodeChunk, io.lengths(task.c, task.g) - first),
              partials.data() + t * group * size);
  });
  parallel_for(candidates * kv_heads, [&](std::int64_t cache, int) {
    const std::int64_t first = first_task[cache];
    const std::int64_t chunks = first_task[static_cast<std::size_t>(cache) + 1] - first;
    for (std::int64_t q = 0; q < group; ++q)
      join_chunks(io, cache / kv_heads, cache % kv_heads * group + q,
                  partials.data() + (first * group + q) * size, chunks, group * size);
  });
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvatlas::kernels {
namespace {

/// What can be known without reading the arrays.
void check_shapes(const RaggedDecode& io) {
  require_array("queries", io.queries);
  require_array("keys", io.keys);
  require_array("values", io.values);
  const auto [n_candidates, n_heads, head_dim] = io.queries.sizes;
  const std::int64_t n_kv_heads = io.starts.sizes[1];
  require_shape("keys", io.keys.sizes, {io.values.sizes[0], head_dim});
  require_shared_heads(n_heads, n_kv_heads);
  require_shape("starts", io.starts.sizes, {n_candidates, n_kv_heads});
  require_array("starts", io.starts);
  require_shape("lengths", io.lengths.sizes, {n_candidates, n_kv_heads});
  require_array("lengths", io.lengths);
  require_shape("out", io.out.sizes, {n_candidates, n_heads, io.values.sizes[1]});
  require_array("out", io.out);
  if (io.lse.data) {
    require_shape("lse", io.lse.sizes, {n_candidates, n_heads});
    require_same_memory("lse", io.lse.memory, io.queries.memory);
  }
  if (io.keys.type != io.values.type)
    fail(ErrorCode::usage, "keys are ", dtype_name(io.keys.type), ", values ",
         dtype_name(io.values.type));
  require_soft_cap(io.soft_cap);
  require_same_memory("keys", io.keys.memory, io.queries.memory);
  require_same_memory("values", io.values.memory, io.queries.memory);
  require_same_memory("starts", io.starts.memory, io.queries.memory);
  require_same_memory("lengths", io.lengths.memory, io.queries.memory);
  require_same_memory("out", io.out.memory, io.queries.memory);
}

void check_rows(const RaggedDecode& io) {
  for (std::int64_t c = 0; c < io.starts.sizes[0]; ++c)
    for (std::int64_t g = 0; g < io.starts.sizes[1]; ++g)
      if (io.starts(c, g) < 0 || io.lengths(c, g) < 0 ||
          io.starts(c, g) > io.keys.sizes[0] - io.lengths(c, g))
        fail(ErrorCode::usage, "ragged_decode: candidate ", c, ", KV head ", g, ": ",
             io.lengths(c, g), " rows from ", io.starts(c, g), ", the cache has ",
             io.keys.sizes[0]);
}

}  // namespace

HWY_EXPORT(ragged_decode_body);

void ragged_decode(const RaggedDecode& io, const Exec& exec) {
  check_shapes(io);
  const Backend backend = choose(exec, io.queries.memory);
  if (io.queries.sizes[0] == 0 || io.queries.sizes[1] == 0) return;
  if (io.queries.memory == Memory::host) check_rows(io);
  run_body(backend, exec, io, reference::ragged_decode, HWY_DYNAMIC_DISPATCH(ragged_decode_body),
           KVATLAS_CUDA_BODY(ragged_decode));
}

}  // namespace kvatlas::kernels
#endif
