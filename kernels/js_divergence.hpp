// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/exec.hpp"
#include "base/view.hpp"

namespace kvatlas::kernels {

/// Jensen-Shannon divergence, base 2, of every pair of layers, for each head and attention row of
/// one sample (docs/pod.md): JSD(P, Q) = S((P+Q)/2) - (S(P)+S(Q))/2, S the entropy, 0 log
/// 0 = 0.
///
/// Rows are taken as they are, not normalised; results are clamped to [0, 1]. Symmetric bit for
/// bit, exactly 0 for equal rows. |error| <= 1e-5 for rows that sum to 1 (the polynomial
/// logarithm's 9e-7 and float32 sums of at most 64 terms, gathered in float64). A row with a NaN or
/// infinity gives NaN against every layer, its own included; denormals count as 0. Negative values
/// are not allowed, and give some finite number or NaN. Without tokens, rows or heads: 0, and NaN
/// for `mean` where there are no rows to average.
///
/// Cost: n_layers^2 / 2 logarithms for every head, row and token. Safe to call from several
/// threads.
struct JsDivergence {
  AnyView<4> probs;        // in  [n_layers, n_heads, q_rows, n_tokens]
  View<float, 3> mean;     // out [n_heads, n_layers, n_layers], over the rows
  View<float, 4> per_row;  // out [n_heads, q_rows, n_layers, n_layers], or no data: not wanted
};
void js_divergence(const JsDivergence& io, const Exec& exec = {});

}  // namespace kvatlas::kernels
