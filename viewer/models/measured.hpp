// SPDX-License-Identifier: Apache-2.0
// What calibration or evaluation reported in a document, as the screens show it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/policy/method.hpp"
#include "calibrate/report/report.hpp"
#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

using calibrate::Estimate;
using calibrate::Measured;

/// The report of a method's section; an empty one if there is no section. Error(unreadable) names
/// what is missing.
template <class Report>
Report report_in(const nlohmann::json& section, const calibrate::Method& method) {
  return section.is_object() ? calibrate::read_report<Report>(section, method.name) : Report{};
}

/// What is shown of answers: the share that is right; of pass keys the share of digits that are
/// right up to the first wrong one, or at their place; or the attention that the kept keys had.
enum class ShownScore : std::uint8_t { score, digits_prefix, digits_in_place, attention };
const char* score_word(ShownScore score);
/// NaN where it is not known, as the attention is.
double shown_of(const calibrate::DepthScore& at, ShownScore what);

/// The score less that of the full cache, in points.
Estimate change_of(const Measured& measured);
/// What a step of decoding reads, of what it reads with the full cache.
double read_share(const Measured& measured);

/// "10 prompts of 5 texts, held out"; empty if it is not known how many they are.
std::string prompts_text(std::int64_t samples, std::int64_t texts, bool held_out = false);

/// "30.0 points lost [0.0, 60.0] on 10 samples of 5 texts": how many points were lost or won, with
/// the interval. What is not known is left out.
std::string change_text(const Measured& measured);

/// The score at each value of the setting that was searched.
struct ScoreCurve {
  std::vector<calibrate::CurvePoint> points;  // by ascending setting
  std::optional<Estimate> full;               // score of the full cache
  double tolerance = kNoNumber;
  std::optional<double> chosen;
  std::int64_t samples = 0;          // that the scores are of
  std::optional<Measured> measured;  // of the chosen setting, by itself
};
ScoreCurve sorted_curve(ScoreCurve curve);
template <class Report>
ScoreCurve score_curve(const Report& report, std::optional<double> chosen) {
  return sorted_curve({{report.curve.begin(), report.curve.end()},
                       report.full,
                       report.tolerance,
                       chosen,
                       report.samples,
                       report.measured});
}

/// Draws the curve against the chart's y axis, the full cache's score as a line and the tolerance
/// below it as a band from x = `left` to `right`, and marks the calibrated setting. A note says
/// what the scores are of, and why the chosen setting has another one elsewhere.
void draw_scores(const ScoreCurve& curve, double left, double right, Chart& chart);

}  // namespace kvatlas::viewer
