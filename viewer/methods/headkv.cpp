// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/str.hpp"
#include "calibrate/rules/rules.hpp"
#include "viewer/methods/method_row.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace headkv_method {
namespace {

using calibrate::Document;
using nlohmann::json;
constexpr const calibrate::Method& kMethod = calibrate::method::kHeadKv;

void show_head_budgets(const calibrate::HeadKv& part, const Choices& choices,
                       const calibrate::CacheShape& shape, PolicyCard& card) {
  if (!part.fixed) fail(ErrorCode::usage, "the document has no budgets of heads");
  card.setting =
      str("budget ", part.select.budget, " a head in the mean, window ", part.select.window);
  set_kept({.name = {}, .parts = {part}}, shape, choices.length, card);
  card.advice = head_budgets_advice(part);
  card.chart.title = "most, mean and least tokens kept by a layer's heads, beside the window";
  card.chart.x = layer_axis(shape.layers);
  card.chart.table.columns = {
      {"layer"}, {"most", "tokens"}, {"mean", "tokens"}, {"least", "tokens"}};
  Bars most{"most", {}}, mean{"mean", {}}, least{"least", {}};
  double top = 1;
  for (std::size_t l = 0; l < part.fixed->size(); ++l) {
    std::vector<double> heads((*part.fixed)[l].begin(), (*part.fixed)[l].end());
    const auto [low, high] = std::minmax_element(heads.begin(), heads.end());
    const double middle = calibrate::mean_of(heads);
    const auto x = static_cast<double>(l);
    most.bars.push_back({x, *high, str(*high)});
    mean.bars.push_back({x, middle, fixed_text(middle, 0)});
    least.bars.push_back({x, *low, str(*low)});
    card.chart.table.rows.push_back({x, *high, middle, *low});
    top = std::max(top, *high);
  }
  card.chart.bars = {std::move(most), std::move(mean), std::move(least)};
  card.chart.y = {"", "", {{0, "0"}, {top, str(top)}}, {{0, top}}};
  const auto even = static_cast<double>(part.select.budget - part.select.window);
  card.chart.marks.push_back({"the same for all", even, false});
}

void read(const profile::Reader& profile, std::span<const Document> documents, Evidence& evidence) {
  evidence.head_budgets = read_section(
      kMethod, profile, documents,
      "Budgets of heads are found by calibration: 'kvatlas calibrate headkv' makes a document to "
      "open here",
      [](const json& section) {
        return std::get<calibrate::HeadKv>(calibrate::part_of(kMethod.name, section));
      });
}

void show(const Evidence& evidence, const Choices& choices, PolicyCard& card) {
  show_model(evidence.head_budgets, card, [&](const calibrate::HeadKv& part) {
    show_head_budgets(part, choices, evidence.shape, card);
  });
}

bool is_present(const calibrate::Part&, const Evidence&, const Choices&) {
  return true;  // nothing in the window changes it
}

constexpr auto can_be_saved = is_in_documents<kMethod>;

json section(const Source& from) {
  return calibrate::section_of(
      calibrate::part_of(kMethod.name, section_in(from.documents, kMethod.name)));
}

void take(const calibrate::Part*, const profile::Header&, Choices&) {}

void add_searched(const json& section, ComparisonModel& model) {
  for (const auto& point : report_in<calibrate::BudgetReport>(section, kMethod).curve)
    add_tried(kMethod, point, point.kept_share, model);
}

void choose(const ComparedPolicy&, Choices&) {}

void strip(const calibrate::Part& part, const json&, std::size_t, ComparisonModel::Strip& strip) {
  std::vector<double> means;
  if (const auto& fixed = std::get<calibrate::HeadKv>(part).fixed)
    for (const auto& row : *fixed)
      means.push_back(calibrate::mean_of(std::vector<double>(row.begin(), row.end())));
  set_budgets(std::move(means), strip);
}

}  // namespace
}  // namespace headkv_method

MethodRow headkv_row() {
  using namespace headkv_method;
  return {&kMethod, "budgets", read,         show,   is_present, can_be_saved,
          section,  take,      add_searched, choose, strip};
}

}  // namespace kvatlas::viewer
