// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/exec.hpp"
#include "base/view.hpp"

namespace kvatlas::kernels {

/// How many of the k largest scores of all layers, heads and positions lie in each layer, for every
/// k of a list. Equal scores go to the lower layer (then head, then position, which changes no
/// count). Exact. NaN ranks below everything, -0 equals 0. A selection, not a sort: two reads of
/// the scores for the whole list, and memory for those that share twelve leading bits with a k-th
/// largest. Safe to call from several threads.
struct TopCounts {
  View<const float, 3> scores;   // in  [n_layers, n_heads, n_positions]
  std::vector<std::int64_t> k;   // in  each 0 to the number of scores
  View<std::int64_t, 2> counts;  // out [k, n_layers]; row i sums to k[i]
};
void top_counts(const TopCounts& io, const Exec& exec = {});

}  // namespace kvatlas::kernels
