// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/exec.hpp"
#include "base/key_window.hpp"
#include "base/view.hpp"

namespace kvatlas::kernels {

/// Which keys j are proximal to row i: j < initial or i - recent < j <= i. The others up to i are
/// distant.
struct Proximity {
  std::int64_t initial = 4, recent = 1024;
  bool operator==(const Proximity&) const = default;
};

/// Causal attention rows of one layer, and what a grid of proximities makes of them
/// (docs/simlayerkv.md, docs/pod.md). The last row is the last token, and row_step tokens lie from
/// one row to the next: with a step of 1 they are the last q_rows tokens. The row of token i sees
/// the keys j <= i that the window lets it see. Query head h reads key head h /
/// (n_heads / n_kv_heads). Scores are scale * q.k, and with a soft cap c they become c * tanh(score
/// / c).
///
/// Weights, masses and log-sum-exps (natural logarithm; -inf where no key is in the set) have a
/// relative, the latter an absolute, error of at most 2e-6 plus that of the largest score:
/// (head_dim + 4) * 2^-24 * scale * sum |q_k k_k|, with a soft cap also 3e-7 * soft_cap. Weights
/// below 2^-126 of the row's largest may count as 0, and the log-sum-exp of a set that has no
/// others may so be -inf; those of unseen keys are exactly 0; a mass without distant keys is
/// exactly 1. A NaN or +inf score makes its row NaN, and so do scores that are all -inf; other rows
/// stay as they are. Zero queries give uniform rows.
///
/// With sinks, each row also sees a key that is none: a logit of its head that takes a share and
/// gives nothing. It costs no cache, so it counts as proximal; weights are those of the real keys
/// and sum to less than 1.
///
/// Cost: n_heads * q_rows * n_tokens * head_dim multiply-adds, one exponential a score, one read of
/// the keys. Scratch: n_tokens / 64 floats a row. Safe to call from several threads.
struct LastRows {
  AnyView<3> queries;  // in  [n_heads, q_rows, head_dim]
  AnyView<3> keys;     // in  [n_kv_heads, n_tokens, head_dim]
  std::int64_t row_step = 1;
  float scale = 1;
  float soft_cap = 0;  // 0: none
  KeyWindow window = {};
  View<const float, 1> sinks;  // in  [n_heads], or no data: none
  View<float, 3> probs;        // out [n_heads, q_rows, n_tokens], or no data: not wanted
  std::vector<Proximity> grid;
  // out [grid, n_heads, q_rows], any of them without data where it is not wanted: the sum over the
  // proximal keys, and the log-sum-exps of both sets
  View<float, 3> mass, proximal_lse, distant_lse;

  std::int64_t token_of(std::int64_t row) const {
    return keys.sizes[1] - 1 - (queries.sizes[1] - 1 - row) * row_step;
  }
};
void last_rows(const LastRows& io, const Exec& exec = {});

}  // namespace kvatlas::kernels
