// SPDX-License-Identifier: Apache-2.0
// Tiles of 64 x 64 scores: 16-bit queries and keys of one type are multiplied by the tensor cores,
// others by float32 multiply-adds; both sum in float32. Log-sum-exps: a block owns 64 queries.
// Maps: a block owns a stripe of up to 64 keys made of whole blocks of the map (or a piece of one
// larger block) and walks down the queries, so every output has one owner and nothing is atomic.
#include <cfloat>

#include "kernels/attention_maps_impl.hpp"
#include "kernels/cuda_support.cuh"
#include "kernels/tile_products.cuh"

namespace kvatlas::kernels::cuda {
inline namespace attention_maps_cu {

constexpr int kTile = kTileSide, kThreads = kTileThreads, kWarp = 32;
constexpr int kChunk = 16;  // rows that one thread adds up in a column
constexpr int kFlush = 16;  // tiles after which float32 sums go to float64

struct ScoreParams {
  const void *queries, *keys;
  std::int64_t heads, group, n, dim;
  KeyWindow window;
  std::int64_t query_strides[3], key_strides[3];
  ScoreUnit unit;
  bool query_vectors, key_vectors;  // whether 16 bytes of a row can be read at once
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

/// Scores of `rows` queries from i0 on and `columns` keys from j0 on, of one head.
struct Tile {
  std::int64_t head, i0, j0;
  int rows, columns;
};

/// The keys of a tile that a query sees: columns low to end - 1.
struct SeenColumns {
  int low, end;
  __device__ SeenColumns(const ScoreParams& p, const Tile& tile, int row) {
    const std::int64_t i = tile.i0 + row;
    low = static_cast<int>(min(std::int64_t{kTile}, p.window.first_key(i) - tile.j0));
    end = row < tile.rows ? static_cast<int>(min(std::int64_t{tile.columns}, i - tile.j0 + 1)) : 0;
  }
  __device__ bool operator()(int column) const { return column >= low && column < end; }
};

template <class Q, class K>
__device__ void take_scores(const ScoreParams& p, const Tile& tile, Held held,
                            typename TileProducts<Q, K>::Shared& shared,
                            TileProducts<Q, K>& products) {
  const auto queries = [&](int row) {
    return tile.head * p.query_strides[0] + (tile.i0 + row) * p.query_strides[1];
  };
  const auto keys = [&](int row) {
    return tile.head / p.group * p.key_strides[0] + (tile.j0 + row) * p.key_strides[1];
  };
  products.take(TileRows{p.queries, queries, p.query_strides[2], p.query_vectors, tile.rows},
                TileRows{p.keys, keys, p.key_strides[2], p.key_vectors, tile.columns}, p.dim, held,
                shared);
  p.unit.apply(products.dot);
}

template <class Q, class K>
__global__ void __launch_bounds__(kThreads, 4) lse_kernel(LseParams p) {
  using P = TileProducts<Q, K>;
  __shared__ typename P::Shared shared;
  const ScoreParams& s = p.scores;
  Tile tile{};
  tile.head = blockIdx.x % s.heads;
  tile.i0 = (p.tiles - 1 - blockIdx.x / s.heads) * kTile;  // the longest rows start first
  tile.rows = static_cast<int>(min(std::int64_t{kTile}, s.n - tile.i0));
  const std::int64_t end = tile.i0 + tile.rows;
  float top[P::kRows], sum[P::kRows], total_top[P::kRows];
  double total[P::kRows];
#pragma unroll
  for (int r = 0; r < P::kRows; ++r) {
    top[r] = total_top[r] = -FLT_MAX;
    sum[r] = 0;
    total[r] = 0;
  }
  int since_flush = 0;
  Held held = Held::nothing;
  for (tile.j0 = s.window.first_key(tile.i0); end > tile.j0; tile.j0 += kTile) {
    tile.columns = static_cast<int>(min(std::int64_t{kTile}, end - tile.j0));
    P products;
    take_scores<Q, K>(s, tile, held, shared, products);
    held = Held::rows;
    const bool flush = ++since_flush == kFlush || tile.j0 + kTile >= end;
#pragma unroll
    for (int r = 0; r < P::kRows; ++r) {
      auto& scores = products.dot[r];
      const SeenColumns seen(s, tile, P::row(r));
      float most = -INFINITY;
#pragma unroll
      for (int c = 0; c < P::kColumns; ++c) {
        scores[c] = seen(P::column(c)) ? scores[c] : -INFINITY;
        most = fmaxf(most, scores[c]);
      }
      for (int offset = P::kLanes / 2; offset > 0; offset /= 2)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, offset));
      const float now = fmaxf(top[r], most);
      float added = 0;
#pragma unroll
      for (int c = 0; c < P::kColumns; ++c) added += exp2_or_0(scores[c] - now);
      for (int offset = P::kLanes / 2; offset > 0; offset /= 2)
        added += __shfl_xor_sync(~0u, added, offset);
      sum[r] = sum[r] * exp2_or_0(top[r] - now) + added;
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
  if (threadIdx.x % P::kLanes != 0) return;
#pragma unroll
  for (int r = 0; r < P::kRows; ++r) {
    if (P::row(r) < tile.rows)
      p.lse[tile.head * p.lse_strides[0] + (tile.i0 + P::row(r)) * p.lse_strides[1]] =
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

/// The tile's weights into cells[row][column]; 0 where nothing is seen.
template <class P>
__device__ void weigh(const MapParams& p, const Tile& tile, const P& products, TileCells& cells) {
#pragma unroll
  for (int r = 0; r < P::kRows; ++r) {
    const int row = P::row(r);
    const SeenColumns seen(p.scores, tile, row);
    float lse = 0;
    if (row < tile.rows) {
      lse = p.lse[tile.head * p.lse_strides[0] + (tile.i0 + row) * p.lse_strides[1]];
      lse = isfinite(lse) ? static_cast<float>(static_cast<double>(lse) * kLog2E) : NAN;
    }
#pragma unroll
    for (int c = 0; c < P::kColumns; ++c) {
      const int column = P::column(c);
      cells[row][column] = seen(column) ? exp2_or_0(products.dot[r][c] - lse) : 0.0f;
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
  /// Where the maximum is, after add_columns.
  __device__ int second() const { return end - first > 1 ? first + 1 : first; }
};

/// Replaces each column of a chunk by its sum, in the chunk's first row, and its maximum, in the
/// second if there is one. A block is `high` rows, the last one maybe less.
__device__ void add_columns(int rows, int high, TileCells& cells) {
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
    if (chunk.end - chunk.first > 1) cells[chunk.second()][column] = most;
  }
}

/// One column's sum and maximum over the tile, after add_columns.
struct Column {
  float sum, most;
};
__device__ Column whole_column(int column, int rows, int high, const TileCells& cells) {
  const int chunks = (rows + high - 1) / high * ((high + kChunk - 1) / kChunk);
  Column all{0, 0};
  for (int k = 0; k < chunks; ++k) {
    const RowChunk chunk(k, high, rows);
    if (chunk.first >= chunk.end) continue;
    all.sum += cells[chunk.first][column];
    all.most = fmaxf(all.most, cells[chunk.second()][column]);
  }
  return all;
}

/// Writes the map's blocks in a tile, after add_columns: small ones a thread each, others a warp
/// each.
__device__ void write_tile_blocks(const MapParams& p, const Tile& tile, const TileCells& cells) {
  const int side = static_cast<int>(p.block);
  const int down = (tile.rows + side - 1) / side, across = (tile.columns + side - 1) / side;
  const int per_block = (side + kChunk - 1) / kChunk;
  const bool alone = side <= 8;
  const int lanes = alone ? 1 : kWarp;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  for (int item = static_cast<int>(threadIdx.x) / lanes; item < down * across;
       item += kThreads / lanes) {
    const int bi = item / across, bj = item % across;
    float sum = 0, most = 0;
    for (int column = bj * side + lane; column < min(tile.columns, (bj + 1) * side);
         column += lanes) {
      for (int k = 0; k < per_block; ++k) {
        const RowChunk chunk(bi * per_block + k, side, tile.rows);
        if (chunk.first >= chunk.end) continue;
        sum += cells[chunk.first][column];
        most = fmaxf(most, cells[chunk.second()][column]);
      }
    }
    for (int offset = lanes / 2; offset > 0; offset /= 2) {
      sum += __shfl_xor_sync(~0u, sum, offset);
      most = fmaxf(most, __shfl_xor_sync(~0u, most, offset));
    }
    if (lane == 0)
      write_block(p, tile.head, tile.i0 / side + bi, tile.j0 / side + bj, static_cast<double>(sum),
                  most);
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
__global__ void __launch_bounds__(kThreads, 4) maps_kernel(MapParams p) {
  using P = TileProducts<Q, K>;
  __shared__ typename P::Shared shared;
  __shared__ double sums[kThreads / kWarp];
  __shared__ float maxima[kThreads / kWarp];
  const ScoreParams& s = p.scores;
  TileCells& cells = shared.cells;
  Tile tile{};
  tile.head = blockIdx.x % s.heads;
  const std::int64_t stripe = blockIdx.x / s.heads;  // the first stripes have the most rows
  std::int64_t end;                                  // of the stripe's keys
  if (kWhole) {
    tile.j0 = stripe * p.stripe_width;
    end = min(s.n, tile.j0 + p.stripe_width);
  } else {
    const std::int64_t block = stripe / p.pieces;
    tile.j0 = block * p.block + stripe % p.pieces * kTile;
    end = min(min(s.n, tile.j0 + kTile), (block + 1) * p.block);
    if (tile.j0 >= end) return;  // a piece behind the last key
  }
  tile.columns = static_cast<int>(end - tile.j0);
  const std::int64_t last_row = s.window.end_query(end - 1, s.n);
  double total = 0;  // of column threadIdx.x
  double block_total = 0;
  float block_most = 0;
  Held held = Held::nothing;
  tile.i0 = tile.j0;
  while (tile.i0 < last_row) {
    const std::int64_t row_block = tile.i0 / p.block;
    const std::int64_t stop = kWhole
                                  ? min(s.n, tile.i0 + p.stripe_width)
                                  : min(min(last_row, tile.i0 + kTile), (row_block + 1) * p.block);
    tile.rows = static_cast<int>(stop - tile.i0);
    P products;
    take_scores<Q, K>(s, tile, held, shared, products);
    held = Held::columns;
    weigh(p, tile, products, cells);
    __syncthreads();
    const int high = kWhole ? static_cast<int>(p.block) : kTile;
    add_columns(tile.rows, high, cells);
    __syncthreads();
    if (threadIdx.x < tile.columns) {
      const Column column = whole_column(static_cast<int>(threadIdx.x), tile.rows, high, cells);
      total += static_cast<double>(column.sum);
      block_total += static_cast<double>(column.sum);
      block_most = fmaxf(block_most, column.most);
    }
    if (kWhole) {
      write_tile_blocks(p, tile, cells);
    } else if (stop == last_row || stop == (row_block + 1) * p.block) {
      block_reduce(&block_total, &block_most, sums, maxima);
      if (threadIdx.x == 0) {
        const std::int64_t at = (tile.head * p.blocks + row_block) * p.stripes + stripe;
        p.piece_sums[at] = block_total;
        p.piece_maxima[at] = block_most;
      }
      block_total = 0;
      block_most = 0;
    }
    __syncthreads();
    tile.i0 = stop;
  }
  if (p.columns != nullptr && threadIdx.x < tile.columns)
    p.columns[tile.head * p.column_strides[0] + (tile.j0 + threadIdx.x) * p.column_strides[1]] =
        static_cast<float>(total);
  if (!kWhole) return;
  // Blocks of rows that see no key of the stripe.
  const std::int64_t across = (tile.columns + p.block - 1) / p.block;
  const std::int64_t above = tile.j0 / p.block, below = (tile.i0 + p.block - 1) / p.block;
  for (std::int64_t e = threadIdx.x; e < p.blocks * across; e += kThreads) {
    const std::int64_t bi = e / across;
    if (bi < above || bi >= below)
      write_block(p, tile.head, bi, tile.j0 / p.block + e % across, 0, 0);
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
  p.query_vectors = in_vectors(scores.queries);
  p.key_vectors = in_vectors(scores.keys);
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
