// SPDX-License-Identifier: Apache-2.0
// Ladder: 64 x 64 tiles of float32 products, 4 x 4 a thread, operands through shared memory 16
// channels at a time. Log-sum-exps: a block owns 64 queries. Maps: a block owns a stripe of up to
// 64 keys made of whole blocks of the map (or a piece of one larger block) and walks down the
// queries, so every output has one owner and nothing is atomic. Tensor cores are left for a
// measured need.
#include <cfloat>

#include "kernels/attention_maps_impl.hpp"
#include "kernels/cuda_support.cuh"

namespace kvatlas::kernels::cuda {
inline namespace attention_maps_cu {

constexpr int kTile = 64, kChannels = 16, kThreads = 256, kWarp = 32, kSide = 4;
constexpr int kLanes = kTile / kSide;  // threads along a side of the tile
constexpr int kPadded = kTile + 4;     // keeps float4 loads aligned
constexpr int kChunk = 16;             // rows that one thread adds up in a column
constexpr int kFlush = 16;             // tiles after which float32 sums go to float64

struct ScoreParams {
  const void *queries, *keys;
  std::int64_t heads, group, n, dim;
  KeyWindow window;
  std::int64_t query_strides[3], key_strides[3];
  ScoreUnit unit;
};

struct LseParams {
  ScoreParams scores;
  float* lse;
  std::int64_t lse_strides[2], tiles;
};

struct MapParams {
  ScoreParams scores;
  const float* lse;
  std::int64_t lse_strides[2];
  std::int64_t block, blocks, stripes;
  std::int64_t pieces;        // stripes of one block of the map; 1 if a stripe holds whole blocks
  std::int64_t stripe_width;  // keys of a stripe: whole blocks, or up to kTile of one
  float *mean, *max, *columns;
  std::int64_t mean_strides[3], max_strides[3], column_strides[2];
  double* piece_sums;  // [heads, blocks, stripes], for pieces only
  float* piece_maxima;
};

__device__ bool sees(const ScoreParams& p, std::int64_t i, std::int64_t j) {
  return j <= i && j >= p.window.first_key(i);
}

/// Rows 0..rows of `from`, channels 0..channels, into to[channel][row], zeros elsewhere.
template <class T>
__device__ void load_tile(const T* from, std::int64_t row_step, std::int64_t channel_step, int rows,
                          int channels, float (&to)[kChannels][kPadded]) {
  for (int e = static_cast<int>(threadIdx.x); e < kTile * kChannels; e += kThreads) {
    const int channel = e % kChannels, row = e / kChannels;
    to[channel][row] = row < rows && channel < channels
                           ? to_float(from[row * row_step + channel * channel_step])
                           : 0.0f;
  }
}

/// The dot products of queries i0.. with keys j0..: thread (y, x) gets rows 4 y .. 4 y + 3, columns
/// 4 x .. 4 x + 3.
template <class Q, class K>
__device__ void tile_products(const ScoreParams& p, std::int64_t h, std::int64_t i0, int rows,
                              std::int64_t j0, int columns, float (&left)[kChannels][kPadded],
                              float (&right)[kChannels][kPadded], float (&dot)[kSide][kSide]) {
  const Q* queries =
      static_cast<const Q*>(p.queries) + h * p.query_strides[0] + i0 * p.query_strides[1];
  const K* keys =
      static_cast<const K*>(p.keys) + h / p.group * p.key_strides[0] + j0 * p.key_strides[1];
  const int y = static_cast<int>(threadIdx.x) / kLanes, x = static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll
  for (int r = 0; r < kSide; ++r)
#pragma unroll
    for (int c = 0; c < kSide; ++c) dot[r][c] = 0;
  for (std::int64_t d = 0; d < p.dim; d += kChannels) {
    const int channels = static_cast<int>(min(std::int64_t{kChannels}, p.dim - d));
    load_tile(queries + d * p.query_strides[2], p.query_strides[1], p.query_strides[2], rows,
              channels, left);
    load_tile(keys + d * p.key_strides[2], p.key_strides[1], p.key_strides[2], columns, channels,
              right);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kChannels; ++k) {
      const float4 a = *reinterpret_cast<const float4*>(&left[k][y * kSide]);
      const float4 b = *reinterpret_cast<const float4*>(&right[k][x * kSide]);
      const float as[kSide] = {a.x, a.y, a.z, a.w}, bs[kSide] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int r = 0; r < kSide; ++r)
#pragma unroll
        for (int c = 0; c < kSide; ++c) dot[r][c] = fmaf(as[r], bs[c], dot[r][c]);
    }
    __syncthreads();
  }
}

template <class Q, class K>
__global__ void __launch_bounds__(kThreads) lse_kernel(LseParams p) {
  __shared__ __align__(16) float left[kChannels][kPadded];
  __shared__ __align__(16) float right[kChannels][kPadded];
  const ScoreParams& s = p.scores;
  const std::int64_t h = blockIdx.x % s.heads;
  const std::int64_t i0 =
      (p.tiles - 1 - blockIdx.x / s.heads) * kTile;  // the longest rows start first
  const int rows = static_cast<int>(min(std::int64_t{kTile}, s.n - i0));
  const int y = static_cast<int>(threadIdx.x) / kLanes, x = static_cast<int>(threadIdx.x) % kLanes;
  float top[kSide], sum[kSide], total_top[kSide];
  double total[kSide];
#pragma unroll
  for (int r = 0; r < kSide; ++r) {
    top[r] = total_top[r] = -FLT_MAX;
    sum[r] = 0;
    total[r] = 0;
  }
  const std::int64_t first = s.window.first_key(i0);
  int since_flush = 0;
  for (std::int64_t j0 = first; j0 < i0 + rows; j0 += kTile) {
    const int columns = static_cast<int>(min(std::int64_t{kTile}, i0 + rows - j0));
    float dot[kSide][kSide];
    tile_products<Q, K>(s, h, i0, rows, j0, columns, left, right, dot);
    const bool flush = ++since_flush == kFlush || j0 + kTile >= i0 + rows;
#pragma unroll
    for (int r = 0; r < kSide; ++r) {
      const std::int64_t i = i0 + y * kSide + r;
      float most = -INFINITY;
#pragma unroll
      for (int c = 0; c < kSide; ++c) {
        const std::int64_t j = j0 + x * kSide + c;
        dot[r][c] = sees(s, i, j) ? s.unit(dot[r][c]) : -INFINITY;
        most = fmaxf(most, dot[r][c]);
      }
      // The 16 threads of a row are half a warp.
      for (int offset = kLanes / 2; offset > 0; offset /= 2)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, offset));
      const float now = fmaxf(top[r], most);
      float added = 0;
#pragma unroll
      for (int c = 0; c < kSide; ++c) added += exp2f(dot[r][c] - now);
      for (int offset = kLanes / 2; offset > 0; offset /= 2)
        added += __shfl_xor_sync(~0u, added, offset);
      sum[r] = sum[r] * exp2f(top[r] - now) + added;
      top[r] = now;
      if (flush) {
        if (top[r] != total_top[r]) total[r] *= static_cast<double>(exp2f(total_top[r] - top[r]));
        total_top[r] = top[r];
        total[r] += static_cast<double>(sum[r]);
        sum[r] = 0;
      }
    }
    if (flush) since_flush = 0;
  }
  if (x != 0) return;
#pragma unroll
  for (int r = 0; r < kSide; ++r) {
    const int row = y * kSide + r;
    if (row < rows)
      p.lse[h * p.lse_strides[0] + (i0 + row) * p.lse_strides[1]] =
          static_cast<float>(kLn2 * (static_cast<double>(total_top[r]) + log2(total[r])));
  }
}

__device__ void write_block(const MapParams& p, std::int64_t h, std::int64_t bi, std::int64_t bj,
                            double sum, float most) {
  const double rows = static_cast<double>(min(p.block, p.scores.n - bi * p.block));
  const double columns = static_cast<double>(min(p.block, p.scores.n - bj * p.block));
  if (p.mean != nullptr)
    p.mean[h * p.mean_strides[0] + bi * p.mean_strides[1] + bj * p.mean_strides[2]] =
        static_cast<float>(sum / (rows * columns));
  // fmaxf loses a NaN, a sum does not.
  if (p.max != nullptr)
    p.max[h * p.max_strides[0] + bi * p.max_strides[1] + bj * p.max_strides[2]] =
        isnan(sum) ? static_cast<float>(sum) : most;
}

/// The tile's weights, after `tile_products`, into cells[row][column]; 0 where nothing is seen.
__device__ void weigh(const MapParams& p, std::int64_t h, std::int64_t i0, int rows,
                      std::int64_t j0, int columns, const float (&dot)[kSide][kSide],
                      float (&cells)[kTile][kTile + 1]) {
  const int y = static_cast<int>(threadIdx.x) / kLanes, x = static_cast<int>(threadIdx.x) % kLanes;
#pragma unroll
  for (int r = 0; r < kSide; ++r) {
    const int row = y * kSide + r;
    float lse = 0;
    if (row < rows) {
      lse = p.lse[h * p.lse_strides[0] + (i0 + row) * p.lse_strides[1]];
      lse = isfinite(lse) ? static_cast<float>(static_cast<double>(lse) * kLog2E) : NAN;
    }
#pragma unroll
    for (int c = 0; c < kSide; ++c) {
      const int column = x * kSide + c;
      const bool seen = row < rows && column < columns && sees(p.scores, i0 + row, j0 + column);
      cells[row][column] = seen ? exp2f(p.scores.unit(dot[r][c]) - lse) : 0.0f;
    }
  }
}

/// The rows of one chunk: chunk `chunk` of the blocks of `high` rows each in a tile of `rows`.
struct RowChunk {
  int first, end;
  __device__ RowChunk(int chunk, int high, int rows) {
    const int per_block = (high + kChunk - 1) / kChunk;
    const int block = chunk / per_block;
    first = block * high + chunk % per_block * kChunk;
    end = min(min(first + kChunk, (block + 1) * high), rows);
  }
};

/// Replaces each column of a chunk by its sum, in the chunk's first row, and its maximum, in the
/// second if there is one. A block is `high` rows, the last one maybe less.
__device__ void add_columns(int rows, int high, float (&cells)[kTile][kTile + 1]) {
  const int chunks = (rows + high - 1) / high * ((high + kChunk - 1) / kChunk);
  for (int item = static_cast<int>(threadIdx.x); item < chunks * kTile; item += kThreads) {
    const int column = item % kTile;
    const RowChunk chunk(item / kTile, high, rows);
    if (chunk.first >= chunk.end) continue;
    float sum = 0, most = 0;
    for (int row = chunk.first; row < chunk.end; ++row) {
      sum += cells[row][column];
      most = fmaxf(most, cells[row][column]);
    }
    cells[chunk.first][column] = sum;
    if (chunk.end - chunk.first > 1) cells[chunk.first + 1][column] = most;
  }
}

/// One column's sum over the tile, after add_columns.
__device__ float column_sum(int column, int rows, int high,
                            const float (&cells)[kTile][kTile + 1]) {
  const int chunks = (rows + high - 1) / high * ((high + kChunk - 1) / kChunk);
  float sum = 0;
  for (int k = 0; k < chunks; ++k) {
    const RowChunk chunk(k, high, rows);
    if (chunk.first < chunk.end) sum += cells[chunk.first][column];
  }
  return sum;
}

/// Writes the map's blocks in a tile, after add_columns: small ones a thread each, others a warp
/// each.
__device__ void write_tile_blocks(const MapParams& p, std::int64_t h, std::int64_t i0, int rows,
                                  std::int64_t j0, int columns,
                                  const float (&cells)[kTile][kTile + 1]) {
  const int side = static_cast<int>(p.block);
  const int down = (rows + side - 1) / side, across = (columns + side - 1) / side;
  const int per_block = (side + kChunk - 1) / kChunk;
  const bool alone = side <= 8;
  const int lanes = alone ? 1 : kWarp;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  for (int item = static_cast<int>(threadIdx.x) / lanes; item < down * across;
       item += kThreads / lanes) {
    const int bi = item / across, bj = item % across;
    float sum = 0, most = 0;
    for (int column = bj * side + lane; column < min(columns, (bj + 1) * side); column += lanes) {
      for (int k = 0; k < per_block; ++k) {
        const RowChunk chunk(bi * per_block + k, side, rows);
        if (chunk.first >= chunk.end) continue;
        sum += cells[chunk.first][column];
        most = fmaxf(most, cells[chunk.first + (chunk.end - chunk.first > 1 ? 1 : 0)][column]);
      }
    }
    for (int offset = lanes / 2; offset > 0; offset /= 2) {
      sum += __shfl_xor_sync(~0u, sum, offset);
      most = fmaxf(most, __shfl_xor_sync(~0u, most, offset));
    }
    if (lane == 0)
      write_block(p, h, i0 / side + bi, j0 / side + bj, static_cast<double>(sum), most);
  }
}

/// The sum and the maximum over all threads, in thread 0, in a fixed order.
__device__ void block_reduce(double* sum, float* most, double (&sums)[kThreads / kWarp],
                             float (&maxima)[kThreads / kWarp]) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    *sum += __shfl_xor_sync(~0u, *sum, offset);
    *most = fmaxf(*most, __shfl_xor_sync(~0u, *most, offset));
  }
  if (threadIdx.x % kWarp == 0) {
    sums[threadIdx.x / kWarp] = *sum;
    maxima[threadIdx.x / kWarp] = *most;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kThreads / kWarp; ++w) {
      *sum += sums[w];
      *most = fmaxf(*most, maxima[w]);
    }
  }
  __syncthreads();
}

/// kWhole: the stripe holds whole blocks of the map, so each tile holds whole blocks too. Otherwise
/// the stripe is a piece of one block, and the tiles of a block of rows are added up.
template <class Q, class K, bool kWhole>
__global__ void __launch_bounds__(kThreads) maps_kernel(MapParams p) {
  __shared__ __align__(16) float left[kChannels][kPadded];
  __shared__ __align__(16) float right[kChannels][kPadded];
  __shared__ float cells[kTile][kTile + 1];
  __shared__ double sums[kThreads / kWarp];
  __shared__ float maxima[kThreads / kWarp];
  const ScoreParams& s = p.scores;
  const std::int64_t h = blockIdx.x % s.heads;
  const std::int64_t stripe = blockIdx.x / s.heads;  // the first stripes have the most rows
  std::int64_t j0, end;                              // the stripe's keys
  if (kWhole) {
    j0 = stripe * p.stripe_width;
    end = min(s.n, j0 + p.stripe_width);
  } else {
    const std::int64_t block = stripe / p.pieces;
    j0 = block * p.block + stripe % p.pieces * kTile;
    end = min(min(s.n, j0 + kTile), (block + 1) * p.block);
    if (j0 >= end) return;  // a piece behind the last key
  }
  const int columns = static_cast<int>(end - j0);
  const std::int64_t last_row = s.window.end_query(end - 1, s.n);
  double total = 0;  // of column threadIdx.x
  double block_total = 0;
  float block_most = 0;
  std::int64_t i0 = j0;
  while (i0 < last_row) {
    const std::int64_t row_block = i0 / p.block;
    const std::int64_t stop = kWhole ? min(s.n, i0 + p.stripe_width)
                                     : min(min(last_row, i0 + kTile), (row_block + 1) * p.block);
    const int rows = static_cast<int>(stop - i0);
    float dot[kSide][kSide];
    tile_products<Q, K>(s, h, i0, rows, j0, columns, left, right, dot);
    weigh(p, h, i0, rows, j0, columns, dot, cells);
    __syncthreads();
    if (!kWhole) {
      float sum = 0;
      for (int e = static_cast<int>(threadIdx.x); e < kTile * kTile; e += kThreads) {
        const float weight = cells[e / kTile][e % kTile];
        sum += weight;
        block_most = fmaxf(block_most, weight);
      }
      block_total += static_cast<double>(sum);
      __syncthreads();
    }
    const int high = kWhole ? static_cast<int>(p.block) : kTile;
    add_columns(rows, high, cells);
    __syncthreads();
    if (threadIdx.x < columns)
      total += static_cast<double>(column_sum(static_cast<int>(threadIdx.x), rows, high, cells));
    if (kWhole) {
      write_tile_blocks(p, h, i0, rows, j0, columns, cells);
    } else if (stop == last_row || stop == (row_block + 1) * p.block) {
      block_reduce(&block_total, &block_most, sums, maxima);
      if (threadIdx.x == 0) {
        const std::int64_t at = (h * p.blocks + row_block) * p.stripes + stripe;
        p.piece_sums[at] = block_total;
        p.piece_maxima[at] = block_most;
      }
      block_total = 0;
      block_most = 0;
    }
    __syncthreads();
    i0 = stop;
  }
  if (p.columns != nullptr && threadIdx.x < columns)
    p.columns[h * p.column_strides[0] + (j0 + threadIdx.x) * p.column_strides[1]] =
        static_cast<float>(total);
  if (!kWhole) return;
  // Blocks of rows that see no key of the stripe.
  const std::int64_t across = (columns + p.block - 1) / p.block;
  const std::int64_t above = j0 / p.block, below = (i0 + p.block - 1) / p.block;
  for (std::int64_t e = threadIdx.x; e < p.blocks * across; e += kThreads) {
    const std::int64_t bi = e / across;
    if (bi < above || bi >= below) write_block(p, h, bi, j0 / p.block + e % across, 0, 0);
  }
}

__global__ void __launch_bounds__(kThreads) join_pieces(MapParams p) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t e = global_thread(); e < p.scores.heads * p.blocks * p.blocks; e += step) {
    const std::int64_t bj = e % p.blocks, bi = e / p.blocks % p.blocks, h = e / p.blocks / p.blocks;
    const std::int64_t first = (h * p.blocks + bi) * p.stripes + bj * p.pieces;
    double sum = 0;
    float most = 0;
    for (std::int64_t k = first; k < first + p.pieces; ++k) {
      sum += p.piece_sums[k];
      most = fmaxf(most, p.piece_maxima[k]);
    }
    write_block(p, h, bi, bj, sum, most);
  }
}

struct PoolParams {
  std::int64_t heads, n, block, fine, coarse;  // block: tokens of a fine block
  const float *fine_mean, *fine_max;
  float *mean, *max;
  std::int64_t fine_mean_strides[3], fine_max_strides[3], mean_strides[3], max_strides[3];
};

__global__ void __launch_bounds__(kThreads) pool_kernel(PoolParams p) {
  const auto at = [](const std::int64_t(&strides)[3], std::int64_t a, std::int64_t b,
                     std::int64_t c) { return a * strides[0] + b * strides[1] + c * strides[2]; };
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t e = global_thread(); e < p.heads * p.coarse * p.coarse; e += step) {
    const std::int64_t bj = e % p.coarse, bi = e / p.coarse % p.coarse, h = e / p.coarse / p.coarse;
    double sum = 0, cells = 0;
    float most = 0;
    for (std::int64_t fi = 2 * bi; fi < min(p.fine, 2 * bi + 2); ++fi) {
      for (std::int64_t fj = 2 * bj; fj < min(p.fine, 2 * bj + 2); ++fj) {
        const double area = static_cast<double>(min(p.block, p.n - fi * p.block)) *
                            static_cast<double>(min(p.block, p.n - fj * p.block));
        cells += area;
        if (p.mean != nullptr)
          sum += area * static_cast<double>(p.fine_mean[at(p.fine_mean_strides, h, fi, fj)]);
        if (p.max != nullptr) {
          const float value = p.fine_max[at(p.fine_max_strides, h, fi, fj)];
          most = isnan(value) || isnan(most) ? NAN : fmaxf(most, value);
        }
      }
    }
    if (p.mean != nullptr) p.mean[at(p.mean_strides, h, bi, bj)] = static_cast<float>(sum / cells);
    if (p.max != nullptr) p.max[at(p.max_strides, h, bi, bj)] = most;
  }
}

ScoreParams score_params(const CausalScores& scores) {
  ScoreParams p{};
  p.queries = scores.queries.data;
  p.keys = scores.keys.data;
  p.heads = scores.queries.sizes[0];
  p.group = p.heads / scores.keys.sizes[0];
  p.n = scores.queries.sizes[1];
  p.dim = scores.queries.sizes[2];
  p.window = scores.window;
  copy(scores.queries.strides, p.query_strides);
  copy(scores.keys.strides, p.key_strides);
  p.unit = score_unit(scores.scale, scores.soft_cap);
  return p;
}

void pool(const AttentionMaps& io, std::size_t level, cudaStream_t stream) {
  const MapLevel &fine = io.levels[level - 1], &coarse = io.levels[level];
  PoolParams p{};
  p.heads = io.lse.sizes[0];
  p.n = io.lse.sizes[1];
  p.block = io.block << (level - 1);
  p.fine = map_blocks(p.n, p.block);
  p.coarse = map_blocks(p.n, 2 * p.block);
  p.fine_mean = fine.mean.data;
  p.fine_max = fine.max.data;
  p.mean = coarse.mean.data;
  p.max = coarse.max.data;
  copy(fine.mean.strides, p.fine_mean_strides);
  copy(fine.max.strides, p.fine_max_strides);
  copy(coarse.mean.strides, p.mean_strides);
  copy(coarse.max.strides, p.max_strides);
  launch("attention_maps", pool_kernel,
         {striding_blocks(p.heads * p.coarse * p.coarse, kThreads), kThreads, stream}, p);
}

}  // namespace attention_maps_cu

void row_logsumexp(const RowLogSumExp& io, void* stream) {
  LseParams p{};
  p.scores = score_params(io.scores);
  p.lse = io.lse.data;
  copy(io.lse.strides, p.lse_strides);
  p.tiles = (p.scores.n + kTile - 1) / kTile;
  const unsigned blocks = grid_blocks("row_logsumexp", p.tiles * p.scores.heads);
  with_types(io.scores.queries.type, io.scores.keys.type, [&](auto query, auto key) {
    launch("row_logsumexp", lse_kernel<decltype(query), decltype(key)>,
           {blocks, kThreads, static_cast<cudaStream_t>(stream)}, p);
  });
}

void attention_maps(const AttentionMaps& io, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  MapParams p{};
  p.scores = score_params(io.scores);
  p.lse = io.lse.data;
  copy(io.lse.strides, p.lse_strides);
  p.columns = io.column_sums.data;
  copy(io.column_sums.strides, p.column_strides);
  p.block = kTile;  // any will do if no map is wanted
  if (!io.levels.empty()) {
    p.block = io.block;
    p.mean = io.levels[0].mean.data;
    p.max = io.levels[0].max.data;
    copy(io.levels[0].mean.strides, p.mean_strides);
    copy(io.levels[0].max.strides, p.max_strides);
  }
  p.blocks = map_blocks(p.scores.n, p.block);
  const bool whole = p.block <= kTile;
  p.pieces = whole ? 1 : (p.block + kTile - 1) / kTile;
  p.stripe_width = whole ? kTile / p.block * p.block : kTile;
  p.stripes = whole ? (p.scores.n + p.stripe_width - 1) / p.stripe_width : p.blocks * p.pieces;
  const unsigned blocks = grid_blocks("attention_maps", p.stripes * p.scores.heads);
  const std::int64_t pieces = whole ? 0 : p.scores.heads * p.blocks * p.stripes;
  const Scratch<double> sums(pieces, on);
  const Scratch<float> maxima(pieces, on);
  p.piece_sums = sums.data();
  p.piece_maxima = maxima.data();
  if (pieces > 0) {
    // What no block of threads writes is zero.
    check(cudaMemsetAsync(sums.data(), 0, static_cast<std::size_t>(pieces) * sizeof(double), on),
          "attention_maps");
    check(cudaMemsetAsync(maxima.data(), 0, static_cast<std::size_t>(pieces) * sizeof(float), on),
          "attention_maps");
  }
  with_types(io.scores.queries.type, io.scores.keys.type, [&](auto query, auto key) {
    using Q = decltype(query);
    using K = decltype(key);
    launch("attention_maps", whole ? maps_kernel<Q, K, true> : maps_kernel<Q, K, false>,
           {blocks, kThreads, on}, p);
  });
  if (!whole)
    launch("attention_maps", join_pieces,
           {striding_blocks(p.scores.heads * p.blocks * p.blocks, kThreads), kThreads, on}, p);
  for (std::size_t level = 1; level < io.levels.size(); ++level) pool(io, level, on);
}

}  // namespace kvatlas::kernels::cuda
