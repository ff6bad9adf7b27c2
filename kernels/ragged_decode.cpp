// SPDX-License-Identifier: Apache-2.0
// Ladder: a task is a chunk of 1024 rows and some of the candidates that read them, for all query
// heads of the group. 64 rows at a time: dot products of three queries and four keys at once, one
// exponential pass with a running maximum, then the weighted sums of the values for three queries
// at once, all from L1. What a query gives does not depend on those beside it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/ragged_decode.cpp"
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
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
#include "kernels/sums-inl.hpp"
#include "kernels/tanh-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DecodeTag = hn::ScalableTag<float>;
using DecodeVec = hn::Vec<DecodeTag>;
constexpr std::int64_t kDecodeLanes = hn::MaxLanes(DecodeTag());
constexpr std::int64_t kDecodeRows = 64, kDecodeChunk = 1024;
// Queries that go through a chunk together, unless one candidate's are more already.
constexpr std::int64_t kDecodeQueries = 24;
constexpr int kQueryBlock = 3, kKeyBlock = 4, kVectorBlock = 4;  // what registers hold
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

/// A chunk of rows, and the candidates that read them.
struct DecodeTask {
  const std::int64_t* candidates;
  std::int64_t count, g, chunk;
};

/// One thread's scratch.
class DecodeWorker {
 public:
  DecodeWorker(const RaggedDecode& io, std::int64_t most_queries)
      : io_(io),
        group_(io.queries.sizes[1] / io.starts.sizes[1]),
        keys_(io.keys),
        values_(io.values),
        queries_(aligned<float>(most_queries * keys_.width())),
        scores_(aligned<float>(most_queries * kDecodeRows)),
        shrink_(static_cast<std::size_t>(most_queries)),
        partials_(shrink_.size()) {}

  /// A partial holds, for each query head, the running maximum, the sum of weights and the weighted
  /// sum of values; partial_of(candidate) has those of the group, one behind the other.
  template <class PartialOf>
  void run(const DecodeTask& task, const PartialOf& partial_of) {
    const std::int64_t c = task.candidates[0], begin = task.chunk * kDecodeChunk;
    const std::int64_t first = io_.starts(c, task.g) + begin,
                       count = std::min(kDecodeChunk, io_.lengths(c, task.g) - begin);
    for (std::int64_t i = 0; i < task.count; ++i)
      take_queries(task.candidates[i], task.g, i * group_, partial_of(task.candidates[i]));
    const std::int64_t queries = task.count * group_;
    for (std::int64_t r = 0; r < count; r += kDecodeRows) {
      const std::int64_t rows = std::min(kDecodeRows, count - r);
      const float* keys = keys_.read(first + r, rows);
      const float* values = values_.read(first + r, rows);
      for (std::int64_t q = 0; q < queries; q += kQueryBlock) switch (queries - q) {
          case 1:
            score<1>(q, keys, rows);
            break;
          case 2:
            score<2>(q, keys, rows);
            break;
          default:
            score<kQueryBlock>(q, keys, rows);
        }
      for (std::int64_t q = 0; q < queries; ++q) weigh(q, rows);
      for (std::int64_t q = 0; q < queries; q += kQueryBlock) switch (queries - q) {
          case 1:
            add_values<1>(q, values, rows);
            break;
          case 2:
            add_values<2>(q, values, rows);
            break;
          default:
            add_values<kQueryBlock>(q, values, rows);
        }
    }
  }

 private:
  /// The candidate's queries, in powers of two, and what they have found so far: nothing.
  void take_queries(std::int64_t c, std::int64_t g, std::int64_t at, float* partial) {
    const float factor = io_.soft_cap > 0
                             ? io_.scale / io_.soft_cap
                             : static_cast<float>(static_cast<double>(io_.scale) * kDecodeLog2e);
    const std::int64_t size = 2 + values_.width();
    for (std::int64_t q = 0; q < group_; ++q) {
      float* query = queries_.get() + (at + q) * keys_.width();
      copy_as_float(io_.queries.data, io_.queries.type,
                    c * io_.queries.strides[0] + (g * group_ + q) * io_.queries.strides[1],
                    io_.queries.strides[2], io_.queries.sizes[2], query);
      for (std::int64_t d = 0; d < io_.queries.sizes[2]; ++d) query[d] *= factor;
      std::fill(query + io_.queries.sizes[2], query + keys_.width(), 0.0f);
      float* own = partial + q * size;
      own[0] = std::numeric_limits<float>::lowest();
      std::fill(own + 1, own + size, 0.0f);
      partials_[at + q] = own;
    }
  }

  /// The scores of `rows` keys for queries q .. q + Q.
  template <int Q>
  void score(std::int64_t q, const float* HWY_RESTRICT keys, std::int64_t rows) {
    const DecodeTag d;
    const std::int64_t width = keys_.width(), stride = keys_.stride();
    const float* HWY_RESTRICT queries = queries_.get() + q * width;
    for (std::int64_t r = 0; r < rows; r += kKeyBlock) {
      DecodeVec sums[Q][kKeyBlock];
      const float* row[kKeyBlock];
      for (int i = 0; i < kKeyBlock; ++i) {
        row[i] = keys + std::min(r + i, rows - 1) * stride;
        for (int j = 0; j < Q; ++j) sums[j][i] = hn::Zero(d);
      }
      for (std::int64_t k = 0; k < width; k += kDecodeLanes) {
        DecodeVec query[Q];
        for (int j = 0; j < Q; ++j) query[j] = hn::Load(d, queries + j * width + k);
        for (int i = 0; i < kKeyBlock; ++i) {
          const auto key = hn::LoadU(d, row[i] + k);
          for (int j = 0; j < Q; ++j) sums[j][i] = hn::MulAdd(query[j], key, sums[j][i]);
        }
      }
      for (int j = 0; j < Q; ++j) four_sums(d, sums[j], scores_.get() + (q + j) * kDecodeRows + r);
    }
  }

  /// Makes weights of a query's scores, beside the largest so far.
  void weigh(std::int64_t q, std::int64_t rows) {
    const DecodeTag d;
    float* HWY_RESTRICT scores = scores_.get() + q * kDecodeRows;
    float* partial = partials_[q];
    if (io_.soft_cap > 0) {
      const auto cap =
          hn::Set(d, static_cast<float>(static_cast<double>(io_.soft_cap) * kDecodeLog2e));
      for (std::int64_t s = 0; s < rows; s += kDecodeLanes)
        hn::Store(hn::Mul(cap, tanh(d, hn::Load(d, scores + s))), d, scores + s);
    }
    std::fill(scores + rows, scores + kDecodeRows, -std::numeric_limits<float>::infinity());
    auto most = hn::Set(d, partial[0]);
    for (std::int64_t s = 0; s < kDecodeRows; s += kDecodeLanes)
      most = hn::Max(most, hn::Load(d, scores + s));
    const auto top = hn::MaxOfLanes(d, most);
    auto sum = hn::Zero(d);
    for (std::int64_t s = 0; s < kDecodeRows; s += kDecodeLanes) {
      const auto weight = exp2(d, hn::Sub(hn::Load(d, scores + s), top));
      hn::Store(weight, d, scores + s);
      sum = hn::Add(sum, weight);
    }
    shrink_[q] = hn::GetLane(exp2(d, hn::Sub(hn::Set(d, partial[0]), top)));
    partial[0] = hn::GetLane(top);
    partial[1] = partial[1] * shrink_[q] + hn::GetLane(hn::SumOfLanes(d, sum));
  }

  /// Adds the values, weighted, to the partials of queries q .. q + Q.
  template <int Q>
  void add_values(std::int64_t q, const float* HWY_RESTRICT values, std::int64_t rows) {
    std::int64_t k = 0;
    for (; k + kVectorBlock * kDecodeLanes <= values_.width(); k += kVectorBlock * kDecodeLanes)
      add_vectors<Q, kVectorBlock>(q, values + k, rows, k);
    for (; k < values_.width(); k += kDecodeLanes) add_vectors<Q, 1>(q, values + k, rows, k);
  }

  template <int Q, int V>
  void add_vectors(std::int64_t q, const float* HWY_RESTRICT values, std::int64_t rows,
                   std::int64_t k) {
    const DecodeTag d;
    const std::int64_t stride = values_.stride();
    const float* HWY_RESTRICT weights = scores_.get() + q * kDecodeRows;
    DecodeVec sums[Q][V];
    for (int j = 0; j < Q; ++j)
      for (int v = 0; v < V; ++v)
        sums[j][v] = hn::Mul(hn::Set(d, shrink_[q + j]),
                             hn::LoadU(d, partials_[q + j] + 2 + k + v * kDecodeLanes));
    for (std::int64_t r = 0; r < rows; ++r, values += stride) {
      DecodeVec weight[Q];
      for (int j = 0; j < Q; ++j) weight[j] = hn::Set(d, weights[j * kDecodeRows + r]);
      for (int v = 0; v < V; ++v) {
        const auto value = hn::LoadU(d, values + v * kDecodeLanes);
        for (int j = 0; j < Q; ++j) sums[j][v] = hn::MulAdd(weight[j], value, sums[j][v]);
      }
    }
    for (int j = 0; j < Q; ++j)
      for (int v = 0; v < V; ++v)
        hn::StoreU(sums[j][v], d, partials_[q + j] + 2 + k + v * kDecodeLanes);
  }

  const RaggedDecode& io_;
  std::int64_t group_;
  CacheRows keys_, values_;
  hwy::AlignedFreeUniquePtr<float[]> queries_, scores_;  // [query][channel], [query][row]
  std::vector<float> shrink_;     // [query]: what a tile makes of the sums before it
  std::vector<float*> partials_;  // [query]
};

/// Joins the chunks of one query head, in their order; `weights` has room for one of each.
void join_chunks(const RaggedDecode& io, std::int64_t c, std::int64_t h, const float* partials,
                 std::int64_t chunks, std::int64_t step, double* weights) {
  float top = std::numeric_limits<float>::lowest();
  for (std::int64_t p = 0; p < chunks; ++p) top = std::max(top, partials[p * step]);
  double sum = 0;
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
  std::vector<std::int64_t> first_chunk = {0};  // [candidate * KV head], and how many there are
  std::vector<std::int64_t> order;              // of candidates, for one KV head after the other
  std::vector<DecodeTask> tasks;
  for (std::int64_t c = 0; c < candidates; ++c)
    for (std::int64_t g = 0; g < kv_heads; ++g)
      first_chunk.push_back(first_chunk.back() +
                            (io.lengths(c, g) + kDecodeChunk - 1) / kDecodeChunk);
  order.reserve(static_cast<std::size_t>(candidates * kv_heads));
  const std::int64_t together = std::max<std::int64_t>(1, kDecodeQueries / group);
  for (std::int64_t g = 0; g < kv_heads; ++g) {
    const auto begin = order.end();
    for (std::int64_t c = 0; c < candidates; ++c) order.push_back(c);
    const auto rows_of = [&](std::int64_t c) {
      return std::pair(io.starts(c, g), io.lengths(c, g));
    };
    std::sort(begin, order.end(), [&](std::int64_t a, std::int64_t b) {
      return std::pair(rows_of(a), a) < std::pair(rows_of(b), b);
    });
    for (auto one = begin; one != order.end();) {
      auto end = one;
      while (end != order.end() && end - one < together && rows_of(*end) == rows_of(*one)) ++end;
      for (std::int64_t chunk = 0; chunk * kDecodeChunk < io.lengths(*one, g); ++chunk)
        tasks.push_back({&*one, end - one, g, chunk});
      one = end;
    }
  }
  std::vector<float> partials(static_cast<std::size_t>(first_chunk.back() * group * size));
  std::vector<std::unique_ptr<DecodeWorker>> workers(static_cast<std::size_t>(thread_count()));
  parallel_for(static_cast<std::int64_t>(tasks.size()), [&](std::int64_t t, int worker) {
    auto& mine = workers[worker];
    if (!mine) mine = std::make_unique<DecodeWorker>(io, together * group);
    const DecodeTask& task = tasks[t];
    mine->run(task, [&](std::int64_t c) {
      return partials.data() + (first_chunk[c * kv_heads + task.g] + task.chunk) * group * size;
    });
  });
  std::vector<std::vector<double>> weights(workers.size());
  parallel_for(candidates * kv_heads, [&](std::int64_t cache, int worker) {
    const std::int64_t first = first_chunk[cache];
    const std::int64_t chunks = first_chunk[static_cast<std::size_t>(cache) + 1] - first;
    weights[worker].resize(static_cast<std::size_t>(chunks));
    for (std::int64_t q = 0; q < group; ++q)
      join_chunks(io, cache / kv_heads, cache % kv_heads * group + q,
                  partials.data() + (first * group + q) * size, chunks, group * size,
                  weights[worker].data());
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
