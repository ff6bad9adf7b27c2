// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/str.hpp"
#include "viewer/methods/method_row.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace pod_method {
namespace {

using calibrate::Document;
using nlohmann::json;
constexpr const calibrate::Method& kMethod = calibrate::method::kPod;

void show_blocks(const BlocksModel& model, const Choices& choices, PolicyCard& card) {
  BlocksSettings settings = choices.blocks;
  settings.length = choices.length;
  const BlockDecisions decisions = block_decisions(model, settings);
  card.setting =
      str("delta ", fixed_text(settings.delta, 2), ", initial ", settings.proximal.initial,
          ", recent ", settings.proximal.recent, settings.per_query_head ? ", query heads" : "");
  set_kept(1 - decisions.saved, model.shape, settings.length, card);
  card.advice = blocks_advice(model, settings, decisions.blocks);
  card.chart.title = str(decisions.point.blocks, " blocks; distant keys not stored, over delta");
  card.chart.x = {"delta", "", {}, {{0, 1}}};
  card.chart.y = share_axis();
  card.chart.table.columns = {{"delta"}, {"keys not stored", "share"}, {"blocks"}};
  Line line{"distant keys not stored", {}, Emphasis::strong};
  for (const auto& point : settings.per_query_head ? model.by_query_head : model.by_kv_head) {
    line.points.push_back({point.delta, point.dropped});
    card.chart.table.rows.push_back({point.delta, point.dropped, point.blocks});
  }
  card.chart.lines.push_back(std::move(line));
  card.chart.marks.push_back(
      {fixed_text(settings.delta, 2), settings.delta, true, Handle::none, Emphasis::strong});
}

void show(const Evidence& evidence, const Choices& choices, PolicyCard& card) {
  show_model(evidence.blocks, card,
             [&](const BlocksModel& model) { show_blocks(model, choices, card); });
}

bool is_present(const calibrate::Part& part, const Evidence&, const Choices& choices) {
  const auto& known = std::get<calibrate::Pod>(part);
  return is_near(known.delta, choices.blocks.delta) && known.proximal == choices.blocks.proximal &&
         known.per_query_head == choices.blocks.per_query_head;
}

bool can_be_saved(const profile::Reader& profile, std::span<const Document>) {
  return profile.has(profile::name::kDivergence);
}

json section(const Source& from) {
  const BlocksModel& model = from.models.blocks.value();
  const BlocksSettings& settings = from.choices.blocks;
  const BlockDecisions decisions = block_decisions(model, settings);
  json out = calibrate::section_of(calibrate::Pod{.proximal = settings.proximal,
                                                  .delta = settings.delta,
                                                  .per_query_head = settings.per_query_head,
                                                  .lowest = decisions.blocks});
  out["keys_dropped"] = decisions.point.dropped;
  out["samples"] = model.positions.size();
  return out;
}

void take(const calibrate::Part* part, const profile::Header& header, Choices& choices) {
  if (const auto* pod = part ? std::get_if<calibrate::Pod>(part) : nullptr) {
    choices.blocks.delta = pod->delta;
    choices.blocks.proximal = pod->proximal;
    choices.blocks.per_query_head = pod->per_query_head;
  }
  choices.blocks.proximal = in_grid(header, choices.blocks.proximal);
}

/// The curve has the scores, and the sweep what the same settings save.
void add_searched(const json& section, ComparisonModel& model) {
  const auto report = report_in<calibrate::PodReport>(section, kMethod);
  for (const auto& point : report.curve)
    for (const auto& at : report.sweep)
      if (is_near(at.delta, point.setting) && !at.savings.empty())
        add_tried(kMethod, point, 1 - at.savings.back().saved, model);
}

void choose(const ComparedPolicy& policy, Choices& choices) { choices.blocks.delta = policy.value; }

/// The share of heads whose layer keeps its own keys.
void strip(const calibrate::Part& part, const json&, std::size_t layers,
           ComparisonModel::Strip& strip) {
  strip.word = "heads";
  strip.unit = "share of heads that keep keys of their own";
  const calibrate::Blocks& lowest = std::get<calibrate::Pod>(part).lowest;
  if (lowest.empty()) return;
  strip.values.assign(layers, 0);
  for (const auto& head : lowest)
    for (std::size_t l = 0; l < layers && l < head.size(); ++l)
      if (head[l] == static_cast<std::int64_t>(l))
        strip.values[l] += 1 / static_cast<double>(lowest.size());
}

}  // namespace
}  // namespace pod_method

MethodRow pod_row() {
  using namespace pod_method;
  return {&kMethod, "blocks", nullptr,      show,   is_present, can_be_saved,
          section,  take,     add_searched, choose, strip};
}

}  // namespace kvatlas::viewer
