// SPDX-License-Identifier: Apache-2.0
// CPU body. Lanes are rows, not keys: the queries that share a key head are packed transposed and
// each key element is broadcast, so keys are read as they lie, and maxima, exponentials and sums
// need no work across lanes. A task is one key head and a chunk of keys; tile by tile it keeps a
// running maximum and, for each segment that the grid's boundaries cut a row into, a sum. Tiles
// that no boundary crosses (nearly all) cost one sum. Chunks are joined in float64.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/last_rows.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/last_rows_impl.hpp"
#include "kernels/load-inl.hpp"
#include "kernels/math-inl.hpp"
#include "kernels/tanh-inl.hpp"

#ifndef KVATLAS_LAST_ROWS_SHARED
#define KVATLAS_LAST_ROWS_SHARED
namespace kvatlas::kernels {

constexpr std::int64_t kTile = 64;    // keys whose scores are in cache at a time
constexpr std::int64_t kChunk = 512;  // keys of a task
constexpr std::int64_t kBlockVectors = 3;
constexpr std::int64_t kMaxLanes = 16;
constexpr float kLog2E = 1.4426950408889634f;

// The rows of one key head: its query heads' rows, one after the other, `padded` to whole vectors.
struct RowPlan {
  std::int64_t rows, padded, head_dim, n_tokens, first_row_token;
  float soft_cap;
  std::int64_t segments;              // a row's keys are cut at boundaries[0..segments]
  const std::int32_t *token, *first;  // [padded] the row's own position, and its first key
  std::int64_t last_first;            // the last of the first keys
  const std::int32_t*
      bounds;  // [segments + 1, padded], ascending for each row, from 0 to its position + 1
};

// What a task reads and leaves behind.
struct ChunkTask {
  const float* queries;  // in  [head_dim, padded], scaled so that scores are in units of log2
  AnyView<3> keys;       // in  of all heads
  std::int64_t head, begin, end;
  float* scratch;    // [kTile, 3 vectors] scores, then [kTile, head_dim] keys
  float* highest;    // out [padded] the largest score
  float* sums;       // out [segments, padded] of 2^(score - highest)
  float* tile_base;  // out [n_tiles of the chunk, padded] what was subtracted from a tile's scores
  float* probs;      // out row 0 of the first query head: 2^(score - tile_base), or null
  std::int64_t probs_stride[3];
  std::int64_t q_rows;
};

}  // namespace kvatlas::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {

/// Packs the scaled queries of one key head: to[k, row].
void PackQueries(const AnyView<3>& queries, std::int64_t first_head, const RowPlan& plan,
                 float factor, float* row, float* to) {
  const std::int64_t q_rows = queries.sizes[1];
  for (std::int64_t m = 0; m < plan.padded; ++m) {
    if (m < plan.rows) {
      const std::int64_t offset =
          (first_head + m / q_rows) * queries.strides[0] + m % q_rows * queries.strides[1];
      copy_as_float(queries.data, queries.type, offset, queries.strides[2], plan.head_dim, row);
    }
    for (std::int64_t k = 0; k < plan.head_dim; ++k)
      to[k * plan.padded + m] = m < plan.rows ? factor * row[k] : 0;
  }
}

/// Dot products of kVectors vectors of rows with kKeys keys.
template <int kVectors, int kKeys>
HWY_INLINE void dot_block(const float* HWY_RESTRICT queries, std::int64_t padded,
                          const float* HWY_RESTRICT keys, std::int64_t key_stride,
                          std::int64_t head_dim, float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V sums[kKeys][kVectors];
#pragma GCC unroll 8
  for (int j = 0; j < kKeys; ++j)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) sums[j][v] = hn::Zero(d);
  for (std::int64_t k = 0; k < head_dim; ++k) {
    V q[kVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) q[v] = hn::Load(d, queries + k * padded + v * lanes);
#pragma GCC unroll 8
    for (int j = 0; j < kKeys; ++j) {
      const V key = hn::Set(d, keys[j * key_stride + k]);
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) sums[j][v] = hn::MulAdd(q[v], key, sums[j][v]);
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < kKeys; ++j)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) hn::Store(sums[j][v], d, to + (j * kVectors + v) * lanes);
}

template <int kVectors>
HWY_INLINE void dot_tile(const float* queries, std::int64_t padded, const float* keys,
                         std::int64_t key_stride, std::int64_t head_dim, std::int64_t count,
                         float* to) {
  constexpr int kKeys = HWY_TARGET == HWY_AVX3 ? 8 : 4;  // as many sums as the registers hold
  const std::int64_t width =
      kVectors * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  std::int64_t j = 0;
  for (; j + kKeys <= count; j += kKeys)
    dot_block<kVectors, kKeys>(queries, padded, keys + j * key_stride, key_stride, head_dim,
                               to + j * width);
  for (; j < count; ++j)
    dot_block<kVectors, 1>(queries, padded, keys + j * key_stride, key_stride, head_dim,
                           to + j * width);
}

/// One vector of rows of a tile, scores [count, width] in place: caps and masks them, raises
/// `highest`, makes them 2^(score - highest) and adds them to the segments' sums.
HWY_INLINE void tile_rows(const RowPlan& plan, std::int64_t row, std::int64_t begin,
                          std::int64_t count, float* HWY_RESTRICT scores, std::int64_t width,
                          float* HWY_RESTRICT highest, float* HWY_RESTRICT sums) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lowest = hn::Set(d, -hwy::HighestValue<float>());
  const auto minus_inf = hn::BitCast(d, hn::Set(di, static_cast<std::int32_t>(0xff800000u)));
  const auto key = [&](std::int64_t j)
                       HWY_ATTR { return hn::Set(di, static_cast<std::int32_t>(begin + j)); };
  if (plan.soft_cap > 0) {
    const auto cap = hn::Set(d, plan.soft_cap * kLog2E);
    for (std::int64_t j = 0; j < count; ++j) {
      float* score = scores + j * width;
      hn::Store(hn::Mul(cap, tanh(d, hn::Load(d, score))), d, score);
    }
  }
  const bool all_seen = begin + count - 1 <= plan.first_row_token && begin >= plan.last_first;
  if (!all_seen) {
    const auto token = hn::Load(di, plan.token + row);
    const auto first = hn::Load(di, plan.first + row);
    for (std::int64_t j = 0; j < count; ++j) {
      float* score = scores + j * width;
      const auto hidden = hn::Or(hn::Gt(key(j), token), hn::Lt(key(j), first));
      hn::Store(hn::IfThenElse(hn::RebindMask(d, hidden), minus_inf, hn::Load(d, score)), d, score);
    }
  }

  const auto old_base = hn::Load(d, highest + row);
  auto base0 = hn::Max(old_base, lowest), base1 = base0;
  std::int64_t j = 0;
  for (; j + 2 <= count; j += 2) {
    base0 = hn::Max(base0, hn::Load(d, scores + j * width));
    base1 = hn::Max(base1, hn::Load(d, scores + (j + 1) * width));
  }
  if (j < count) base0 = hn::Max(base0, hn::Load(d, scores + j * width));
  const auto base = hn::Max(base0, base1);
  hn::Store(base, d, highest + row);
  if (!hn::AllTrue(d, hn::Eq(base, old_base))) {
    const auto shrink = exp2(d, hn::Sub(old_base, base));
    for (std::int64_t s = 0; s < plan.segments; ++s) {
      float* sum = sums + s * plan.padded + row;
      hn::Store(hn::Mul(hn::Load(d, sum), shrink), d, sum);
    }
  }

  auto sum0 = hn::Zero(d), sum1 = sum0;
  for (j = 0; j + 2 <= count; j += 2) {
    const auto e0 = exp2(d, hn::Sub(hn::Load(d, scores + j * width), base));
    const auto e1 = exp2(d, hn::Sub(hn::Load(d, scores + (j + 1) * width), base));
    hn::Store(e0, d, scores + j * width);
    hn::Store(e1, d, scores + (j + 1) * width);
    sum0 = hn::Add(sum0, e0);
    sum1 = hn::Add(sum1, e1);
  }
  if (j < count) {
    const auto e = exp2(d, hn::Sub(hn::Load(d, scores + j * width), base));
    hn::Store(e, d, scores + j * width);
    sum0 = hn::Add(sum0, e);
  }
  const auto whole = hn::Add(sum0, sum1);
  for (std::int64_t s = 0; s < plan.segments; ++s) {
    const auto low = hn::Load(di, plan.bounds + s * plan.padded + row);
    const auto high = hn::Load(di, plan.bounds + (s + 1) * plan.padded + row);
    const auto tile_begin = key(0), tile_end = key(count);
    // No row has keys of this tile in the segment; or every row has all of them there.
    if (hn::AllFalse(di, hn::And(hn::Lt(low, tile_end), hn::Gt(high, tile_begin)))) continue;
    float* sum = sums + s * plan.padded + row;
    auto added = whole;
    const auto last_seen =
        hn::Min(tile_end, hn::Add(hn::Load(di, plan.token + row), hn::Set(di, 1)));
    if (!hn::AllFalse(di, hn::Or(hn::Gt(low, tile_begin), hn::Lt(high, last_seen)))) {
      added = hn::Zero(d);
      for (j = 0; j < count; ++j) {
        const auto in = hn::And(hn::Lt(low, key(j + 1)), hn::Lt(key(j), high));
        added = hn::Add(added,
                        hn::IfThenElseZero(hn::RebindMask(d, in), hn::Load(d, scores + j * width)));
      }
    }
    hn::Store(hn::Add(hn::Load(d, sum), added), d, sum);
  }
}

void RowChunk(const RowPlan& plan, const ChunkTask& task) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t m = 0; m < plan.padded; m += lanes) {
    hn::Store(hn::Set(d, -hwy::HighestValue<float>()), d, task.highest + m);
    for (std::int64_t s = 0; s < plan.segments; ++s)
      hn::Store(hn::Zero(d), d, task.sums + s * plan.padded + m);
  }
  float* scores = task.scratch;
  float* copied = task.scratch + kTile * kBlockVectors * kMaxLanes;
  const AnyView<3>& keys = task.keys;
  const bool as_they_lie = keys.type == DType::f32 && keys.strides[2] == 1;
  for (std::int64_t begin = task.begin; begin < task.end; begin += kTile) {
    const std::int64_t count = task.end - begin < kTile ? task.end - begin : kTile;
    const std::int64_t offset = task.head * keys.strides[0] + begin * keys.strides[1];
    const float* tile = copied;
    std::int64_t key_stride = plan.head_dim;
    if (as_they_lie) {
      tile = static_cast<const float*>(keys.data) + offset;
      key_stride = keys.strides[1];
    } else {
      for (std::int64_t j = 0; j < count; ++j)
        copy_as_float(keys.data, keys.type, offset + j * keys.strides[1], keys.strides[2],
                      plan.head_dim, copied + j * plan.head_dim);
    }
    float* tile_base = task.tile_base + (begin - task.begin) / kTile * plan.padded;
    for (std::int64_t m = 0; m < plan.padded;) {
      const std::int64_t left = (plan.padded - m) / lanes;
      const std::int64_t vectors = left < kBlockVectors ? left : kBlockVectors;
      const std::int64_t width = vectors * lanes;
      const float* queries = task.queries + m;
      if (vectors == 3)
        dot_tile<3>(queries, plan.padded, tile, key_stride, plan.head_dim, count, scores);
      else if (vectors == 2)
        dot_tile<2>(queries, plan.padded, tile, key_stride, plan.head_dim, count, scores);
      else
        dot_tile<1>(queries, plan.padded, tile, key_stride, plan.head_dim, count, scores);
      for (std::int64_t v = 0; v < vectors; ++v) {
        tile_rows(plan, m + v * lanes, begin, count, scores + v * lanes, width, task.highest,
                  task.sums);
        hn::Store(hn::Load(d, task.highest + m + v * lanes), d, tile_base + m + v * lanes);
      }
      if (task.probs != nullptr)
        for (std::int64_t i = 0; i < width && m + i < plan.rows; ++i) {
          float* to = task.probs + (m + i) / task.q_rows * task.probs_stride[0] +
                      (m + i) % task.q_rows * task.probs_stride[1] + begin * task.probs_stride[2];
          for (std::int64_t j = 0; j < count; ++j)
            to[j * task.probs_stride[2]] = scores[j * width + i];
        }
      m += width;
    }
  }
}

std::int64_t RowLanes() { return static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>())); }

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <limits>

#include "base/parallel.hpp"
#include "kernels/aligned_impl.hpp"
#include "kernels/check.hpp"
#include "kernels/dispatch.hpp"

namespace kvatlas::kernels {
HWY_EXPORT(PackQueries);
HWY_EXPORT(RowChunk);
HWY_EXPORT(RowLanes);
namespace {

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

/// The positions at which the grid cuts row `i`, from 0 to i + 1.
std::vector<std::int64_t> cuts(const std::vector<Proximity>& grid, std::int64_t i) {
  std::vector<std::int64_t> all = {0, i + 1};
  for (const Proximity& proximity : grid) {
    const auto [begin, end] = distant_range(proximity, i);
    all.push_back(begin);
    all.push_back(end);
  }
  std::sort(all.begin(), all.end());
  return all;
}

void last_rows_cpu(const LastRows& io) {
  const auto [n_heads, q_rows, head_dim] = io.queries.sizes;
  const std::int64_t n_kv_heads = io.keys.sizes[0], n_tokens = io.keys.sizes[1];
  if (n_heads == 0 || q_rows == 0) return;
  const std::int64_t group = n_heads / n_kv_heads, rows_a_head = q_rows;
  const std::int64_t lanes = HWY_DYNAMIC_DISPATCH(RowLanes)();
  RowPlan plan{};
  plan.rows = group * q_rows;
  plan.padded = (plan.rows + lanes - 1) / lanes * lanes;
  plan.head_dim = head_dim;
  plan.n_tokens = n_tokens;
  plan.first_row_token = io.token_of(0);
  plan.soft_cap = io.soft_cap;

  // Every row's cuts; a cut that all rows share with its neighbour is dropped.
  std::vector<std::vector<std::int64_t>> row_cuts;
  for (std::int64_t row = 0; row < q_rows; ++row)
    row_cuts.push_back(cuts(io.grid, io.token_of(row)));
  for (std::size_t c = row_cuts[0].size() - 1; c > 0; --c)
    if (std::all_of(row_cuts.begin(), row_cuts.end(),
                    [c](const auto& all) { return all[c] == all[c - 1]; }))
      for (auto& all : row_cuts) all.erase(all.begin() + static_cast<std::ptrdiff_t>(c));
  plan.segments = static_cast<std::int64_t>(row_cuts[0].size()) - 1;
  const auto token = aligned<std::int32_t>(plan.padded);
  const auto first_keys = aligned<std::int32_t>(plan.padded);
  const auto bounds = aligned<std::int32_t>((plan.segments + 1) * plan.padded);
  for (std::int64_t m = 0; m < plan.padded; ++m) {
    const std::int64_t row = m < plan.rows ? m % q_rows : q_rows - 1;
    token[size(m)] = static_cast<std::int32_t>(io.token_of(row));
    first_keys[size(m)] = static_cast<std::int32_t>(io.window.first_key(io.token_of(row)));
    for (std::int64_t c = 0; c <= plan.segments; ++c)
      bounds[size(c * plan.padded + m)] = static_cast<std::int32_t>(row_cuts[size(row)][size(c)]);
  }
  plan.token = token.get();
  plan.first = first_keys.get();
  plan.last_first = io.window.first_key(n_tokens - 1);
  plan.bounds = bounds.get();

  const float factor = io.soft_cap > 0 ? io.scale / io.soft_cap : io.scale * kLog2E;
  const auto queries = aligned<float>(n_kv_heads * head_dim * plan.padded);
  parallel_for(n_kv_heads, [&](std::int64_t head, int) {
    std::vector<float> row(size(plan.head_dim));
    HWY_DYNAMIC_DISPATCH(PackQueries)
    (io.queries, head * group, plan, factor, row.data(),
     queries.get() + head * plan.head_dim * plan.padded);
  });

  // Keys that no row sees are left out.
  const std::int64_t first = io.window.first_key(plan.first_row_token) / kTile * kTile;
  const std::int64_t chunks = (n_tokens - first + kChunk - 1) / kChunk;
  constexpr std::int64_t kTilesAChunk = kChunk / kTile;
  const auto highest = aligned<float>(n_kv_heads * chunks * plan.padded);
  const auto sums = aligned<float>(n_kv_heads * chunks * plan.segments * plan.padded);
  const auto tile_base = aligned<float>(n_kv_heads * chunks * kTilesAChunk * plan.padded);
  parallel_for(n_kv_heads * chunks, [&](std::int64_t index, int) {
    const auto scratch = aligned<float>(kTile * (kBlockVectors * kMaxLanes + plan.head_dim));
    ChunkTask task{};
    task.head = index / chunks;
    task.queries = queries.get() + task.head * plan.head_dim * plan.padded;
    task.keys = io.keys;
    task.begin = first + index % chunks * kChunk;
    task.end = std::min(plan.n_tokens, task.begin + kChunk);
    task.scratch = scratch.get();
    task.highest = highest.get() + index * plan.padded;
    task.sums = sums.get() + index * plan.segments * plan.padded;
    task.tile_base = tile_base.get() + index * kTilesAChunk * plan.padded;
    task.q_rows = rows_a_head;
    if (io.probs.data) {
      task.probs = io.probs.at(task.head * group);
      std::copy_n(io.probs.strides.begin(), 3, task.probs_stride);
    }
    HWY_DYNAMIC_DISPATCH(RowChunk)(plan, task);
  });

  // Join the chunks of each row.
  parallel_for(n_heads * rows_a_head, [&](std::int64_t index, int) {
    const std::int64_t head = index / rows_a_head, row = index % rows_a_head,
                       kv_head = head / group;
    const std::int64_t m = head % group * rows_a_head + row;
    const auto chunk_value = [&](const float* of, std::int64_t chunk, std::int64_t s,
                                 std::int64_t each) {
      return of[((kv_head * chunks + chunk) * each + s) * plan.padded + m];
    };
    float top = -std::numeric_limits<float>::max();
    for (std::int64_t c = 0; c < chunks; ++c)
      top = std::max(top, chunk_value(highest.get(), c, 0, 1));
    const double sink = io.sinks.data ? static_cast<double>(io.sinks(head)) * kLog2E : kNoSink;
    const double shift = std::max(static_cast<double>(top), sink);
    const double of_sink = io.sinks.data ? std::exp2(sink - shift) : 0;
    std::vector<double> segment(size(plan.segments));
    double total = of_sink;
    for (std::int64_t c = 0; c < chunks; ++c) {
      const double factor_of_chunk =
          std::exp2(static_cast<double>(chunk_value(highest.get(), c, 0, 1)) - shift);
      for (std::int64_t s = 0; s < plan.segments; ++s)
        segment[size(s)] +=
            factor_of_chunk * static_cast<double>(chunk_value(sums.get(), c, s, plan.segments));
    }
    for (double value : segment) total += value;
    const std::int64_t i = io.token_of(row);
    for (std::size_t entry = 0; entry < io.grid.size(); ++entry) {
      const auto [begin, end] = distant_range(io.grid[entry], i);
      double proximal = of_sink, distant = 0;
      for (std::int64_t s = 0; s < plan.segments; ++s) {
        const bool inside =
            row_cuts[size(row)][size(s)] >= begin && row_cuts[size(row)][size(s + 1)] <= end;
        (inside ? distant : proximal) += segment[size(s)];
      }
      write_proximity(io, static_cast<std::int64_t>(entry), head, row, proximal, distant,
                      shift / static_cast<double>(kLog2E));
    }
    if (io.probs.data == nullptr) return;
    float* probs = io.probs.at(head, row);
    const std::int64_t stride = io.probs.strides[2];
    const std::int64_t seen_begin = io.window.first_key(i);
    for (std::int64_t j = 0; j < seen_begin; ++j) probs[j * stride] = 0;
    for (std::int64_t j = i + 1; j < plan.n_tokens; ++j) probs[j * stride] = 0;
    for (std::int64_t begin = seen_begin / kTile * kTile; begin <= i; begin += kTile) {
      const std::int64_t tile = (begin - first) / kTile;
      const auto base = static_cast<double>(
          chunk_value(tile_base.get(), tile / kTilesAChunk, tile % kTilesAChunk, kTilesAChunk));
      const auto norm = static_cast<float>(std::exp2(base - shift) / total);
      const std::int64_t end = std::min(i + 1, begin + kTile);
      for (std::int64_t j = std::max(begin, seen_begin); j < end; ++j) probs[j * stride] *= norm;
    }
  });
}

}  // namespace

void last_rows(const LastRows& io, const Exec& exec) {
  require_array("queries", io.queries);
  require_array("keys", io.keys);
  const auto [n_heads, q_rows, head_dim] = io.queries.sizes;
  const auto [n_kv_heads, n_tokens, key_dim] = io.keys.sizes;
  if (key_dim != head_dim)
    fail(ErrorCode::usage, "keys have head_dim ", key_dim, ", the queries ", head_dim);
  require_shared_heads(n_heads, n_kv_heads);
  require_range("n_tokens", n_tokens, 0, std::numeric_limits<std::int32_t>::max() / 2);
  require_range("row_step", io.row_step, 1, std::numeric_limits<std::int32_t>::max());
  require_range("q_rows", q_rows, 0, (n_tokens + io.row_step - 1) / io.row_step);
  require_range("window", io.window.size, 0, std::numeric_limits<std::int64_t>::max());
  require_soft_cap(io.soft_cap);
  require_same_memory("keys", io.keys.memory, io.queries.memory);
  if (io.sinks.data) {
    require_shape("sinks", io.sinks.sizes, {n_heads});
    require_same_memory("sinks", io.sinks.memory, io.queries.memory);
  }
  if (io.probs.data) {
    require_shape("probs", io.probs.sizes, {n_heads, q_rows, n_tokens});
    require_same_memory("probs", io.probs.memory, io.queries.memory);
  }
  for (const Proximity& proximity : io.grid) {
    require_range("initial", proximity.initial, 0, std::numeric_limits<std::int64_t>::max());
    require_range("recent", proximity.recent, 0, std::numeric_limits<std::int64_t>::max());
  }
  for (const View<float, 3>* out : {&io.mass, &io.proximal_lse, &io.distant_lse})
    if (out->data) {
      require_shape("a statistic of the grid", out->sizes,
                    {static_cast<std::int64_t>(io.grid.size()), n_heads, q_rows});
      require_same_memory("a statistic of the grid", out->memory, io.queries.memory);
    }
  run_body(choose(exec, io.queries.memory), exec, io, reference::last_rows, last_rows_cpu,
           KVATLAS_CUDA_BODY(last_rows));
}

}  // namespace kvatlas::kernels
#endif
