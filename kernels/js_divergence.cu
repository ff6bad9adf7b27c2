// SPDX-License-Identifier: Apache-2.0
// A warp takes 8 x 8 layers of one (head, row): each lane has every 32nd key, reads its
// probabilities in 16 layers, halved, and adds up all 64 pairs, each an addition, a logarithm and a
// multiply-add. From time to time the lanes' float32 sums are joined and go to float64, always in
// the same order.
#include "kernels/cuda_support.cuh"
#include "kernels/js_divergence_impl.hpp"

namespace kvatlas::kernels::cuda {
inline namespace js_divergence_cu {

constexpr int kTile = 8;  // layers of each side of a tile
constexpr int kPairs = kTile * kTile;
constexpr int kWarp = 32;
constexpr int kWarps = 4;                          // tiles of a block
constexpr std::int64_t kMostLayers = 723 * kTile;  // whose tiles fit into a grid's second dimension
static_assert(723 * 724 / 2 <= 65535 * kWarps && 724 * 725 / 2 > 65535 * kWarps);
constexpr int kRun = 64;       // terms that a lane adds in float32
constexpr int kThreads = 256;  // of js_finish

template <class T>
struct JsParams {
  const T* probs;
  std::int64_t n_layers, n_heads, q_rows, n_tokens;
  std::int64_t layer_stride, head_stride, row_stride, token_stride;
  double* sums;  // [n_heads, q_rows, n_layers, n_layers], b <= a: sum of m log2 m
};

/// x log2 x for x >= 0, 0 for denormals; infinities and NaN pass through.
__device__ float x_log2_x(float x) {
  const float y = x < 0x1p-126f ? 1.0f : x;
  return y * log2_of_normal(y);
}

/// Sums over the warp, of values `lane` and `lane` + 32, into values[0] and values[1]. In each step
/// a lane goes on with every other value and gives the rest to the lane whose number differs in
/// kStep.
template <int kStep = 1>
__device__ void join_lanes(float (&values)[kPairs]) {
  const bool odd = (threadIdx.x & kStep) != 0;
#pragma unroll
  for (int i = 0; i < kPairs / 2 / kStep; ++i) {
    const float kept = odd ? values[2 * i + 1] : values[2 * i];
    const float given = odd ? values[2 * i] : values[2 * i + 1];
    values[i] = kept + __shfl_xor_sync(~0u, given, kStep);
  }
  if constexpr (kStep < kWarp / 2) join_lanes<2 * kStep>(values);
}

template <class T>
__global__ void __launch_bounds__(kWarp* kWarps, 3) js_sums(JsParams<T> p) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  // Tile (a, b), b <= a, of those numbered row by row.
  std::int64_t tile_a = 0;
  std::int64_t tile_b = static_cast<std::int64_t>(blockIdx.y) * kWarps + threadIdx.x / kWarp;
  while (tile_b > tile_a) tile_b -= ++tile_a;
  if (tile_a * kTile >= p.n_layers) return;  // the whole warp leaves
  const std::int64_t head = blockIdx.x / p.q_rows, row = blockIdx.x % p.q_rows;
  const T* base = p.probs + head * p.head_stride + row * p.row_stride;
  // What lies behind the last layer or key is read as that one, and not used.
  const T *of_a[kTile], *of_b[kTile];
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    of_a[i] = base + min(p.n_layers - 1, tile_a * kTile + i) * p.layer_stride;
    of_b[i] = base + min(p.n_layers - 1, tile_b * kTile + i) * p.layer_stride;
  }
  // The next key's numbers are under way while a key's are worked on.
  T next_a[kTile], next_b[kTile];
  const auto fetch = [&](std::int64_t j) {
    const std::int64_t at = min(p.n_tokens - 1, j) * p.token_stride;
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
      next_a[i] = of_a[i][at];
      next_b[i] = of_b[i][at];
    }
  };
  double first = 0, second = 0;  // of pairs `lane` and `lane` + 32
  if (p.n_tokens > 0) fetch(lane);
  for (std::int64_t begin = 0; begin < p.n_tokens; begin += kWarp * kRun) {
    float sums[kPairs] = {};
    const std::int64_t end = min(p.n_tokens, begin + kWarp * kRun);
#pragma unroll 1
    for (std::int64_t j = begin + lane; j < end; j += kWarp) {
      float a[kTile], b[kTile];
#pragma unroll
      for (int i = 0; i < kTile; ++i) {
        a[i] = 0.5f * to_float(next_a[i]);
        b[i] = 0.5f * to_float(next_b[i]);
      }
      fetch(j + kWarp);
#pragma unroll
      for (int i = 0; i < kTile; ++i)
#pragma unroll
        for (int k = 0; k <= i; ++k) sums[i * kTile + k] += x_log2_x(a[i] + b[k]);
      if (tile_a == tile_b) continue;  // where the other half is the same
#pragma unroll
      for (int i = 0; i < kTile; ++i)
#pragma unroll
        for (int k = i + 1; k < kTile; ++k) sums[i * kTile + k] += x_log2_x(a[i] + b[k]);
    }
    join_lanes(sums);
    first += static_cast<double>(sums[0]);
    second += static_cast<double>(sums[1]);
  }
  const auto put = [&](int pair, double sum) {
    const std::int64_t a = tile_a * kTile + pair / kTile, b = tile_b * kTile + pair % kTile;
    if (a < p.n_layers && b <= a)
      p.sums[(static_cast<std::int64_t>(blockIdx.x) * p.n_layers + a) * p.n_layers + b] = sum;
  };
  put(lane, first);
  put(lane + kWarp, second);
}

/// One thread for each (head, a, b): the divergences of its rows in order, and their mean.
__global__ void js_finish(const double* sums, std::int64_t n_layers, std::int64_t n_heads,
                          std::int64_t q_rows, View<float, 3> mean, View<float, 4> per_row) {
  const std::int64_t pairs = n_layers * n_layers;
  const std::int64_t index = global_thread();
  if (index >= n_heads * pairs) return;
  const std::int64_t head = index / pairs, a = index % pairs / n_layers, b = index % n_layers;
  const std::int64_t high = a > b ? a : b, low = a > b ? b : a;
  double sum = 0;
  for (std::int64_t row = 0; row < q_rows; ++row) {
    const double* of_row = sums + (head * q_rows + row) * pairs;
    const double own = (of_row[high * n_layers + high] + of_row[low * n_layers + low]) / 2;
    const double value = own - of_row[high * n_layers + low];
    const float clamped = static_cast<float>(value < 0 ? 0 : value > 1 ? 1 : value);
    if (per_row.data != nullptr)
      per_row.data[head * per_row.strides[0] + row * per_row.strides[1] + a * per_row.strides[2] +
                   b * per_row.strides[3]] = clamped;
    sum += static_cast<double>(clamped);
  }
  mean.data[head * mean.strides[0] + a * mean.strides[1] + b * mean.strides[2]] =
      static_cast<float>(sum / static_cast<double>(q_rows));
}

}  // namespace js_divergence_cu

void js_divergence(const JsDivergence& io, void* stream_pointer) {
  const auto stream = static_cast<cudaStream_t>(stream_pointer);
  const auto [n_layers, n_heads, q_rows, n_tokens] = io.probs.sizes;
  if (n_layers == 0 || n_heads == 0) return;
  if (n_layers > kMostLayers)
    fail(ErrorCode::unsupported, "js_divergence on CUDA takes at most ", kMostLayers,
         " layers, got ", n_layers);
  const Scratch<double> sums(n_heads * q_rows * n_layers * n_layers, stream);
  const std::int64_t side = (n_layers + kTile - 1) / kTile, tiles = side * (side + 1) / 2;
  if (q_rows > 0) {
    const std::int64_t blocks = (tiles + kWarps - 1) / kWarps;
    const dim3 grid(grid_blocks("js_sums", n_heads * q_rows), static_cast<unsigned>(blocks));
    with_type(io.probs.type, [&](auto zero) {
      using T = decltype(zero);
      const JsParams<T> params = {static_cast<const T*>(io.probs.data),
                                  io.probs.sizes[0],
                                  io.probs.sizes[1],
                                  io.probs.sizes[2],
                                  io.probs.sizes[3],
                                  io.probs.strides[0],
                                  io.probs.strides[1],
                                  io.probs.strides[2],
                                  io.probs.strides[3],
                                  sums.data()};
      launch("js_sums", js_sums<T>, {grid, kWarp * kWarps, stream}, params);
    });
  }
  const std::int64_t outputs = n_heads * n_layers * n_layers;
  launch("js_finish", js_finish,
         {grid_blocks("js_finish", (outputs + kThreads - 1) / kThreads), kThreads, stream},
         sums.data(), n_layers, n_heads, q_rows, io.mean, io.per_row);
}

}  // namespace kvatlas::kernels::cuda
