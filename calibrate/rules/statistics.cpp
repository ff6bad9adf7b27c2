// SPDX-License-Identifier: Apache-2.0
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/error.hpp"
#include "base/random.hpp"
#include "calibrate/rules/rules.hpp"

namespace kvatlas::calibrate {

double mean_of(std::span<const double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double deviation_of(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

std::vector<double> nearest_rank_quantiles(std::vector<double> values, int parts) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  std::sort(values.begin(), values.end());
  std::vector<double> out;
  if (values.empty() || parts < 1) return out;
  const auto n = static_cast<std::int64_t>(values.size());
  for (std::int64_t k = 1; k <= parts; ++k) out.push_back(values[(k * n + parts - 1) / parts - 1]);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<std::int64_t> round_to_total(std::span<const double> values, std::int64_t total) {
  double sum = 0;
  for (const double value : values) {
    if (!(value >= 0) || !std::isfinite(value))
      fail(ErrorCode::internal, "largest remainders need values of at least 0, got ", value);
    sum += value;
  }
  if (values.empty() || total < 0 || !(sum > 0 || total == 0))
    fail(ErrorCode::internal, "largest remainders need values that a total can be shared by");
  std::vector<std::int64_t> whole;
  std::vector<double> left;
  std::int64_t rest = total;
  for (const double value : values) {
    // 1e-9 less than a whole number is that number: products of decimals miss it by less.
    const double share = sum > 0 ? value * (static_cast<double>(total) / sum) : 0;
    const double floor = std::floor(share + 1e-9);
    whole.push_back(static_cast<std::int64_t>(floor));
    left.push_back(std::round((share - floor) * 1e9));
    rest -= whole.back();
  }
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return left[a] > left[b]; });
  for (std::size_t i = 0; rest > 0; i = (i + 1) % order.size(), --rest) ++whole[order[i]];
  // Rounding may have given one too many away.
  for (std::size_t i = order.size(); rest < 0 && i-- > 0;)
    if (whole[order[i]] > 0) --whole[order[i]], ++rest;
  return whole;
}

std::vector<std::size_t> pareto_front(std::span<const double> cost, std::span<const double> gain) {
  if (cost.size() != gain.size()) fail(ErrorCode::internal, "a front needs a gain for each cost");
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < cost.size(); ++i)
    if (!std::isnan(cost[i]) && !std::isnan(gain[i])) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return cost[a] != cost[b] ? cost[a] < cost[b] : gain[a] > gain[b];
  });
  std::vector<std::size_t> front;
  for (const std::size_t i : order)
    if (front.empty() || gain[i] > gain[front.back()]) front.push_back(i);
  return front;
}

namespace {

/// Ranks less their mean; equal values share their mean rank.
Eigen::ArrayXd centred_ranks(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  Eigen::ArrayXd ranks(std::ssize(order));
  for (std::size_t from = 0, to = 0; from < order.size(); from = to) {
    while (to < order.size() && values[order[to]] == values[order[from]]) ++to;
    for (std::size_t i = from; i < to; ++i)
      ranks(order[i]) = static_cast<double>(from + to - 1) / 2;
  }
  return ranks - static_cast<double>(ranks.size() - 1) / 2;
}

}  // namespace

double rank_correlation(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) fail(ErrorCode::internal, "a correlation needs lists of one length");
  const auto x = centred_ranks(a), y = centred_ranks(b);
  const double scale = std::sqrt(x.square().sum() * y.square().sum());
  return scale > 0 ? (x * y).sum() / scale : std::numeric_limits<double>::quiet_NaN();
}

Split split_samples(std::span<const std::string> groups, double held_out, std::uint64_t seed) {
  if (!(held_out >= 0 && held_out < 1))
    fail(ErrorCode::internal, "a share of ", held_out, " cannot be held out");
  std::map<std::string, std::vector<std::size_t>> members;
  for (std::size_t i = 0; i < groups.size(); ++i) members[groups[i]].push_back(i);
  Split split;
  const auto total =
      static_cast<std::int64_t>(std::llround(held_out * static_cast<double>(groups.size())));
  if (groups.size() < kLeastToHoldOut || total == 0) {
    for (std::size_t i = 0; i < groups.size(); ++i) split.choice.push_back(i);
    return split;
  }
  std::vector<double> sizes;
  for (const auto& [name, of_group] : members)
    sizes.push_back(static_cast<double>(of_group.size()));
  const auto out_of_group = round_to_total(sizes, total);
  std::size_t number = 0;
  for (auto& [name, of_group] : members) {
    Random random(seed, "held out " + name);
    random.shuffle(of_group);
    const auto cut = of_group.begin() + out_of_group[number++];
    split.held_out.insert(split.held_out.end(), of_group.begin(), cut);
    split.choice.insert(split.choice.end(), cut, of_group.end());
  }
  std::sort(split.choice.begin(), split.choice.end());
  std::sort(split.held_out.begin(), split.held_out.end());
  return split;
}

}  // namespace kvatlas::calibrate
