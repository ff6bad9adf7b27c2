// SPDX-License-Identifier: Apache-2.0
#include "calibrate/report/lazy_report.hpp"

namespace kvatlas::calibrate {

void add_lazy_report(const LazyEvidence& evidence, double threshold, const LazyChoice& choice,
                     const std::vector<std::int64_t>& lengths, SimLayerKvReport& report) {
  const auto& [masses, steps, shape, keep] = evidence;
  const StaticView view = static_view(masses.layers, threshold, choice.share);
  const HeadView heads = head_view(masses.heads, threshold, choice.share);
  report.lazy_rates = lazy_rates(masses.layers, threshold);
  report.samples = std::ssize(masses.layers);
  auto& for_all = report.for_all ? *report.for_all : report.for_all.emplace();
  for_all.share = choice.share;
  for_all.lazy_layers.assign(view.lazy.begin(), view.lazy.end());
  for_all.disagreement = view.disagreement;
  auto& per_head = report.per_head.emplace();
  per_head.rates = heads.rates;
  for (const auto& row : heads.streaming) per_head.lazy_heads.emplace_back(row.begin(), row.end());
  auto& opposite = report.opposite ? *report.opposite : report.opposite.emplace();
  opposite.layers = 0;
  for (const auto& of_sample : masses.layers)
    opposite.layers += static_cast<double>(
        count_lazy(opposite_layers(of_sample, lazy_layers(of_sample, threshold))));
  opposite.layers /= static_cast<double>(masses.layers.size());
  report.consistency = layer_consistency(steps, threshold);
  for (const auto length : lengths) {
    const Savings at = layer_savings(lazy_shares(masses, threshold, choice), shape, length, keep);
    Saving& saving = report.savings.emplace_back();
    saving.length = length;
    saving.layer_ratio = at.layer_ratio;
    saving.kv_ratio = at.kv_ratio;
    saving.kv_ratio_4bit = at.kv_ratio_4bit;
    saving.full_bytes = at.full_bytes;
    saving.kept_bytes = at.kept_bytes;
  }
}

}  // namespace kvatlas::calibrate
