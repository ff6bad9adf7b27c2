// SPDX-License-Identifier: Apache-2.0
// Tiles of Q K^T in float32; included once per instruction set. One side of the product, the
// stripe, lies in panels with the vector lanes along its rows; the other is broadcast, a few rows
// at a time. Ladder: 8 rows x 3 vectors (6 x 2 on 16 registers) of accumulators reach 99 % of the
// fused multiply-add peak on Zen 4 with AVX-512 and with AVX2 alike (117 of 118 GF/s a core); 6 x 4
// and 12 x 2 reach 97 %, 8 x 2 96 %.
#if defined(KVATLAS_KERNELS_QK_TILE_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVATLAS_KERNELS_QK_TILE_INL_HPP_
#undef KVATLAS_KERNELS_QK_TILE_INL_HPP_
#else
#define KVATLAS_KERNELS_QK_TILE_INL_HPP_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

#include "base/view.hpp"
#include "kernels/aligned_impl.hpp"
#include "kernels/load-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using TileTag = hn::ScalableTag<float>;
using TileVec = hn::Vec<TileTag>;
inline constexpr std::int64_t kTileLanes = hn::MaxLanes(TileTag());
inline constexpr std::int64_t kTileRows = HWY_TARGET <= HWY_AVX3 ? 8 : 6;
inline constexpr std::int64_t kTileVectors = HWY_TARGET <= HWY_AVX3 ? 3 : 2;
inline constexpr std::int64_t kPanel = kTileVectors * kTileLanes;
// A stripe is a multiple of every panel width; at head_dim 64 its panels fill a tenth of a 1 MiB L2
// cache.
inline constexpr std::int64_t kStripe = 384;
static_assert(kStripe % kPanel == 0);
// Terms of a dot product added in one go; the row stride keeps broadcasts at constant offsets.
inline constexpr std::int64_t kDepth = 256;
inline constexpr std::int64_t kRowStride = kDepth + kTileLanes;

/// out[r][c] (+)= sum over k of element(r, k) * panel[k][c]: element(r, k) is rows[r * stride + k],
/// or rows[r + k * stride] if kAdjacent. Rows of the panel are kPanel long.
template <int kRows, bool kAdjacent, std::int64_t kOutStride>
HWY_INLINE void panel_tile(const float* HWY_RESTRICT rows, std::int64_t stride,
                           const float* HWY_RESTRICT panel, std::int64_t depth, bool add,
                           float* HWY_RESTRICT out) {
  const TileTag d;
  TileVec sum[kRows][kTileVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kTileVectors; ++v)
      sum[r][v] = add ? hn::Load(d, out + r * kOutStride + v * kTileLanes) : hn::Zero(d);
  const float* row[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) row[r] = rows + (kAdjacent ? r : r * stride);
  for (std::int64_t k = 0; k < depth; ++k, panel += kPanel) {
    TileVec b[kTileVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kTileVectors; ++v) b[v] = hn::Load(d, panel + v * kTileLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const TileVec a = hn::Set(d, kAdjacent ? rows[r + k * stride] : row[r][k]);
#pragma GCC unroll 3
      for (int v = 0; v < kTileVectors; ++v) sum[r][v] = hn::MulAdd(a, b[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < kTileVectors; ++v)
      hn::Store(sum[r][v], d, out + r * kOutStride + v * kTileLanes);
}

/// Scratch of one thread: a packed stripe, a group of packed rows and their products.
class TileScratch {
 public:
  explicit TileScratch(std::int64_t head_dim)
      : head_dim_(head_dim),
        chunks_((head_dim + kDepth - 1) / kDepth),
        panels_(aligned<float>(kStripe * head_dim)),
        rows_(aligned<float>(chunks_ * kTileRows * kRowStride)),
        products_(aligned<float>(kTileRows * kStripe)) {}

  /// Makes rows first .. first + count (at most kStripe) of x[h] the stripe, zeros behind.
  void pack_stripe(const AnyView<3>& x, std::int64_t h, std::int64_t first, std::int64_t count) {
    std::memset(panels_.get(), 0, static_cast<std::size_t>(kStripe * head_dim_) * sizeof(float));
    for (std::int64_t c = 0; c < count; ++c) {
      float* to = panels_.get() + c / kPanel * kPanel * head_dim_ + c % kPanel;
      for (std::int64_t k0 = 0; k0 < head_dim_; k0 += kDepth) {
        const std::int64_t depth = std::min(kDepth, head_dim_ - k0);
        float* row = rows_.get();
        copy_row(x, h, first + c, k0, depth, row);
        for (std::int64_t k = 0; k < depth; ++k) to[(k0 + k) * kPanel] = row[k];
      }
    }
  }

  /// Makes rows first .. first + count (at most kTileRows) of x[h], times factor, the broadcast
  /// side.
  void pack_rows(const AnyView<3>& x, std::int64_t h, std::int64_t first, std::int64_t count,
                 float factor) {
    const TileTag d;
    for (std::int64_t chunk = 0; chunk < chunks_; ++chunk) {
      const std::int64_t k0 = chunk * kDepth, depth = std::min(kDepth, head_dim_ - k0);
      for (std::int64_t r = 0; r < kTileRows; ++r) {
        float* to = rows_.get() + (chunk * kTileRows + r) * kRowStride;
        if (r < count) {
          copy_row(x, h, first + r, k0, depth, to);
          for (std::int64_t k = 0; k < depth; k += kTileLanes)
            hn::Store(hn::Mul(hn::Load(d, to + k), hn::Set(d, factor)), d, to + k);
        } else {
          std::memset(to, 0, kDepth * sizeof(float));
        }
      }
    }
  }

  /// products()[r * kStripe + c] = rows[r] . stripe[c] for the panels first_panel .. end_panel.
  void multiply(std::int64_t first_panel, std::int64_t end_panel) {
    for (std::int64_t p = first_panel; p < end_panel; ++p)
      for (std::int64_t chunk = 0; chunk < chunks_; ++chunk)
        panel_tile<kTileRows, false, kStripe>(
            rows_.get() + chunk * kTileRows * kRowStride, kRowStride,
            panels_.get() + (p * head_dim_ + chunk * kDepth) * kPanel,
            std::min(kDepth, head_dim_ - chunk * kDepth), chunk > 0, products_.get() + p * kPanel);
  }

  float* products() { return products_.get(); }

 private:
  static void copy_row(const AnyView<3>& x, std::int64_t h, std::int64_t row, std::int64_t k0,
                       std::int64_t depth, float* to) {
    copy_as_float(x.data, x.type, h * x.strides[0] + row * x.strides[1] + k0 * x.strides[2],
                  x.strides[2], depth, to);
  }

  std::int64_t head_dim_, chunks_;
  hwy::AlignedFreeUniquePtr<float[]> panels_, rows_, products_;
};

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
