// SPDX-License-Identifier: Apache-2.0
// How many tokens are kept: DynamicKV's and PyramidKV's of a layer, LagKV's of a prompt.
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "calibrate/rules/rules.hpp"
#include "kernels/lag_scores.hpp"

namespace kvatlas::calibrate {

BudgetSummary summarise_budgets(const std::vector<std::vector<std::int64_t>>& budgets) {
  BudgetSummary out;
  if (budgets.empty()) fail(ErrorCode::internal, "budgets need a sample");
  for (std::size_t layer = 0; layer < budgets.front().size(); ++layer) {
    std::vector<double> values;
    for (const auto& of_sample : budgets) values.push_back(static_cast<double>(of_sample[layer]));
    out.mean.push_back(mean_of(values));
    out.deviation.push_back(deviation_of(values));
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    out.least.push_back(static_cast<std::int64_t>(*least));
    out.most.push_back(static_cast<std::int64_t>(*most));
  }
  const double sum = std::accumulate(out.mean.begin(), out.mean.end(), 0.0);
  out.budgets = round_to_total(out.mean, std::llround(sum));
  return out;
}

std::vector<std::int64_t> pyramid_budgets(std::int64_t mean, std::int64_t layers) {
  if (mean < 0 || layers < 1) fail(ErrorCode::internal, "a pyramid needs layers and a budget");
  const double middle = static_cast<double>(mean), lowest = middle / 20;
  std::vector<double> values;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const double way =
        layers > 1 ? static_cast<double>(layer) / static_cast<double>(layers - 1) : 0.5;
    values.push_back(2 * middle - lowest - way * 2 * (middle - lowest));
  }
  return round_to_total(values, mean * layers);
}

std::vector<kernels::Proximity> shrinking_windows(std::int64_t layers, std::int64_t trimmed,
                                                  std::int64_t n_tokens, kernels::Proximity keep) {
  const std::int64_t least = std::min(n_tokens, keep.initial + keep.recent);
  const std::int64_t count = std::clamp<std::int64_t>(trimmed, 0, layers);
  const std::int64_t total = (layers - count) * n_tokens + count * least;
  const auto sizes = [&](double step) {
    std::vector<double> out;
    for (std::int64_t l = 0; l < layers; ++l)
      out.push_back(
          std::min(static_cast<double>(n_tokens),
                   static_cast<double>(least) + step * static_cast<double>(layers - 1 - l)));
    return out;
  };
  // The sum grows with the step from layer to layer: halving finds the step whose sum is wanted.
  double low = 0, high = static_cast<double>(n_tokens);
  for (int halvings = 0; halvings < 100; ++halvings) {
    const double middle = (low + high) / 2;
    const auto of_middle = sizes(middle);
    const double sum = std::accumulate(of_middle.begin(), of_middle.end(), 0.0);
    (sum < static_cast<double>(total) ? low : high) = middle;
  }
  const bool whole = count == 0;  // then the highest layer is no smaller than the others
  std::vector<kernels::Proximity> windows;
  for (const auto size :
       round_to_total(whole ? std::vector<double>(layers, 1) : sizes(high), total))
    windows.push_back(
        {std::min(keep.initial, size), std::min(size, n_tokens) - std::min(keep.initial, size)});
  return windows;
}

std::vector<double> retention_shares(const std::vector<std::vector<std::int64_t>>& counts) {
  if (counts.empty()) return {};
  std::vector<double> shares(counts.front().size(), 0);
  Eigen::Map<Eigen::ArrayXd> sum(shares.data(), std::ssize(shares));
  for (const auto& of_sample : counts) {
    const auto of_layers = Eigen::Map<const Eigen::Array<std::int64_t, Eigen::Dynamic, 1>>(
                               of_sample.data(), sum.size())
                               .cast<double>();
    if (const double all = of_layers.sum(); all > 0)
      sum += of_layers / all / static_cast<double>(counts.size());
  }
  return shares;
}

std::int64_t lag_kept_tokens(std::int64_t n_tokens, const LagShape& shape) {
  return kernels::lag_length(n_tokens, shape.sink, shape.lag, shape.keep);
}

double lag_compression(std::int64_t n_tokens, const LagShape& shape) {
  if (n_tokens < 1) return 0;
  return 1 - static_cast<double>(lag_kept_tokens(n_tokens, shape)) / static_cast<double>(n_tokens);
}

std::optional<std::size_t> recommend_lag(std::span<const double> compression,
                                         std::span<const double> score, double wanted) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < compression.size(); ++i) {
    if (!(compression[i] >= wanted - 1e-9) || std::isnan(score[i])) continue;
    if (!best || score[i] > score[*best] ||
        (score[i] == score[*best] && compression[i] > compression[*best]))
      best = i;
  }
  return best;
}

}  // namespace kvatlas::calibrate
