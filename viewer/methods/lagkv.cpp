// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/str.hpp"
#include "viewer/methods/method_row.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace lagkv_method {
namespace {

using calibrate::Document;
using nlohmann::json;
constexpr const calibrate::Method& kMethod = calibrate::method::kLagKv;

/// The setting of the sweep that is chosen, or the recommended one; nothing if there is none.
std::optional<std::size_t> chosen_in(const SweepModel& model, const Choices& choices) {
  const auto chosen = choices.lag_candidate >= 0
                          ? std::optional(static_cast<std::size_t>(choices.lag_candidate))
                          : sweep_view(model, choices.sweep).recommended;
  return chosen && *chosen < model.candidates.size() ? chosen : std::nullopt;
}

void show_sweep(const SweepModel& model, const Choices& choices, const calibrate::CacheShape& shape,
                PolicyCard& card) {
  SweepSettings settings = choices.sweep;
  settings.length = choices.length;
  SweepView view = sweep_view(model, settings);
  card.chart = std::move(view.chart);
  card.chart.title = "score against compression, by lag";
  card.chart.y = share_axis();
  card.chart.notes.clear();
  card.chart.marks.clear();
  card.chart.bands.clear();
  const auto chosen = chosen_in(model, choices);
  if (!chosen) {
    card.setting = "none of the sweep compresses as much as is wanted";
    return;
  }
  const auto& candidate = model.candidates[*chosen];
  card.setting = str("lag ", candidate.lag, ", ratio ", candidate.ratio, ", sink ", model.sink,
                     candidate.own() ? "" : ", " + candidate.variant);
  set_kept(calibrate::parse_policy(str("lagkv:sink=", model.sink, ",lag=", candidate.lag,
                                       ",ratio=", candidate.ratio, ",variant=", candidate.variant)),
           shape, settings.length, card);
  card.advice = sweep_advice(model, settings, candidate);
}

void read(const profile::Reader& profile, std::span<const Document> documents, Evidence& evidence) {
  evidence.sweep = read_section(
      kMethod, profile, documents,
      "LagKV's settings are swept by calibration: 'kvatlas calibrate lagkv' makes a document to "
      "open here",
      sweep_model);
}

void show(const Evidence& evidence, const Choices& choices, PolicyCard& card) {
  show_model(evidence.sweep, card,
             [&](const SweepModel& model) { show_sweep(model, choices, evidence.shape, card); });
}

bool is_present(const calibrate::Part& part, const Evidence& evidence, const Choices& choices) {
  const auto chosen =
      evidence.sweep.model ? chosen_in(*evidence.sweep.model, choices) : std::nullopt;
  if (!chosen) return false;
  const auto& candidate = evidence.sweep.model->candidates[*chosen];
  const auto& known = std::get<calibrate::LagKv>(part);
  return known.lag == candidate.lag && known.ratio == candidate.ratio &&
         calibrate::variant_word(known.variant) == candidate.variant;
}

constexpr auto can_be_saved = is_in_documents<kMethod>;

json section(const Source& from) {
  const auto& found = section_in(from.documents, kMethod.name);
  if (found.is_null())
    fail(ErrorCode::usage,
         "LagKV's settings are chosen from a sweep: 'kvatlas calibrate lagkv' makes one");
  const SweepModel model = sweep_model(found);
  const auto chosen = chosen_in(model, from.choices);
  if (!chosen)
    fail(ErrorCode::usage, "no setting of LagKV's sweep saves as much as is wanted: choose one");
  const auto& candidate = model.candidates[*chosen];
  auto variant = calibrate::LagVariant::lag;
  for (const auto known : {calibrate::LagVariant::local, calibrate::LagVariant::l2})
    if (candidate.variant == calibrate::variant_word(known)) variant = known;
  return calibrate::section_of(
      calibrate::LagKv{model.sink, candidate.lag, candidate.ratio, variant});
}

void take(const calibrate::Part*, const profile::Header&, Choices&) {}

void add_searched(const json& section, ComparisonModel& model) {
  const auto sweep = report_in<calibrate::LagKvReport>(section, kMethod).sweep;
  for (std::size_t i = 0; i < sweep.size(); ++i) {
    const auto& candidate = sweep[i];
    ComparedPolicy policy;
    policy.method = policy.name = kMethod.title;
    for (const auto& control : kMethod.controls)
      if (candidate.variant == control.member) policy.method = policy.name = control.title;
    policy.section = candidate.own() ? kMethod.name : "";
    policy.setting = str("lag ", candidate.lag, ", ratio ", candidate.ratio);
    policy.candidate = static_cast<int>(i);
    policy.kept_share = 1 - candidate.compression;
    policy.score = candidate.score;
    add_tried(kMethod, std::move(policy), model);
  }
}

void choose(const ComparedPolicy& policy, Choices& choices) {
  choices.lag_candidate = policy.candidate;
}

}  // namespace
}  // namespace lagkv_method

MethodRow lagkv_row() {
  using namespace lagkv_method;
  return {&kMethod, "sweep", read,         show,   is_present, can_be_saved,
          section,  take,    add_searched, choose, nullptr};
}

}  // namespace kvatlas::viewer
