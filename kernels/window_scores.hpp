// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/exec.hpp"
#include "base/view.hpp"

namespace kvatlas::kernels {

enum class Pooling : std::uint8_t { average, maximum };

/// DynamicKV's and SnapKV's score of every prompt position of one layer (docs/dynamickv.md):
/// the mean of the last `window` attention rows, pooled over `kernel` positions with stride 1 (an
/// average counts the zero padding in its divisor), then the mean over each group of n_heads /
/// n_groups neighbouring heads. n_groups = n_heads gives S[l,h,:], the number of KV heads the
/// scores by which they evict, 1 those of the retention figure.
///
/// Relative error at most (window + kernel + group) * 2^-24 for values of one sign. NaN and
/// infinity reach every position whose pool holds them, denormals are kept. Cost: one read of the
/// rows. Safe to call from several threads.
struct WindowScores {
  AnyView<3>
      probs;  // in  [n_heads, q_rows, n_tokens], the last q_rows >= window rows of the prompt
  std::int64_t window = 16;  // at least 1, at most n_tokens
  std::int64_t kernel = 7;   // odd
  Pooling pooling = Pooling::average;
  View<float, 2> scores;  // out [n_groups, n_tokens - window]
};
void window_scores(const WindowScores& io, const Exec& exec = {});

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
