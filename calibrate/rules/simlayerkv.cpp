// SPDX-License-Identifier: Apache-2.0
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "analyzer/profile/profile.hpp"
#include "base/error.hpp"
#include "calibrate/rules/rules.hpp"

namespace kvatlas::calibrate {

std::vector<double> threshold_candidates(const Masses& masses) {
  std::vector<double> distinct;
  for (const auto& of_sample : masses)
    distinct.insert(distinct.end(), of_sample.begin(), of_sample.end());
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  return nearest_rank_quantiles(std::move(distinct), 40);
}

double readable_threshold(double mass) { return std::min(1.0, std::ceil(mass * 1e5) / 1e5); }

bool is_lazy(double mass, double threshold) { return threshold < 1 && mass > threshold; }

LayerFlags lazy_layers(std::span<const double> layer_masses, double threshold) {
  LayerFlags lazy;
  for (const double mass : layer_masses) lazy.push_back(is_lazy(mass, threshold));
  return lazy;
}

std::int64_t count_lazy(const LayerFlags& lazy) {
  return std::accumulate(lazy.begin(), lazy.end(), std::int64_t{0});
}

std::vector<double> lazy_rates(const Masses& masses, double threshold) {
  if (masses.empty()) return {};
  std::vector<double> rates(masses.front().size(), 0);
  for (const auto& of_sample : masses)
    for (std::size_t l = 0; l < rates.size(); ++l) rates[l] += is_lazy(of_sample[l], threshold);
  for (double& rate : rates) rate /= static_cast<double>(masses.size());
  return rates;
}

StaticView static_view(const Masses& masses, double threshold, double share) {
  StaticView view;
  double differing = 0;
  for (const double rate : lazy_rates(masses, threshold)) {
    // At threshold 1 nothing is lazy, whatever share is asked for.
    view.lazy.push_back(rate >= share && rate > 0);
    differing += view.lazy.back() ? 1 - rate : rate;
  }
  if (!view.lazy.empty()) view.disagreement = differing / static_cast<double>(view.lazy.size());
  return view;
}

double consistency(const Masses& masses_of_steps, double threshold) {
  std::int64_t same = 0, later = 0;
  for (const auto& steps : masses_of_steps)
    for (std::size_t step = 1; step < steps.size() && !std::isnan(steps[step]); ++step, ++later)
      same += is_lazy(steps[step], threshold) == is_lazy(steps[0], threshold);
  return later > 0 ? static_cast<double>(same) / static_cast<double>(later)
                   : std::numeric_limits<double>::quiet_NaN();
}

LayerFlags opposite_layers(std::span<const double> layer_masses, const LayerFlags& lazy) {
  std::vector<std::size_t> others;
  for (std::size_t l = 0; l < lazy.size(); ++l)
    if (!lazy[l]) others.push_back(l);
  std::stable_sort(others.begin(), others.end(),
                   [&](std::size_t a, std::size_t b) { return layer_masses[a] < layer_masses[b]; });
  LayerFlags chosen(lazy.size(), 0);
  const auto wanted = std::min(static_cast<std::size_t>(count_lazy(lazy)), others.size());
  for (std::size_t i = 0; i < wanted; ++i) chosen[others[i]] = 1;
  return chosen;
}

std::optional<std::size_t> choose_threshold(std::span<const double> scores, double full,
                                            double tolerance) {
  std::optional<std::size_t> chosen;
  // Scores are ratios of small numbers: one sample's loss must not count twice for its last bit.
  const double least = full - tolerance - 1e-9;
  for (std::size_t i = scores.size(); i-- > 0 && scores[i] >= least;) chosen = i;
  return chosen;
}

double CacheShape::share(std::int64_t layer) const {
  if (values.empty()) return 1;
  return static_cast<double>(values.at(layer)) / static_cast<double>(2 * kv_heads * head_dim);
}

double CacheShape::bytes_of_row(KvFormat format, KvSide side) const {
  return calibrate::bytes_of_row(format, side, head_dim);
}

double CacheShape::bytes_per_token(KvFormat format) const {
  double of_layers = 0;
  for (std::int64_t l = 0; l < layers; ++l) of_layers += share(l);
  return of_layers * static_cast<double>(kv_heads) *
         (bytes_of_row(format, KvSide::keys) + bytes_of_row(format, KvSide::values));
}

std::int64_t CacheShape::held(std::int64_t layer, std::int64_t tokens) const {
  return windows.empty() ? tokens : profile::held_tokens(windows.at(layer), tokens);
}

double CacheShape::full_bytes(std::int64_t tokens) const {
  double of_layers = 0;  // tokens
  for (std::int64_t l = 0; l < layers; ++l)
    of_layers += share(l) * static_cast<double>(held(l, tokens));
  return of_layers * static_cast<double>(2 * kv_heads) * plain_row();
}

std::int64_t coded_tokens(std::int64_t cut, std::int64_t all, std::int64_t residual) {
  constexpr std::int64_t kGroup = 32;
  const std::int64_t at_cut = std::max<std::int64_t>(0, cut - residual);
  return at_cut + std::max<std::int64_t>(0, all - residual - at_cut) / kGroup * kGroup;
}

std::int64_t proximal_held(kernels::Proximity keep, std::int64_t tokens, std::int64_t first) {
  const std::int64_t recent = std::max<std::int64_t>(0, tokens - keep.recent);
  return std::max<std::int64_t>(0, std::min(keep.initial, recent) - first) + tokens -
         std::max(recent, first);
}

Masses kv_head_masses(std::span<const float> values, std::int64_t layers, std::int64_t heads,
                      std::int64_t kv_heads, std::int64_t used) {
  const auto rows = static_cast<std::int64_t>(values.size()) / (layers * heads);
  const std::int64_t group = heads / kv_heads;
  if (used < 1 || used > rows) fail(ErrorCode::internal, used, " of ", rows, " rows are used");
  Masses masses(static_cast<std::size_t>(layers),
                std::vector<double>(static_cast<std::size_t>(kv_heads), 0));
  for (std::int64_t head = 0; head < layers * heads; ++head)
    for (std::int64_t row = rows - used; row < rows; ++row)
      masses[head / heads][head % heads / group] +=
          values[head * rows + row] / static_cast<double>(group * used);
  return masses;
}

bool SampleMasses::add(Masses of_sample) {
  std::vector<double> means;
  for (const auto& of_layer : of_sample) means.push_back(mean_of(of_layer));
  if (std::any_of(means.begin(), means.end(), [](double mass) { return std::isnan(mass); }))
    return false;
  heads.push_back(std::move(of_sample));
  layers.push_back(std::move(means));
  return true;
}

Masses SampleMasses::decided(bool per_head) const {
  if (!per_head) return layers;
  Masses all;
  for (const auto& of_sample : heads) {
    auto& flat = all.emplace_back();
    for (const auto& of_layer : of_sample)
      flat.insert(flat.end(), of_layer.begin(), of_layer.end());
  }
  return all;
}

std::vector<double> mean_masses(const Masses& masses) {
  if (masses.empty()) return {};
  std::vector<double> means(masses.front().size(), 0);
  Eigen::Map<Eigen::ArrayXd> sum(means.data(), std::ssize(means));
  for (const auto& of_sample : masses)
    sum += Eigen::Map<const Eigen::ArrayXd>(of_sample.data(), sum.size()) /
           static_cast<double>(masses.size());
  return means;
}

HeadFlags fixed_lazy(const SampleMasses& masses, double threshold, const LazyChoice& choice) {
  if (choice.per_head) return head_view(masses.heads, threshold, choice.share).streaming;
  HeadFlags rows;
  for (const auto flag : static_view(masses.layers, threshold, choice.share).lazy)
    rows.push_back({flag});
  return rows;
}

std::vector<double> lazy_shares(const SampleMasses& masses, double threshold,
                                const LazyChoice& choice) {
  std::vector<double> shares;
  if (choice.fixed)
    for (const auto& row : fixed_lazy(masses, threshold, choice))
      shares.push_back(mean_of(std::vector<double>(row.begin(), row.end())));
  else if (choice.per_head)
    for (const auto& row : head_view(masses.heads, threshold, choice.share).rates)
      shares.push_back(mean_of(row));
  else
    shares = lazy_rates(masses.layers, threshold);
  return shares;
}

void add_steps(StepMasses& steps, std::span<const float> values, std::int64_t layers) {
  steps.resize(static_cast<std::size_t>(layers));
  const std::size_t count = values.size() / steps.size();
  for (std::size_t l = 0; l < steps.size(); ++l) {
    const auto of_layer = values.subspan(l * count, count);
    steps[l].emplace_back(of_layer.begin(), of_layer.end());
  }
}

std::vector<double> layer_consistency(const StepMasses& steps, double threshold) {
  std::vector<double> shares;
  for (const auto& of_layer : steps) shares.push_back(consistency(of_layer, threshold));
  const bool known =
      !std::all_of(shares.begin(), shares.end(), [](double share) { return std::isnan(share); });
  return known ? shares : std::vector<double>();
}

HeadView head_view(const std::vector<Masses>& masses, double threshold, double share) {
  HeadView view;
  if (masses.empty()) return view;
  for (std::size_t l = 0; l < masses.front().size(); ++l) {
    Masses of_layer;  // [sample][KV head]
    for (const auto& of_sample : masses) of_layer.push_back(of_sample[l]);
    view.rates.push_back(lazy_rates(of_layer, threshold));
    view.streaming.push_back(static_view(of_layer, threshold, share).lazy);
  }
  return view;
}

}  // namespace kvatlas::calibrate
