// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/measured.hpp"

#include <algorithm>
#include <cmath>

#include "base/str.hpp"
#include "base/text_count.hpp"

namespace kvatlas::viewer {
namespace {

/// A loss as a change in points, or a change as a loss, `factor` points a unit: the ends change
/// places.
Estimate negated(const Estimate& loss, double factor) {
  return {0 - factor * loss.mean, 0 - factor * loss.high, 0 - factor * loss.low};
}

}  // namespace

const char* score_word(ShownScore score) {
  switch (score) {
    case ShownScore::score:
      return "score";
    case ShownScore::digits_prefix:
      return "digits right up to the first wrong one";
    case ShownScore::digits_in_place:
      return "digits right at their place";
    case ShownScore::attention:
      break;
  }
  return "attention kept";
}

double shown_of(const calibrate::DepthScore& at, ShownScore what) {
  switch (what) {
    case ShownScore::score:
      return at.score;
    case ShownScore::digits_prefix:
      return at.digits_prefix;
    case ShownScore::digits_in_place:
      return at.digits_in_place;
    case ShownScore::attention:
      break;
  }
  return kNoNumber;
}

Estimate change_of(const Measured& measured) { return negated(measured.loss, 100); }

double read_share(const Measured& measured) {
  return measured.read_bytes / measured.full_read_bytes;
}

std::string prompts_text(std::int64_t samples, std::int64_t texts, bool held_out) {
  if (samples <= 0) return {};
  return str(count_of(samples, "prompt", "prompts"), of_texts(samples, texts),
             held_out ? ", held out" : "");
}

std::string change_text(const Measured& measured) {
  const Estimate change = change_of(measured);
  if (std::isnan(change.mean)) return "score " + fixed_text(measured.score.mean, 3);
  const bool unchanged = std::abs(change.mean) < 0.05;
  const bool lost = !unchanged && change.mean < 0;
  const Estimate points = lost ? negated(change, 1) : change;
  std::string text = unchanged
                         ? "0 points lost"
                         : fixed_text(points.mean, 1) + (lost ? " points lost" : " points won");
  if (!std::isnan(points.low))
    text += str(" [", fixed_text(points.low, 1), ", ", fixed_text(points.high, 1), "]");
  if (measured.samples > 0)
    text += str(" on ", count_of(measured.samples, "sample", "samples"),
                of_texts(measured.samples, measured.texts));
  return text;
}

ScoreCurve sorted_curve(ScoreCurve curve) {
  std::stable_sort(curve.points.begin(), curve.points.end(),
                   [](const auto& a, const auto& b) { return a.setting < b.setting; });
  return curve;
}

void draw_scores(const ScoreCurve& curve, double left, double right, Chart& chart) {
  Line scores{"score", {}, Emphasis::strong};
  for (const auto& at : curve.points)
    scores.points.push_back({at.setting, at.score.mean, {}, at.score.low, at.score.high});
  if (!scores.points.empty()) {
    chart.bands.push_back({"95 % interval of the score", scores.points});
    chart.lines.push_back(std::move(scores));
  }
  if (curve.full) {
    const double full = curve.full->mean;
    chart.lines.push_back({"full cache", {{left, full}, {right, full}}, Emphasis::reference});
    if (curve.tolerance > 0)
      chart.bands.push_back({"tolerance",
                             {{left, full, {}, full - curve.tolerance, full},
                              {right, full, {}, full - curve.tolerance, full}}});
  }
  if (curve.chosen) chart.marks.push_back({"calibrated", *curve.chosen});
  if (curve.points.empty() || curve.samples <= 0) return;
  std::string note =
      str("scores are of the ", count_of(curve.samples, "sample", "samples"), " of the choice");
  if (curve.measured && curve.measured->held_out.value_or(false))
    note +=
        str("; the ", fixed_text(curve.measured->score.mean, 3),
            " of the calibrated setting on its card is of ",
            count_of(curve.measured->samples, "sample", "samples"), " that were held out of it");
  chart.notes.push_back(std::move(note));
}

}  // namespace kvatlas::viewer
