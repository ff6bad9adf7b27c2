// SPDX-License-Identifier: Apache-2.0
// Maps of a whole layer's attention without attention: block means, block maxima and column sums
// from queries, keys and row log-sum-exps, tile by tile (docs/kernels.md).
#pragma once

#include <cstdint>
#include <vector>

#include "base/exec.hpp"
#include "base/key_window.hpp"
#include "base/view.hpp"

namespace kvatlas::kernels {

/// The scores of a layer: s(h, i, j) = scale * queries[h, i] . keys[h / group, j] for j <= i, group
/// being n_heads / n_kv_heads; with soft_cap > 0, soft_cap * tanh(s / soft_cap); of these only
/// the keys that the window lets a query see.
struct CausalScores {
  AnyView<3> queries;  // in [n_heads, n_tokens, head_dim], after RoPE
  AnyView<3> keys;     // in [n_kv_heads, n_tokens, head_dim], after RoPE
  float scale = 1;
  KeyWindow window = {};
  float soft_cap = 0;  // 0: none
};

/// lse[h, i] = log sum_j exp s(h, i, j), natural. |error| <= 2e-6 + that of the float32 scores
/// (head_dim * 2^-24 * scale * sum |q k|). No n x n memory; n_tokens^2 * head_dim / 2 multiply-adds
/// a head. A score of NaN or +inf makes its row NaN; one of -inf weighs nothing, and a row of those
/// alone is -inf.
struct RowLogSumExp {
  CausalScores scores;
  View<float, 2> lse;  // out [n_heads, n_tokens]
};

/// Blocks a side of a map of n_tokens with blocks of `block` tokens; the last one may be partial.
constexpr std::int64_t map_blocks(std::int64_t n_tokens, std::int64_t block) {
  return (n_tokens + block - 1) / block;
}

/// The smallest power of two that gives at most `most` blocks a side.
constexpr std::int64_t finest_map_block(std::int64_t n_tokens, std::int64_t most = 512) {
  std::int64_t block = 1;
  while (map_blocks(n_tokens, block) > most) block *= 2;
  return block;
}

/// One level of the pyramid; either view may be left empty (null data), then it is not written.
struct MapLevel {
  View<float, 3> mean;  // out [n_heads, blocks, blocks] (query block, key block)
  View<float, 3> max;   // out, likewise
};

/// With A[h, i, j] = exp(s(h, i, j) - lse[h, i]) where j is seen and 0 elsewhere: the mean (over
/// the cells that exist, zeros counted) and the maximum of every block of A, and the sums of its
/// columns. Level l has blocks of block << l tokens and is pooled from level l - 1; levels may be
/// empty. Each value is within 1e-6 + 1e-4 |value| as long as the float32 scores are within 5e-5 of
/// the true ones; column sums are added in float64. Cost: one Q K^T over the lower triangle and an
/// exponential a cell; memory O(n_tokens) a thread. A cell whose score is NaN or +inf, or whose lse
/// is not finite, is not finite and makes so every block and column that it enters, and no other; a
/// score of -inf weighs nothing.
struct AttentionMaps {
  CausalScores scores;
  View<const float, 2> lse;  // in [n_heads, n_tokens]
  std::int64_t block = 64;   // tokens of the finest level's blocks, at least 1
  std::vector<MapLevel> levels;
  View<float, 2> column_sums;  // out [n_heads, n_tokens]; may be left empty
};

/// Thread safe as long as outputs differ. Results do not depend on the number of threads; they
/// differ in the last digits between instruction sets. Throws Error: `usage` for shapes that do not
/// fit together.
void row_logsumexp(const RowLogSumExp& io, const Exec& exec = {});
void attention_maps(const AttentionMaps& io, const Exec& exec = {});

}  // namespace kvatlas::kernels
