// SPDX-License-Identifier: Apache-2.0
// What the bodies of attention_maps share.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/attention_maps.hpp"

namespace kvatlas::kernels {

/// The first key that row i sees.
inline std::int64_t first_key(const CausalScores& scores, std::int64_t i) {
  return scores.window.first_key(i);
}

/// One past the last row that sees key j.
inline std::int64_t end_row(const CausalScores& scores, std::int64_t j) {
  return scores.window.end_query(j, scores.queries.sizes[1]);
}

/// The larger of the two; NaN if one of them is NaN.
inline double max_or_nan(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::nan("");
  return std::max(a, b);
}

namespace reference {
void row_logsumexp(const RowLogSumExp& io);
void attention_maps(const AttentionMaps& io);
/// Fills the levels from 1 on of head h from level 0. The CPU body calls it too, because this step
/// costs next to nothing.
void pool_levels(const AttentionMaps& io, std::int64_t h);
}  // namespace reference

namespace cuda {
void row_logsumexp(const RowLogSumExp& io, void* stream);
void attention_maps(const AttentionMaps& io, void* stream);
}  // namespace cuda

}  // namespace kvatlas::kernels
