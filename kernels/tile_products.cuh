// SPDX-License-Identifier: Apache-2.0
// Dot products of 64 x 64 rows by a block of threads, with the sums in their registers: by tensor
// cores where both sides are of one 16-bit type, otherwise by float32 multiply-adds. Both sum in
// float32.
#pragma once

#include <cstdint>

#include "kernels/cuda_support.cuh"

namespace kvatlas::kernels::cuda {

constexpr int kTileSide = 64, kTileThreads = 128;

/// `count` rows of one side of a tile. Row r begins at element at(r).
template <class At>
struct TileRows {
  const void* data;
  At at;
  std::int64_t channel_stride;
  bool vectors;  // in_vectors()
  int count;
};

/// Whether every row starts at a multiple of 16 bytes, its channels side by side.
inline bool in_vectors(const AnyView<3>& view) {
  const auto bytes = dtype_bytes(view.type);
  return view.strides[2] == 1 && view.sizes[2] % 8 == 0 && view.strides[0] * bytes % 16 == 0 &&
         view.strides[1] * bytes % 16 == 0 && reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0;
}

/// What shared memory still holds of the tile before.
enum class Held { nothing, rows, columns };

/// A number for each product. It takes the place of the rows, which are no longer needed then.
using TileCells = float[kTileSide][kTileSide + 1];

/// A thread's share of a tile: kRows x kColumns sums, of rows row(0), row(1), … and columns
/// column(0), … kLanes threads, side by side in a warp, have the whole of a row.
template <class A, class B>
class TileProducts {
 public:
  static constexpr int kRows = 8, kColumns = 4, kLanes = kTileSide / kColumns;
  static constexpr int kChannels = 16, kPadded = kTileSide + 4;  // keeps float4 loads aligned
  struct Shared {
    union {
      float rows[kChannels][kPadded];
      TileCells cells;
    };
    float columns[kChannels][kPadded];
  };
  float dot[kRows][kColumns] = {};

  __device__ static int row(int r) { return static_cast<int>(threadIdx.x) / kLanes * kRows + r; }
  __device__ static int column(int c) {
    return static_cast<int>(threadIdx.x) % kLanes * kColumns + c;
  }

  /// Adds the products over `dim` channels. All threads must call it; what shared memory held is
  /// over.
  template <class Rows, class Columns>
  __device__ void take(const Rows& rows, const Columns& columns, std::int64_t dim, Held,
                       Shared& shared) {
    for (std::int64_t first = 0; first < dim; first += kChannels) {
      const int channels = static_cast<int>(min(std::int64_t{kChannels}, dim - first));
      load<A>(rows, first, channels, shared.rows);
      load<B>(columns, first, channels, shared.columns);
      __syncthreads();
#pragma unroll
      for (int k = 0; k < kChannels; ++k) {
        const float4 b = *reinterpret_cast<const float4*>(&shared.columns[k][column(0)]);
        const float bs[kColumns] = {b.x, b.y, b.z, b.w};
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float a = shared.rows[k][row(r)];
#pragma unroll
          for (int c = 0; c < kColumns; ++c) dot[r][c] = fmaf(a, bs[c], dot[r][c]);
        }
      }
      __syncthreads();
    }
  }

 private:
  /// Into to[channel][row]; zeros where there is none.
  template <class T, class Rows>
  __device__ static void load(const Rows& from, std::int64_t first, int channels,
                              float (&to)[kChannels][kPadded]) {
    for (int e = static_cast<int>(threadIdx.x); e < kTileSide * kChannels; e += kTileThreads) {
      const int channel = e % kChannels, row = e / kChannels;
      to[channel][row] =
          row < from.count && channel < channels
              ? to_float(static_cast<const T*>(
                    from.data)[from.at(row) + (first + channel) * from.channel_stride])
              : 0.0f;
    }
  }
};

/// By tensor cores: a warp has 16 rows, whose 64 columns are eight products of 16 x 8.
template <class T>
requires(sizeof(T) == 2) class TileProducts<T, T> {
 public:
  static constexpr int kRows = 2, kColumns = 16, kLanes = 4;
  static constexpr int kChannels = 128;
  static constexpr int kPairs = kChannels / 2 + 4;  // + 4: fragments without bank conflicts
  using Halves = std::uint32_t[kTileSide][kPairs];  // two channels each
  struct Shared {
    union {
      alignas(16) Halves rows;
      TileCells cells;
    };
    alignas(16) Halves columns;
  };
  float dot[kRows][kColumns] = {};

  __device__ static int row(int r) {
    const int thread = static_cast<int>(threadIdx.x);
    return thread / 32 * 16 + thread % 32 / kLanes + 8 * r;
  }
  __device__ static int column(int c) {
    return c / 2 * 8 + static_cast<int>(threadIdx.x) % kLanes * 2 + c % 2;
  }

  template <class Rows, class Columns>
  __device__ void take(const Rows& rows, const Columns& columns, std::int64_t dim, Held held,
                       Shared& shared) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (dim > kChannels) held = Held::nothing;
    for (std::int64_t first = 0; first < dim; first += kChannels) {
      const int channels = static_cast<int>(min(std::int64_t{kChannels}, dim - first));
      const int steps = (channels + 15) / 16;
      if (held != Held::rows) load(rows, first, channels, steps, shared.rows);
      if (held != Held::columns) load(columns, first, channels, steps, shared.columns);
      __syncthreads();
      for (int step = 0; step < steps; ++step) {
        const int pair = step * 8 + lane % kLanes;
        const std::uint32_t a[4] = {shared.rows[row(0)][pair], shared.rows[row(1)][pair],
                                    shared.rows[row(0)][pair + 4], shared.rows[row(1)][pair + 4]};
#pragma unroll
        for (int c = 0; c < kColumns; c += 2) {
          const int key = c / 2 * 8 + lane / kLanes;
          const std::uint32_t b[2] = {shared.columns[key][pair], shared.columns[key][pair + 4]};
          warp_product<T>(a, b, dot[0][c], dot[0][c + 1], dot[1][c], dot[1][c + 1]);
        }
      }
      __syncthreads();
    }
  }

 private:
  /// Into to[row][pair of channels], as many as the steps take; zeros where there is none.
  template <class Rows>
  __device__ static void load(const Rows& from, std::int64_t first, int channels, int steps,
                              Halves& to) {
    const auto* data = static_cast<const std::uint16_t*>(from.data);
    constexpr int kParts = kChannels / 8, kAllPairs = kChannels / 2;
    if (from.vectors) {
      for (int e = static_cast<int>(threadIdx.x); e < kTileSide * kParts; e += kTileThreads) {
        const int row = e / kParts, part = e % kParts;
        if (part >= 2 * steps) continue;
        *reinterpret_cast<uint4*>(&to[row][part * 4]) =
            row < from.count && part * 8 < channels
                ? *reinterpret_cast<const uint4*>(data + from.at(row) + first + part * 8)
                : uint4{0, 0, 0, 0};
      }
      return;
    }
    for (int e = static_cast<int>(threadIdx.x); e < kTileSide * kAllPairs; e += kTileThreads) {
      const int row = e / kAllPairs, pair = e % kAllPairs;
      if (pair >= 8 * steps) continue;
      const auto bits = [&](int channel) -> std::uint32_t {
        return row < from.count && channel < channels
                   ? data[from.at(row) + (first + channel) * from.channel_stride]
                   : 0;
      };
      to[row][pair] = bits(2 * pair) | bits(2 * pair + 1) << 16;
    }
  }
};

}  // namespace kvatlas::kernels::cuda
