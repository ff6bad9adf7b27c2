// SPDX-License-Identifier: Apache-2.0
// One thread block for each (head, row) and tile of kTile x kTile layers; keys pass through shared
// memory kKeys at a time, halved, so that a pair costs two shared loads, an add, a logarithm and a
// multiply-add an element. Sums are kept by the thread that owns the pair (float32 over kKeys
// terms, then float64), so the order never changes.
#include "kernels/cuda_support.cuh"
#include "kernels/js_divergence_impl.hpp"

namespace kvatlas::kernels::cuda {
inline namespace js_divergence_cu {

constexpr int kTile = 32;      // layers of each side of a tile
constexpr int kKeys = 64;      // keys in shared memory at a time
constexpr int kThreads = 256;  // each owns (kTile * kTile) / kThreads = 4 pairs
constexpr int kOwned = kTile * kTile / kThreads;
constexpr int kRowsApart =
    kThreads / kTile;  // a thread's pairs are rows kRowsApart apart, in one column

template <class T>
struct JsParams {
  const T* probs;
  std::int64_t n_layers, n_heads, q_rows, n_tokens;
  std::int64_t layer_stride, head_stride, row_stride, token_stride;
  double* sums;  // [n_heads, q_rows, n_layers, n_layers], b <= a: sum of m log2 m
};

/// x log2 x for x >= 0, 0 for denormals; infinities and NaN pass through.
__device__ float x_log2_x(float x) { return x < 0x1p-126f ? 0.0f : x * __log2f(x); }

template <class T>
__global__ void __launch_bounds__(kThreads) js_sums(JsParams<T> p) {
  __shared__ float rows_a[kTile][kKeys + 1], rows_b[kTile][kKeys + 1];  // + 1: no bank conflicts
  const std::int64_t tile_a = blockIdx.y, tile_b = blockIdx.z;
  if (tile_b > tile_a) return;  // the other half follows by symmetry; the whole block leaves
  const std::int64_t head = blockIdx.x / p.q_rows, row = blockIdx.x % p.q_rows;
  const T* base = p.probs + head * p.head_stride + row * p.row_stride;
  const int thread = static_cast<int>(threadIdx.x);
  const int column = thread % kTile, first_row = thread / kTile;

  double totals[kOwned] = {};
  for (std::int64_t begin = 0; begin < p.n_tokens; begin += kKeys) {
    for (int i = thread; i < kTile * kKeys; i += kThreads) {
      const int layer = i / kKeys, key = i % kKeys;
      const std::int64_t a = tile_a * kTile + layer, b = tile_b * kTile + layer, j = begin + key;
      const bool in = j < p.n_tokens;
      rows_a[layer][key] = in && a < p.n_layers
                               ? 0.5f * to_float(base[a * p.layer_stride + j * p.token_stride])
                               : 0.0f;
      rows_b[layer][key] = in && b < p.n_layers
                               ? 0.5f * to_float(base[b * p.layer_stride + j * p.token_stride])
                               : 0.0f;
    }
    __syncthreads();
    float partial[kOwned] = {};
    for (int key = 0; key < kKeys; ++key) {
      const float b = rows_b[column][key];
#pragma unroll
      for (int i = 0; i < kOwned; ++i)
        partial[i] += x_log2_x(rows_a[first_row + i * kRowsApart][key] + b);
    }
#pragma unroll
    for (int i = 0; i < kOwned; ++i) totals[i] += static_cast<double>(partial[i]);
    __syncthreads();
  }
  const std::int64_t b = tile_b * kTile + column;
#pragma unroll
  for (int i = 0; i < kOwned; ++i) {
    const std::int64_t a = tile_a * kTile + first_row + i * kRowsApart;
    if (a < p.n_layers && b <= a)
      p.sums[(static_cast<std::int64_t>(blockIdx.x) * p.n_layers + a) * p.n_layers + b] = totals[i];
  }
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
  const Scratch<double> sums(n_heads * q_rows * n_layers * n_layers, stream);
  const std::int64_t tiles = (n_layers + kTile - 1) / kTile;
  if (q_rows > 0) {
    if (tiles > 65535)
      fail(ErrorCode::unsupported, "js_divergence on CUDA takes at most ", 65535 * kTile,
           " layers, got ", n_layers);
    const dim3 grid(grid_blocks("js_sums", n_heads * q_rows), static_cast<unsigned>(tiles),
                    static_cast<unsigned>(tiles));
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
      launch("js_sums", js_sums<T>, {grid, kThreads, stream}, params);
    });
  }
  const std::int64_t outputs = n_heads * n_layers * n_layers;
  launch("js_finish", js_finish,
         {grid_blocks("js_finish", (outputs + kThreads - 1) / kThreads), kThreads, stream},
         sums.data(), n_layers, n_heads, q_rows, io.mean, io.per_row);
}

}  // namespace kvatlas::kernels::cuda
