// SPDX-License-Identifier: Apache-2.0
// CPU body, one task for each (head, row). What makes it fast: entropies of single layers once; one
// logarithm of seven multiply-adds a pair and element; a block of keys of all layers in the
// first-level cache; no work where a layer is zero. Ladder, 30 layers x 9 heads x 16 rows x 4096
// keys on one AVX-512 core at 2.6 GHz:
//   blocks of 256 keys           58 ms
//   + the next block prefetched  51 ms, 79 % of the rate of x log2 x on data in cache
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/js_divergence.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/js_divergence_impl.hpp"
#include "kernels/load-inl.hpp"
#include "kernels/math-inl.hpp"

#ifndef KVATLAS_JS_BLOCK
#define KVATLAS_JS_BLOCK
namespace kvatlas::kernels {
// Keys that are paired at a time: 30 layers of them fill the first-level cache.
constexpr std::int64_t kJsBlock = 256;

// Scratch of one task.
struct JsScratch {
  float* tile;        // [n_layers + 1, kJsBlock]: halves of the rows, the last row is zero
  bool* zero;         // [n_layers] whether the block is zero in that layer
  double* with_zero;  // [n_layers] the block's sum against a zero row
  double* sums;       // [n_layers, n_layers], b <= a: sum of m log2 m, m the mean of rows a and b
};
}  // namespace kvatlas::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {

/// Sum of m log2 m, m = a + b, over `count` elements; `count` is a multiple of 4 Lanes. The float32
/// sums are at most 64 terms long.
HWY_INLINE double paired_sum(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                             std::int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t longest = 64 * lanes;
  double total = 0;
  for (std::int64_t begin = 0; begin < count; begin += longest) {
    const std::int64_t end = begin + longest < count ? begin + longest : count;
    auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
    for (std::int64_t i = begin; i < end; i += 4 * lanes) {
      const auto m0 = hn::Add(hn::Load(d, a + i), hn::Load(d, b + i));
      const auto m1 = hn::Add(hn::Load(d, a + i + lanes), hn::Load(d, b + i + lanes));
      const auto m2 = hn::Add(hn::Load(d, a + i + 2 * lanes), hn::Load(d, b + i + 2 * lanes));
      const auto m3 = hn::Add(hn::Load(d, a + i + 3 * lanes), hn::Load(d, b + i + 3 * lanes));
      sum0 = hn::MulAdd(m0, log2(d, m0), sum0);
      sum1 = hn::MulAdd(m1, log2(d, m1), sum1);
      sum2 = hn::MulAdd(m2, log2(d, m2), sum2);
      sum3 = hn::MulAdd(m3, log2(d, m3), sum3);
    }
    total += hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  }
  return total;
}

/// Fills the tile with halves of the layers' rows, zeros up to `padded`, and says which are zero.
HWY_INLINE void fill_tile(const AnyView<4>& probs, std::int64_t head, std::int64_t row,
                          std::int64_t begin, std::int64_t count, std::int64_t padded,
                          const JsScratch& scratch) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const hn::RebindToUnsigned<decltype(d)> du;
  const auto half = hn::Set(d, 0.5f);
  for (std::int64_t layer = 0; layer < probs.sizes[0]; ++layer) {
    float* to = scratch.tile + layer * kJsBlock;
    const std::int64_t offset = layer * probs.strides[0] + head * probs.strides[1] +
                                row * probs.strides[2] + begin * probs.strides[3];
    copy_as_float(probs.data, probs.type, offset, probs.strides[3], count, to);
    for (std::int64_t i = count; i < padded; ++i) to[i] = 0;
    auto any = hn::Zero(du);
    for (std::int64_t i = 0; i < padded; i += lanes) {
      const auto p = hn::Load(d, to + i);
      any = hn::Or(any, hn::BitCast(du, p));
      hn::Store(hn::Mul(p, half), d, to + i);
    }
    scratch.zero[layer] = hn::AllTrue(du, hn::Eq(any, hn::Zero(du)));
  }
}

/// Asks for the keys from `begin` on, so that they are in cache when their block's turn comes.
HWY_INLINE void prefetch(const AnyView<4>& probs, std::int64_t layer, std::int64_t head,
                         std::int64_t row, std::int64_t begin) {
  if (probs.strides[3] != 1) return;
  const std::int64_t element = dtype_bytes(probs.type);
  const std::int64_t left = probs.sizes[3] - begin;
  const std::int64_t bytes = (left < kJsBlock ? left : kJsBlock) * element;
  const auto* from = static_cast<const std::uint8_t*>(probs.data) +
                     element * (layer * probs.strides[0] + head * probs.strides[1] +
                                row * probs.strides[2] + begin);
  for (std::int64_t i = 0; i < bytes; i += 64) hwy::Prefetch(from + i);
}

/// Adds up scratch.sums for one row of one head.
void JsRow(const AnyView<4>& probs, std::int64_t head, std::int64_t row, const JsScratch& scratch) {
  const std::int64_t n_layers = probs.sizes[0], n_tokens = probs.sizes[3];
  const std::int64_t step = 4 * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  const float* zeros = scratch.tile + n_layers * kJsBlock;
  for (std::int64_t begin = 0; begin < n_tokens; begin += kJsBlock) {
    const std::int64_t count = n_tokens - begin < kJsBlock ? n_tokens - begin : kJsBlock;
    const std::int64_t padded = (count + step - 1) / step * step;
    fill_tile(probs, head, row, begin, count, padded, scratch);
    bool some_zero = false;
    for (std::int64_t layer = 0; layer < n_layers; ++layer) some_zero |= scratch.zero[layer];
    for (std::int64_t a = 0; a < n_layers; ++a) {
      prefetch(probs, a, head, row, begin + kJsBlock);
      const float* row_a = scratch.tile + a * kJsBlock;
      if (some_zero) scratch.with_zero[a] = scratch.zero[a] ? 0 : paired_sum(row_a, zeros, padded);
      double* sums = scratch.sums + a * n_layers;
      for (std::int64_t b = 0; b <= a; ++b) {
        if (!scratch.zero[a] && !scratch.zero[b])
          sums[b] += paired_sum(row_a, scratch.tile + b * kJsBlock, padded);
        else
          sums[b] += scratch.with_zero[a] + scratch.with_zero[b];  // one of them, or both, is 0
      }
    }
  }
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <memory>
#include <vector>

#include "kernels/aligned_impl.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/check.hpp"
#include "kernels/dispatch.hpp"

namespace kvatlas::kernels {
HWY_EXPORT(JsRow);
namespace {

void js_divergence_cpu(const JsDivergence& io) {
  const auto [n_layers, n_heads, q_rows, n_tokens] = io.probs.sizes;
  const std::int64_t pairs = n_layers * n_layers;
  const auto size = [](std::int64_t value) { return static_cast<std::size_t>(value); };
  std::vector<float> divergences(size(n_heads * q_rows * pairs));
  const std::int64_t rows = q_rows, layers = n_layers;
  parallel_for(n_heads * q_rows, [&](std::int64_t task, int) {
    const auto tile = aligned<float>((layers + 1) * kJsBlock);
    std::fill_n(tile.get() + layers * kJsBlock, kJsBlock, 0.0f);
    const auto zero = std::make_unique<bool[]>(size(layers));
    std::vector<double> with_zero(size(layers)), sums(size(pairs));
    HWY_DYNAMIC_DISPATCH(JsRow)
    (io.probs, task / rows, task % rows, {tile.get(), zero.get(), with_zero.data(), sums.data()});
    for (std::int64_t a = 0; a < layers; ++a)
      for (std::int64_t b = 0; b <= a; ++b) {
        const double own = (sums[size(a * layers + a)] + sums[size(b * layers + b)]) / 2;
        const double value = own - sums[size(a * layers + b)];
        const double clamped = value < 0 ? 0 : value > 1 ? 1 : value;  // NaN stays
        float* out = &divergences[size(task * pairs)];
        out[a * layers + b] = out[b * layers + a] = static_cast<float>(clamped);
      }
  });
  for (std::int64_t head = 0; head < n_heads; ++head)
    for (std::int64_t a = 0; a < n_layers; ++a)
      for (std::int64_t b = 0; b < n_layers; ++b) {
        double sum = 0;
        for (std::int64_t row = 0; row < q_rows; ++row) {
          const float value =
              divergences[size(((head * q_rows + row) * n_layers + a) * n_layers + b)];
          if (io.per_row.data) io.per_row(head, row, a, b) = value;
          sum += value;
        }
        io.mean(head, a, b) = static_cast<float>(sum / static_cast<double>(q_rows));
      }
}

}  // namespace

void js_divergence(const JsDivergence& io, const Exec& exec) {
  require_array("probs", io.probs);
  require_array("mean", io.mean);
  const auto [n_layers, n_heads, q_rows, n_tokens] = io.probs.sizes;
  require_shape("mean", io.mean.sizes, {n_heads, n_layers, n_layers});
  require_same_memory("mean", io.mean.memory, io.probs.memory);
  if (io.per_row.data != nullptr) {
    require_shape("per_row", io.per_row.sizes, {n_heads, q_rows, n_layers, n_layers});
    require_same_memory("per_row", io.per_row.memory, io.probs.memory);
  }
  switch (choose(exec, io.probs.memory)) {
    case Backend::reference:
      return reference::js_divergence(io);
    case Backend::cuda:
      if constexpr (kHasCuda) cuda::js_divergence(io, exec.stream);
      return;
    default:
      return js_divergence_cpu(io);
  }
}

}  // namespace kvatlas::kernels
#endif
