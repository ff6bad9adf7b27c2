// SPDX-License-Identifier: Apache-2.0
// Two kernels. `row_scores`: a block is 64 keys of one key head and 64 of the rows that read it;
// scores in units of log2 go to scratch. `row_statistics`: a block is one row; maximum, sums and
// weights with reductions of fixed order.
#include <algorithm>
#include <cfloat>
#include <limits>
#include <math_constants.h>

#include "kernels/cuda_support.cuh"
#include "kernels/last_rows_impl.hpp"
#include "kernels/tile_products.cuh"

namespace kvatlas::kernels::cuda {
inline namespace last_rows_cu {

constexpr int kThreads = 256;  // of row_statistics
constexpr int kEntries = 8;    // grid entries of a launch
constexpr int kRun = 32;       // weights that a thread adds in float32 before they go to float64

struct ScoreParams {
  const void* queries;  // [n_heads, q_rows, head_dim]
  const void* keys;     // [n_kv_heads, n_tokens, head_dim]
  std::int64_t query_strides[3], key_strides[3];
  std::int64_t group, q_rows, n_tokens, head_dim;
  std::int64_t row_blocks, key_blocks;  // of one key head
  bool query_vectors, key_vectors;
  ScoreUnit unit;
  float* scores;  // [n_heads * q_rows, n_tokens]
};

template <class Q, class K>
__global__ void __launch_bounds__(kTileThreads) row_scores(ScoreParams p) {
  using P = TileProducts<Q, K>;
  __shared__ typename P::Shared shared;
  const std::int64_t j0 = blockIdx.x % p.key_blocks * kTileSide;
  const std::int64_t m0 = blockIdx.x / p.key_blocks % p.row_blocks * kTileSide;
  const std::int64_t kv_head = blockIdx.x / p.key_blocks / p.row_blocks;
  const std::int64_t rows = p.group * p.q_rows;  // that read this key head
  const auto queries = [&](int row) {
    return (kv_head * p.group + (m0 + row) / p.q_rows) * p.query_strides[0] +
           (m0 + row) % p.q_rows * p.query_strides[1];
  };
  const auto keys = [&](int row) {
    return kv_head * p.key_strides[0] + (j0 + row) * p.key_strides[1];
  };
  const auto count = [](std::int64_t left) {
    return static_cast<int>(min(std::int64_t{kTileSide}, left));
  };
  P products;
  products.take(TileRows{p.queries, queries, p.query_strides[2], p.query_vectors, count(rows - m0)},
                TileRows{p.keys, keys, p.key_strides[2], p.key_vectors, count(p.n_tokens - j0)},
                p.head_dim, Held::nothing, shared);
  p.unit.apply(products.dot);
#pragma unroll
  for (int r = 0; r < P::kRows; ++r) {
    const std::int64_t m = m0 + P::row(r);
    if (m >= rows) continue;
    float* to = p.scores + (kv_head * rows + m) * p.n_tokens;
#pragma unroll
    for (int c = 0; c < P::kColumns; ++c)
      if (j0 + P::column(c) < p.n_tokens) to[j0 + P::column(c)] = products.dot[r][c];
  }
}

struct StatisticParams {
  const float* scores;  // [n_heads * q_rows, n_tokens]
  std::int64_t q_rows, row_step, n_tokens;
  KeyWindow window;
  View<const float, 1> sinks;
  View<float, 3> probs;
  int entries;
  std::int64_t first_entry;
  Proximity grid[kEntries];
  View<float, 3> mass, proximal_lse, distant_lse;
};

__device__ double block_sum(double value, double* shared) {
  return block_reduce<kThreads>(value, shared, [](double a, double b) { return a + b; });
}

/// Below the normal range it counts as 0, as in the CPU's body: the few bits of a denormal would
/// show in a logarithm.
__device__ float weight_of(float score, float highest) {
  const float weight = exp2f(score - highest);
  return weight < FLT_MIN ? 0.0f : weight;
}

__device__ void store(const View<float, 3>& to, std::int64_t a, std::int64_t b, std::int64_t c,
                      double value) {
  if (to.data != nullptr)
    to.data[a * to.strides[0] + b * to.strides[1] + c * to.strides[2]] = static_cast<float>(value);
}

__global__ void __launch_bounds__(kThreads) row_statistics(StatisticParams p) {
  __shared__ double shared[kThreads];
  const std::int64_t head = blockIdx.x / p.q_rows, row = blockIdx.x % p.q_rows;
  const std::int64_t i = p.n_tokens - 1 - (p.q_rows - 1 - row) * p.row_step;
  const std::int64_t first = p.window.first_key(i);
  const float* scores = p.scores + static_cast<std::int64_t>(blockIdx.x) * p.n_tokens;
  const int thread = static_cast<int>(threadIdx.x);

  float highest = -CUDART_INF_F;
  for (std::int64_t j = first + thread; j <= i; j += kThreads) highest = fmaxf(highest, scores[j]);
  float* highest_of = reinterpret_cast<float*>(shared);
  highest_of[thread] = highest;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (thread < half) highest_of[thread] = fmaxf(highest_of[thread], highest_of[thread + half]);
    __syncthreads();
  }
  highest = highest_of[0];
  __syncthreads();
  // In units of log2, as the scores.
  constexpr double kLog2E = 1 / kLn2;
  double of_sink = 0;
  if (p.sinks.data != nullptr) {
    const double sink = static_cast<double>(p.sinks.data[head * p.sinks.strides[0]]) * kLog2E;
    highest = isnan(sink) ? CUDART_NAN_F : fmaxf(highest, static_cast<float>(sink));
    of_sink = exp2(sink - static_cast<double>(highest));
  }

  if (p.probs.data != nullptr && p.first_entry == 0) {
    double part = 0;
    for (std::int64_t begin = first + thread; begin <= i; begin += kThreads * kRun) {
      const std::int64_t end = min(i + 1, begin + kThreads * kRun);
      float run = 0;
      for (std::int64_t j = begin; j < end; j += kThreads) run += weight_of(scores[j], highest);
      part += static_cast<double>(run);
    }
    const double total = block_sum(part, shared) + of_sink;
    const auto norm = static_cast<float>(1 / total);
    float* probs = p.probs.data + head * p.probs.strides[0] + row * p.probs.strides[1];
    for (std::int64_t j = thread; j < p.n_tokens; j += kThreads)
      probs[j * p.probs.strides[2]] =
          j >= first && j <= i ? weight_of(scores[j], highest) * norm : 0.0f;
  }

  double proximal[kEntries] = {}, distant[kEntries] = {};
  for (std::int64_t begin = first + thread; p.entries > 0 && begin <= i; begin += kThreads * kRun) {
    const std::int64_t end = min(i + 1, begin + kThreads * kRun);
    float near[kEntries] = {}, far[kEntries] = {};
    for (std::int64_t j = begin; j < end; j += kThreads) {
      const float weight = weight_of(scores[j], highest);
#pragma unroll
      for (int e = 0; e < kEntries; ++e) {
        if (e >= p.entries) break;
        if (j < p.grid[e].initial || j > i - p.grid[e].recent)
          near[e] += weight;
        else
          far[e] += weight;
      }
    }
#pragma unroll
    for (int e = 0; e < kEntries; ++e) {
      proximal[e] += static_cast<double>(near[e]);
      distant[e] += static_cast<double>(far[e]);
    }
  }
#pragma unroll
  for (int e = 0; e < kEntries; ++e) {
    if (e >= p.entries) break;
    double near = block_sum(proximal[e], shared) + of_sink;
    double far = block_sum(distant[e], shared);
    if (thread != 0) continue;
    if (!(near + far > 0)) near = far = CUDART_NAN;
    const double shift = static_cast<double>(highest) * kLn2;
    store(p.mass, p.first_entry + e, head, row, near / (near + far));
    store(p.proximal_lse, p.first_entry + e, head, row, log(near) + shift);
    store(p.distant_lse, p.first_entry + e, head, row, log(far) + shift);
  }
}

}  // namespace last_rows_cu

void last_rows(const LastRows& io, void* stream_pointer) {
  const auto stream = static_cast<cudaStream_t>(stream_pointer);
  const auto [n_heads, q_rows, head_dim] = io.queries.sizes;
  const std::int64_t n_kv_heads = io.keys.sizes[0], n_tokens = io.keys.sizes[1];
  if (n_heads == 0 || q_rows == 0) return;
  const std::int64_t group = n_heads / n_kv_heads,
                     row_blocks = (group * q_rows + kTileSide - 1) / kTileSide,
                     key_blocks = (n_tokens + kTileSide - 1) / kTileSide;
  const unsigned score_blocks = grid_blocks("row_scores", n_kv_heads * row_blocks * key_blocks);
  const unsigned rows = grid_blocks("row_statistics", n_heads * q_rows);
  const Scratch<float> scores(n_heads * q_rows * n_tokens, stream);
  ScoreParams of_scores{};
  of_scores.queries = io.queries.data;
  of_scores.keys = io.keys.data;
  copy(io.queries.strides, of_scores.query_strides);
  copy(io.keys.strides, of_scores.key_strides);
  of_scores.query_vectors = in_vectors(io.queries);
  of_scores.key_vectors = in_vectors(io.keys);
  of_scores.group = group;
  of_scores.q_rows = q_rows;
  of_scores.n_tokens = n_tokens;
  of_scores.head_dim = head_dim;
  of_scores.row_blocks = row_blocks;
  of_scores.key_blocks = key_blocks;
  of_scores.unit = score_unit(io.scale, io.soft_cap);
  of_scores.scores = scores.data();
  with_types(io.queries.type, io.keys.type, [&](auto query, auto key) {
    launch("row_scores", row_scores<decltype(query), decltype(key)>,
           {score_blocks, kTileThreads, stream}, of_scores);
  });
  StatisticParams params{};
  params.scores = scores.data();
  params.q_rows = q_rows;
  params.row_step = io.row_step;
  params.n_tokens = n_tokens;
  params.window = io.window;
  params.sinks = io.sinks;
  params.probs = io.probs;
  params.mass = io.mass;
  params.proximal_lse = io.proximal_lse;
  params.distant_lse = io.distant_lse;
  const auto entries = static_cast<std::int64_t>(io.grid.size());
  for (std::int64_t first = 0; first == 0 || first < entries; first += kEntries) {
    params.first_entry = first;
    params.entries = static_cast<int>(std::min<std::int64_t>(kEntries, entries - first));
    std::copy_n(io.grid.begin() + first, params.entries, params.grid);
    launch("row_statistics", row_statistics, {rows, kThreads, stream}, params);
  }
}

}  // namespace kvatlas::kernels::cuda
