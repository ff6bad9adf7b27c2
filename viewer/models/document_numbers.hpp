// SPDX-License-Identifier: Apache-2.0
// What calibration reported in a policy document's section, as plain numbers. A document's reports
// have free form, so whatever is not there or is of another kind is NaN or empty.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

double number_in(const nlohmann::json& object, const char* member);
std::string text_in(const nlohmann::json& object, const char* member);
/// A member, or null.
const nlohmann::json& member_of(const nlohmann::json& object, const char* member);
std::vector<double> numbers_of(const nlohmann::json& list);

/// A mean with its interval; NaN where unknown.
struct Interval {
  double mean = kNoNumber, low = kNoNumber, high = kNoNumber;
};
Interval interval_of(const nlohmann::json& estimate);

/// Score against the setting that was searched.
struct ScoreCurve {
  struct At {
    double setting = kNoNumber;
    Interval score;
  };
  std::vector<At> points;  // by ascending setting
  Interval full;           // of the full cache
  double tolerance = kNoNumber;
  std::optional<double> chosen;
};
/// Of a section: "curve", whose points have the setting under this name, "full", "tolerance",
/// "settings".
ScoreCurve score_curve(const nlohmann::json& section, const char* setting);

/// Draws the curve against the chart's y axis, the full cache as a line and its tolerance as a
/// band from x `left` to `right`, and marks the calibrated setting.
void draw_scores(const ScoreCurve& curve, double left, double right, Chart& chart);

}  // namespace kvatlas::viewer
