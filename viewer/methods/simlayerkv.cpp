// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/str.hpp"
#include "calibrate/report/lazy_report.hpp"
#include "viewer/methods/method_row.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace simlayerkv_method {
namespace {

using calibrate::Document;
using nlohmann::json;
constexpr const calibrate::Method& kMethod = calibrate::method::kSimLayerKv;

void show_lazy(const LazyModel& model, const Choices& choices, PolicyCard& card) {
  LazySettings settings = choices.lazy;
  settings.length = choices.length;
  const LazyDecisions decisions = lazy_decisions(model, settings);
  const auto savings =
      calibrate::layer_savings(decisions.shares, model.shape, settings.length, model.choices.keep);
  card.setting =
      str("threshold ", fixed_text(settings.threshold, 3), ", initial ", model.choices.keep.initial,
          ", recent ", model.choices.keep.recent, settings.per_head ? ", KV heads" : "",
          settings.fixed ? ", the same for all inputs" : "");
  set_kept(savings.kept_bytes / savings.full_bytes, model.shape, settings.length, card);
  card.advice = lazy_advice(model, settings);
  card.chart.title = str("lazy rate: ", fixed_text(decisions.lazy_layers, 1), " of ",
                         model.shape.layers, " layers in the mean");
  card.chart.x = layer_axis(model.shape.layers);
  card.chart.y = share_axis();
  card.chart.table.columns = {{"layer"}, {"lazy rate", "share"}};
  Bars bars{"lazy rate", {}};
  for (std::size_t l = 0; l < decisions.rates.size(); ++l) {
    const auto x = static_cast<double>(l);
    const double rate = decisions.rates[l];
    bars.bars.push_back({x, rate, percent_text(rate),
                         decisions.fixed.lazy[l] != 0 ? Emphasis::strong : Emphasis::normal});
    card.chart.table.rows.push_back({x, rate});
  }
  card.chart.bars.push_back(std::move(bars));
}

void show(const Evidence& evidence, const Choices& choices, PolicyCard& card) {
  show_model(evidence.lazy, card, [&](const LazyModel& model) { show_lazy(model, choices, card); });
}

bool is_present(const calibrate::Part& part, const Evidence&, const Choices& choices) {
  const auto& known = std::get<calibrate::SimLayerKv>(part);
  return is_near(known.threshold, choices.lazy.threshold) &&
         known.keep == choices.lazy_arrays.keep && known.per_head == choices.lazy.per_head;
}

bool can_be_saved(const profile::Reader& profile, std::span<const Document>) {
  return profile.has(profile::name::kDecodeMass) || profile.has(profile::name::kMass);
}

calibrate::SimLayerKv lazy_part(const LazyModel& model, const LazySettings& settings,
                                const calibrate::LazyChoice& choice) {
  calibrate::SimLayerKv part;
  part.keep = model.choices.keep;
  part.threshold = settings.threshold;
  part.identify = model.choices.identify;
  part.w_last = model.choices.w_last;
  part.per_head = settings.per_head;
  if (settings.fixed)
    part.fixed.emplace(calibrate::fixed_lazy(model.masses, settings.threshold, choice));
  return part;
}

json section(const Source& from) {
  const LazyModel& model = from.models.lazy.value();
  const LazySettings& settings = from.choices.lazy;
  const calibrate::LazyChoice choice{settings.per_head, settings.fixed, settings.share};
  json out = calibrate::section_of(lazy_part(model, settings, choice));
  calibrate::SimLayerKvReport report;
  calibrate::add_lazy_report({model.masses, model.steps, model.shape, model.choices.keep},
                             settings.threshold, choice, {settings.length}, report);
  out.update(calibrate::report_json(std::move(report)));
  return out;
}

void take(const calibrate::Part* part, const profile::Header& header, Choices& choices) {
  if (const auto* lazy = part ? std::get_if<calibrate::SimLayerKv>(part) : nullptr) {
    choices.lazy_arrays = {lazy->keep, lazy->identify, lazy->w_last};
    choices.lazy.threshold = lazy->threshold;
    choices.lazy.per_head = lazy->per_head;
    choices.lazy.fixed = lazy->fixed.has_value();
  }
  choices.lazy_arrays.keep = in_grid(header, choices.lazy_arrays.keep);
}

void add_searched(const json& section, ComparisonModel& model) {
  for (const auto& point : report_in<calibrate::SimLayerKvReport>(section, kMethod).curve)
    add_tried(kMethod, point, 1 / point.kv_ratio, model);
}

void choose(const ComparedPolicy& policy, Choices& choices) {
  choices.lazy.threshold = policy.value;
}

void strip(const calibrate::Part& part, const json& section, std::size_t,
           ComparisonModel::Strip& strip) {
  const auto report = report_in<calibrate::SimLayerKvReport>(section, kMethod);
  strip.word = "samples";
  strip.unit = "share of samples in which the layer stays full";
  if (report.samples > 0) strip.unit += str(", of ", report.samples);
  for (const double rate : report.lazy_rates) strip.values.push_back(1 - rate);
  const auto& fixed = std::get<calibrate::SimLayerKv>(part).fixed;
  if (!strip.values.empty() || !fixed) return;
  for (const auto& row : *fixed)
    if (row.size() == 1) strip.values.push_back(row.front() != 0 ? 0 : 1);
}

}  // namespace
}  // namespace simlayerkv_method

MethodRow simlayerkv_row() {
  using namespace simlayerkv_method;
  return {&kMethod, "lazy", nullptr,      show,   is_present, can_be_saved,
          section,  take,   add_searched, choose, strip};
}

}  // namespace kvatlas::viewer
