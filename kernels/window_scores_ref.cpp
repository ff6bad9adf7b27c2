// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/read.hpp"
#include "kernels/window_scores_impl.hpp"

namespace kvatlas::kernels::reference {
namespace {

/// Whether score `a` ranks before `b`; NaN ranks last.
bool before(float a, float b) { return std::isnan(b) ? !std::isnan(a) : a > b; }

}  // namespace

void window_scores(const WindowScores& io) {
  const auto [n_groups, n_positions] = io.scores.sizes;
  const std::int64_t group = n_groups == 0 ? 0 : io.probs.sizes[0] / n_groups,
                     reach = io.kernel / 2;
  const bool average = io.pooling == Pooling::average;
  for (std::int64_t g = 0; g < n_groups; ++g) {
    Eigen::ArrayXd sums = Eigen::ArrayXd::Zero(n_positions);
    for (std::int64_t head = g * group; head < (g + 1) * group; ++head) {
      const Eigen::ArrayXd means =
          read_matrix(io.probs, head).bottomRows(io.window).colwise().mean().head(n_positions);
      for (std::int64_t j = 0; j < n_positions; ++j) {
        const std::int64_t begin = std::max<std::int64_t>(0, j - reach);
        const auto pooled = means.segment(begin, std::min(n_positions, j + reach + 1) - begin);
        sums[j] += average ? pooled.sum() / static_cast<double>(io.kernel)
                           : pooled.maxCoeff<Eigen::PropagateNaN>();
      }
    }
    for (std::int64_t j = 0; j < n_positions; ++j)
      io.scores(g, j) = static_cast<float>(sums[j] / static_cast<double>(group));
  }
}

void top_counts(const TopCounts& io) {
  const auto [n_layers, n_heads, n_positions] = io.scores.sizes;
  std::vector<float> all;
  for (std::int64_t layer = 0; layer < n_layers; ++layer)
    for (std::int64_t head = 0; head < n_heads; ++head)
      for (std::int64_t j = 0; j < n_positions; ++j) all.push_back(io.scores(layer, head, j));
  std::vector<std::int64_t> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return before(all[a], all[b]); });
  for (std::size_t i = 0; i < io.k.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    for (std::int64_t layer = 0; layer < n_layers; ++layer) io.counts(row, layer) = 0;
    for (std::int64_t rank = 0; rank < io.k[i]; ++rank)
      ++io.counts(row, order[rank] / (n_heads * n_positions));
  }
}

}  // namespace kvatlas::kernels::reference
