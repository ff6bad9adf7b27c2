// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/read.hpp"
#include "kernels/window_scores_impl.hpp"

namespace kvatlas::kernels::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

/// Whether score `a` ranks before `b`; NaN ranks last.
bool before(float a, float b) { return std::isnan(b) ? !std::isnan(a) : a > b; }

}  // namespace

void window_scores(const WindowScores& io) {
  const auto [n_heads, q_rows, n_tokens] = io.probs.sizes;
  const auto [n_groups, n_positions] = io.scores.sizes;
  const std::int64_t group = n_groups == 0 ? 0 : n_heads / n_groups, reach = io.kernel / 2;
  const auto mean = [&](std::int64_t head, std::int64_t j) {
    double sum = 0;
    for (std::int64_t row = io.probs.sizes[1] - io.window; row < io.probs.sizes[1]; ++row)
      sum += read(io.probs, head, row, j);
    return sum / static_cast<double>(io.window);
  };
  for (std::int64_t g = 0; g < n_groups; ++g)
    for (std::int64_t j = 0; j < n_positions; ++j) {
      double sum = 0;
      for (std::int64_t head = g * group; head < (g + 1) * group; ++head) {
        const bool average = io.pooling == Pooling::average;
        double pooled = average ? 0 : -kInf;
        for (std::int64_t t = std::max<std::int64_t>(0, j - reach);
             t <= std::min(n_positions - 1, j + reach); ++t)
          pooled = average ? pooled + mean(head, t) / static_cast<double>(io.kernel)
                           : larger(pooled, mean(head, t));
        sum += pooled;
      }
      io.scores(g, j) = static_cast<float>(sum / static_cast<double>(group));
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

void top_positions(const TopPositions& io) {
  const std::int64_t k = io.positions.sizes[1];
  std::vector<std::int64_t> order(static_cast<std::size_t>(io.scores.sizes[1]));
  for (std::int64_t row = 0; row < io.scores.sizes[0]; ++row) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      return before(io.scores(row, a), io.scores(row, b));
    });
    std::sort(order.begin(), order.begin() + k);
    for (std::int64_t i = 0; i < k; ++i) io.positions(row, i) = order[i];
  }
}

}  // namespace kvatlas::kernels::reference
