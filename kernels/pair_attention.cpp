// SPDX-License-Identifier: Apache-2.0
// Ladder: a task has up to 256 rows, which are the queries of all heads that share a KV head, and
// goes through its keys 256 at a time: one product for the scores, a softmax row by row, one
// product with the values. Keys and values are brought into pairs for each task anew, which costs
// a tenth of the exponentials and no memory that grows with the prompt.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pair_attention.cpp"
#include "kernels/pair_attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
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
#include "kernels/tanh-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Lanes = hn::ScalableTag<float>;
constexpr std::int64_t kLanes = hn::MaxLanes(Lanes());

constexpr std::int64_t kRows = 256;  // of a task, unless that would be fewer than 16 queries
constexpr std::int64_t kKeys = 256;  // of a block
constexpr std::int64_t kStep = 32;   // what the products like widths to be multiples of

constexpr std::int64_t rounded_up(std::int64_t count, std::int64_t step) {
  return (count + step - 1) / step * step;
}

/// The bits of two numbers that lie side by side.
inline std::uint32_t pair_at(const Bf16* at) {
  std::uint32_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return bits;
}

/// As store(), in half of its steps: halves go up, and a NaN with all of its low bits set would not
/// stay one, but no exponential makes such.
HWY_INLINE void store_weight(hn::Vec<Lanes> weight, Bf16* HWY_RESTRICT p) {
  const hn::RebindToUnsigned<Lanes> du32;
  const hn::RebindToSigned<Lanes> di32;
  const hn::Rebind<std::uint16_t, Lanes> du16;
  const auto rounded = hn::Add(hn::BitCast(du32, weight), hn::Set(du32, 0x8000));
  const auto upper = hn::DemoteTo(du16, hn::BitCast(di32, hn::ShiftRight<16>(rounded)));
  hn::StoreU(upper, du16, reinterpret_cast<std::uint16_t*>(p));
}

/// What a thread works on.
class PairTask {
 public:
  PairTask(const CausalAttention<Bf16>& io, const PairProduct& product)
      : io_(io),
        product_(product),
        group_(io.queries.sizes[0] / io.keys.sizes[0]),
        dim_(rounded_up(io.queries.sizes[2], kStep)),
        value_dim_(rounded_up(io.values.sizes[2], kStep)),
        rows_(group_ * queries_of(group_)),
        queries_(aligned<Bf16>(rows_ * dim_)),
        weights_(aligned<Bf16>(rows_ * kKeys)),
        keys_(aligned<std::uint32_t>(dim_ / 2 * kKeys)),
        values_(aligned<std::uint32_t>(kKeys / 2 * value_dim_)),
        scores_(aligned<float>(rows_ * kKeys)),
        sums_(aligned<float>(rows_ * value_dim_)),
        top_(static_cast<std::size_t>(rows_)),
        total_(static_cast<std::size_t>(rows_)) {}

  /// How many queries of each head a task has.
  static std::int64_t queries_of(std::int64_t group) {
    return std::clamp<std::int64_t>(kRows / group / 16 * 16, 16, 128);
  }

  /// The queries begin .. begin + count of the heads of a KV head.
  void run(std::int64_t kv_head, std::int64_t begin, std::int64_t count) {
    first_ = io_.keys.sizes[1] - io_.queries.sizes[1] + begin;
    count_ = count;
    take_queries(kv_head, begin);
    std::fill(top_.begin(), top_.end(), std::numeric_limits<float>::lowest());
    std::fill(total_.begin(), total_.end(), 0.0f);
    std::fill_n(sums_.get(), rows_ * value_dim_, 0.0f);
    const std::int64_t end = first_ + count;
    for (std::int64_t j = io_.window.first_key(first_); j < end; j += kKeys)
      take_keys(kv_head, j, std::min(kKeys, end - j));
    finish(kv_head, begin);
  }

 private:
  std::int64_t used_rows() const { return group_ * count_; }
  std::int64_t query_of(std::int64_t row) const { return first_ + row % count_; }

  void take_queries(std::int64_t kv_head, std::int64_t begin) {
    const std::int64_t dim = io_.queries.sizes[2];
    std::fill_n(queries_.get(), rows_ * dim_, Bf16{});
    for (std::int64_t row = 0; row < used_rows(); ++row)
      std::copy_n(io_.queries.at(kv_head * group_ + row / count_, begin + row % count_), dim,
                  queries_.get() + row * dim_);
  }

  void take_keys(std::int64_t kv_head, std::int64_t j, std::int64_t count) {
    const std::int64_t width = rounded_up(count, kStep);
    pair_keys(kv_head, j, count, width);
    product_.multiply(used_rows(), width, dim_, dim_, width, kKeys, false, queries_.get(),
                      reinterpret_cast<const Bf16*>(keys_.get()), scores_.get());
    for (std::int64_t row = 0; row < used_rows(); ++row) weigh(row, j, count, width);
    pair_values(kv_head, j, count, width);
    product_.multiply(used_rows(), value_dim_, width, kKeys, value_dim_, value_dim_, true,
                      weights_.get(), reinterpret_cast<const Bf16*>(values_.get()), sums_.get());
  }

  /// keys_[i][c]: the channels 2 i and 2 i + 1 of key j + c, zeros behind the last of each.
  void pair_keys(std::int64_t kv_head, std::int64_t j, std::int64_t count, std::int64_t width) {
    constexpr std::int64_t kTile = 16;
    const std::int64_t dim = io_.keys.sizes[2];
    std::fill_n(keys_.get(), dim_ / 2 * width, 0u);
    for (std::int64_t c = 0; c < count; c += kTile) {
      const std::int64_t here = std::min(kTile, count - c);
      const Bf16* rows[kTile];
      for (std::int64_t r = 0; r < here; ++r) rows[r] = io_.keys.at(kv_head, j + c + r);
      std::uint32_t* to = keys_.get() + c;
      for (std::int64_t k = 0; k + 2 <= dim; k += 2, to += width)
        for (std::int64_t r = 0; r < here; ++r) to[r] = pair_at(rows[r] + k);
      if (dim % 2 == 1)
        for (std::int64_t r = 0; r < here; ++r) to[r] = rows[r][dim - 1].bits;
    }
  }

  /// values_[i][v]: channel v of the keys j + 2 i and j + 2 i + 1, zeros behind the last of each.
  void pair_values(std::int64_t kv_head, std::int64_t j, std::int64_t count, std::int64_t width) {
    const std::int64_t dim = io_.values.sizes[2];
    std::fill_n(values_.get(), width / 2 * value_dim_, 0u);
    for (std::int64_t c = 0; c < count; ++c) {
      const Bf16* from = io_.values.at(kv_head, j + c);
      std::uint32_t* to = values_.get() + c / 2 * value_dim_;
      for (std::int64_t v = 0; v < dim; ++v) to[v] |= std::uint32_t{from[v].bits} << (c % 2 * 16);
    }
  }

  /// Scores of a row become weights under the largest score so far, to which all before is fitted.
  void weigh(std::int64_t row, std::int64_t j, std::int64_t count, std::int64_t width) {
    const Lanes d;
    const std::int64_t i = query_of(row);
    const std::int64_t low = std::clamp<std::int64_t>(io_.window.first_key(i) - j, 0, count);
    const std::int64_t high = std::clamp<std::int64_t>(i + 1 - j, low, count);
    float* scores = scores_.get() + row * kKeys;
    Bf16* weights = weights_.get() + row * kKeys;
    if (low == high) {
      std::fill_n(weights, width, Bf16{});
      return;
    }
    const std::int64_t begin = low / kLanes * kLanes, end = rounded_up(high, kLanes);
    if (io_.soft_cap > 0)
      for (std::int64_t c = begin; c < end; c += kLanes) {
        const auto part = hn::Mul(hn::Load(d, scores + c), hn::Set(d, io_.scale / io_.soft_cap));
        hn::Store(hn::Mul(hn::Set(d, io_.soft_cap), tanh(d, part)), d, scores + c);
      }
    std::fill(scores + begin, scores + low, -std::numeric_limits<float>::infinity());
    std::fill(scores + high, scores + end, -std::numeric_limits<float>::infinity());
    float& top = top_[static_cast<std::size_t>(row)];
    float& total = total_[static_cast<std::size_t>(row)];
    const float factor = io_.soft_cap > 0 ? 1.0f : io_.scale;
    const auto scale = hn::Set(d, factor);
    auto largest = hn::Set(d, top);
    for (std::int64_t c = begin; c < end; c += kLanes)
      largest = hn::Max(largest, hn::Mul(hn::Load(d, scores + c), scale));
    const float before = top;
    top = hn::GetLane(hn::MaxOfLanes(d, largest));
    constexpr float kLog2E = 1.4426950408889634f;
    const auto by_log2e = hn::Set(d, factor * kLog2E), most = hn::Set(d, top * kLog2E);
    auto sum = hn::Zero(d);
    std::fill_n(weights, begin, Bf16{});
    for (std::int64_t c = begin; c < end; c += kLanes) {
      const auto weight = exp2(d, hn::MulSub(hn::Load(d, scores + c), by_log2e, most));
      sum = hn::Add(sum, weight);
      store_weight(weight, weights + c);
    }
    std::fill(weights + end, weights + std::max(end, width), Bf16{});
    const float shrink = std::exp(before - top);
    total = total * shrink + hn::GetLane(hn::SumOfLanes(d, sum));
    if (shrink == 1) return;
    const auto by = hn::Set(d, shrink);
    float* sums = sums_.get() + row * value_dim_;
    for (std::int64_t v = 0; v < value_dim_; v += kLanes)
      hn::Store(hn::Mul(hn::Load(d, sums + v), by), d, sums + v);
  }

  void finish(std::int64_t kv_head, std::int64_t begin) const {
    for (std::int64_t row = 0; row < used_rows(); ++row) {
      const std::int64_t h = kv_head * group_ + row / count_, n = begin + row % count_;
      const float total = total_[static_cast<std::size_t>(row)], share = 1 / total;
      const float* sums = sums_.get() + row * value_dim_;
      Bf16* to = io_.out.at(n, h);
      for (std::int64_t v = 0; v < io_.values.sizes[2]; ++v)
        to[v].bits = float_to_bf16(sums[v] * share);
      io_.lse(h, n) = static_cast<float>(static_cast<double>(top_[static_cast<std::size_t>(row)]) +
                                         std::log(static_cast<double>(total)));
    }
  }

  const CausalAttention<Bf16>& io_;
  const PairProduct& product_;
  std::int64_t group_, dim_, value_dim_, rows_, first_ = 0, count_ = 0;
  hwy::AlignedFreeUniquePtr<Bf16[]> queries_, weights_;       // [row][channel], [row][key]
  hwy::AlignedFreeUniquePtr<std::uint32_t[]> keys_, values_;  // pairs
  hwy::AlignedFreeUniquePtr<float[]> scores_, sums_;          // [row][key], [row][channel]
  std::vector<float> top_, total_;
};

void pair_attention_body(const CausalAttention<Bf16>& io, const PairProduct& product) {
  const std::int64_t kv_heads = io.keys.sizes[0], n = io.queries.sizes[1];
  const std::int64_t each = PairTask::queries_of(io.queries.sizes[0] / kv_heads);
  const std::int64_t blocks = (n + each - 1) / each;
  const int threads = thread_count();
  // A worker keeps its room for all its tasks. The last queries see the most keys, so the longest
  // tasks start first.
  std::vector<std::unique_ptr<PairTask>> workers(static_cast<std::size_t>(threads));
  parallel_for(blocks * kv_heads, [&](std::int64_t task, int number) {
    auto& worker = workers[static_cast<std::size_t>(number)];
    if (!worker) worker = std::make_unique<PairTask>(io, product);
    const std::int64_t begin = (blocks - 1 - task / kv_heads) * each;
    worker->run(task % kv_heads, begin, std::min(each, n - begin));
    product.release();
  });
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvatlas::kernels {

HWY_EXPORT(pair_attention_body);

void pair_attention(const CausalAttention<Bf16>& io, const PairProduct& product) {
  obey_cpu_environment();
  require_causal_attention(io);
  if (io.queries.sizes[0] > 0 && io.queries.sizes[1] > 0)
    HWY_DYNAMIC_DISPATCH(pair_attention_body)(io, product);
}

}  // namespace kvatlas::kernels
#endif
