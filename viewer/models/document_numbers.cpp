// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/document_numbers.hpp"

#include <algorithm>
#include <cmath>

namespace kvatlas::viewer {

using nlohmann::json;

const json& member_of(const json& object, const char* member) {
  static const json kNull;
  if (!object.is_object()) return kNull;
  const auto found = object.find(member);
  return found == object.end() ? kNull : *found;
}

std::int64_t whole_in(const json& object, const char* member) {
  const json& found = member_of(object, member);
  return found.is_number_integer() ? found.get<std::int64_t>() : 0;
}

double number_in(const json& object, const char* member) {
  const json& found = member_of(object, member);
  return found.is_number() ? found.get<double>() : kNoNumber;
}

std::string text_in(const json& object, const char* member) {
  const json& found = member_of(object, member);
  return found.is_string() ? found.get<std::string>() : "";
}

std::vector<double> numbers_of(const json& list) {
  std::vector<double> out;
  if (list.is_array())
    for (const auto& value : list)
      out.push_back(value.is_number() ? value.get<double>() : kNoNumber);
  return out;
}

Interval interval_of(const json& estimate) {
  return {number_in(estimate, "mean"), number_in(estimate, "low"), number_in(estimate, "high")};
}

ScoreCurve score_curve(const json& section, const char* setting) {
  ScoreCurve out;
  const json& curve = member_of(section, "curve");
  if (curve.is_array())
    for (const auto& point : curve) {
      const double at = number_in(point, setting), score = number_in(point, "score");
      if (std::isnan(at) || std::isnan(score)) continue;
      out.points.push_back({at, {score, number_in(point, "low"), number_in(point, "high")}});
    }
  std::stable_sort(out.points.begin(), out.points.end(),
                   [](const auto& a, const auto& b) { return a.setting < b.setting; });
  out.full = interval_of(member_of(section, "full"));
  out.tolerance = number_in(section, "tolerance");
  const double chosen = number_in(member_of(section, "settings"), setting);
  if (!std::isnan(chosen)) out.chosen = chosen;
  return out;
}

void draw_scores(const ScoreCurve& curve, double left, double right, Chart& chart) {
  Line scores{"score", {}, Emphasis::strong};
  for (const auto& at : curve.points)
    scores.points.push_back({at.setting, at.score.mean, {}, at.score.low, at.score.high});
  if (!scores.points.empty()) {
    chart.bands.push_back({"95 % interval of the score", scores.points});
    chart.lines.push_back(std::move(scores));
  }
  const double full = curve.full.mean;
  if (!std::isnan(full)) {
    chart.lines.push_back({"full cache", {{left, full}, {right, full}}, Emphasis::reference});
    if (curve.tolerance > 0)
      chart.bands.push_back({"tolerance",
                             {{left, full, {}, full - curve.tolerance, full},
                              {right, full, {}, full - curve.tolerance, full}}});
  }
  if (curve.chosen) chart.marks.push_back({"calibrated", *curve.chosen});
}

}  // namespace kvatlas::viewer
