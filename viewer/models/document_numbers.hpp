// SPDX-License-Identifier: Apache-2.0
// What calibration reported in a section of a policy document, as plain numbers. Reports have no
// fixed form, so whatever is missing or has another type becomes NaN or stays empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

double number_in(const nlohmann::json& object, const char* member);
/// A whole number, or 0 for what is none.
std::int64_t whole_in(const nlohmann::json& object, const char* member);
std::string text_in(const nlohmann::json& object, const char* member);
/// The member of this name, or null if there is none.
const nlohmann::json& member_of(const nlohmann::json& object, const char* member);
std::vector<double> numbers_of(const nlohmann::json& list);

/// A mean and its interval; NaN where they are not known.
struct Interval {
  double mean = kNoNumber, low = kNoNumber, high = kNoNumber;
};
Interval interval_of(const nlohmann::json& estimate);

/// The score at each value of the setting that was searched.
struct ScoreCurve {
  struct At {
    double setting = kNoNumber;
    Interval score;
  };
  std::vector<At> points;  // by ascending setting
  Interval full;           // score of the full cache
  double tolerance = kNoNumber;
  std::optional<double> chosen;
};
/// Reads the members "curve", "full", "tolerance" and "settings" of a section; the points of the
/// curve hold the setting under the name `setting`.
ScoreCurve score_curve(const nlohmann::json& section, const char* setting);

/// Draws the curve against the chart's y axis, the full cache's score as a line and the tolerance
/// below it as a band from x = `left` to `right`, and marks the calibrated setting.
void draw_scores(const ScoreCurve& curve, double left, double right, Chart& chart);

}  // namespace kvatlas::viewer
