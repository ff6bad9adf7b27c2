// SPDX-License-Identifier: Apache-2.0
// CPU body, one task for each (head, row). What makes it fast: entropies of single layers once; one
// logarithm of seven multiply-adds a pair and element; a block of keys of all layers in the
// first-level cache; no work where a layer is zero. Ladder, 30 layers x 9 heads x 16 rows x 4096
// keys on one AVX-512 core at 2.6 GHz:
//   blocks of 256 keys           58 ms
//   + the next block prefetched  51 ms, 79 % of the rate of x log2 x on data in cache
//   + four pairs at a time       6 % less, beside the variant before it in one run
// Lost: blocks of 512 keys, which the first-level cache does not hold (4 % more).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/js_divergence.cpp"
#include <type_traits>

#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/js_divergence_impl.hpp"
#include "kernels/load-inl.hpp"
#include "kernels/math-inl.hpp"
#include "kernels/sums-inl.hpp"

#ifndef KVATLAS_JS_BLOCK
#define KVATLAS_JS_BLOCK
namespace kvatlas::kernels {
// Keys that are paired at a time: 30 layers of them fill the first-level cache.
constexpr std::int64_t kJsBlock = 256;

// Scratch of one task.
struct JsScratch {
  float* tile;           // [n_layers + 1, kJsBlock]: halves of the rows, the last row is zero
  bool* zero;            // [n_layers] whether the block is zero in that layer
  std::int64_t* others;  // [n_layers] layers so far that the block is not zero in
  double* with_zero;     // [n_layers] the block's sum against a zero row
  double* sums;  // [n_layers, n_layers], b <= a: sum of m log2 m, m the mean of rows a and b
};
}  // namespace kvatlas::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {

/// to[i], i < kPairs: the sum of m log2 m, m = row a + row b[i], over the first `count` elements of
/// the tile's rows, whole vectors. The float32 sums are at most 64 terms long; the order of the
/// terms does not hang on kPairs, so equal rows give equal sums.
template <int kPairs>
HWY_INLINE void paired_sums(const float* HWY_RESTRICT tile, std::int64_t a,
                            const std::int64_t* HWY_RESTRICT b, std::int64_t count,
                            double* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t longest = 64 * lanes;
  const float* row = tile + a * kJsBlock;
  const float* others[kPairs];
  for (int i = 0; i < kPairs; ++i) {
    others[i] = tile + b[i] * kJsBlock;
    to[i] = 0;
  }
  for (std::int64_t begin = 0; begin < count; begin += longest) {
    const std::int64_t end = begin + longest < count ? begin + longest : count;
    hn::Vec<decltype(d)> sums[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sums[i] = hn::Zero(d);
    for (std::int64_t j = begin; j < end; j += lanes) {
      const auto own = hn::Load(d, row + j);
#pragma GCC unroll 4
      for (int i = 0; i < kPairs; ++i) {
        const auto m = hn::Add(own, hn::Load(d, others[i] + j));
        sums[i] = hn::MulAdd(m, log2(d, m), sums[i]);
      }
    }
    alignas(16) float some[4];
    four_sums(d, sums, some);
    for (int i = 0; i < kPairs; ++i) to[i] += static_cast<double>(some[i]);
  }
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
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  for (std::int64_t begin = 0; begin < n_tokens; begin += kJsBlock) {
    const std::int64_t count = n_tokens - begin < kJsBlock ? n_tokens - begin : kJsBlock;
    const std::int64_t padded = (count + lanes - 1) / lanes * lanes;
    fill_tile(probs, head, row, begin, count, padded, scratch);
    std::int64_t others = 0;
    for (std::int64_t a = 0; a < n_layers; ++a) {
      prefetch(probs, a, head, row, begin + kJsBlock);
      if (scratch.zero[a]) continue;
      scratch.others[others++] = a;
      double* sums = scratch.sums + a * n_layers;
      const auto add = [&](auto pairs, std::int64_t first) HWY_ATTR {
        const std::int64_t* b = scratch.others + first;
        double found[pairs];
        paired_sums<pairs>(scratch.tile, a, b, padded, found);
        for (int i = 0; i < pairs; ++i) sums[b[i]] += found[i];
      };
      std::int64_t first = 0;
      for (; first + 4 <= others; first += 4) add(std::integral_constant<int, 4>(), first);
      if (first + 2 <= others) {
        add(std::integral_constant<int, 2>(), first);
        first += 2;
      }
      if (first < others) add(std::integral_constant<int, 1>(), first);
    }
    if (others == n_layers) continue;
    // Of a pair with a row of zeros only the other row's sum is left.
    for (std::int64_t a = 0; a < n_layers; ++a) {
      scratch.with_zero[a] = 0;
      if (!scratch.zero[a])
        paired_sums<1>(scratch.tile, a, &n_layers, padded, scratch.with_zero + a);
      for (std::int64_t b = 0; b <= a; ++b)
        if (scratch.zero[a] || scratch.zero[b])
          scratch.sums[a * n_layers + b] += scratch.with_zero[a] + scratch.with_zero[b];
    }
  }
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <memory>
#include <vector>

#include "base/parallel.hpp"
#include "kernels/aligned_impl.hpp"
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
    std::vector<std::int64_t> others(size(layers));
    std::vector<double> with_zero(size(layers)), sums(size(pairs));
    HWY_DYNAMIC_DISPATCH(JsRow)
    (io.probs, task / rows, task % rows,
     {tile.get(), zero.get(), others.data(), with_zero.data(), sums.data()});
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
  run_body(choose(exec, io.probs.memory), exec, io, reference::js_divergence, js_divergence_cpu,
           KVATLAS_CUDA_BODY(js_divergence));
}

}  // namespace kvatlas::kernels
#endif
