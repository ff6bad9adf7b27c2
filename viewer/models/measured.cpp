// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/measured.hpp"

#include <algorithm>
#include <cmath>

#include "base/str.hpp"
#include "base/text_count.hpp"
#include "calibrate/rules/policy_reports.hpp"

namespace kvatlas::viewer {
namespace {

using nlohmann::json;

/// A loss as a change in points, or a change as a loss, `factor` points a unit: the ends change
/// places.
Interval negated(const Interval& loss, double factor) {
  return {0 - factor * loss.mean, 0 - factor * loss.high, 0 - factor * loss.low};
}

std::vector<Measured::At> depths_of(const json& list) {
  std::vector<Measured::At> out;
  if (!list.is_array()) return out;
  for (const json& at : list)
    if (const double score = number_in(at, "score"); !std::isnan(score))
      out.push_back({whole_in(at, "length"), number_in(at, "depth"), whole_in(at, "samples"), score,
                     number_in(at, "digits_prefix"), number_in(at, "digits_in_place")});
  return out;
}

std::vector<Measured::Held> held_of(const json& over_tokens) {
  const auto tokens = numbers_of(member_of(over_tokens, "tokens")),
             bytes = numbers_of(member_of(over_tokens, "bytes"));
  std::vector<Measured::Held> out;
  for (std::size_t i = 0; i < std::min(tokens.size(), bytes.size()); ++i)
    if (std::isfinite(tokens[i]) && std::isfinite(bytes[i])) out.push_back({tokens[i], bytes[i]});
  return out;
}

std::vector<Measured::Turn> turns_of(const json& list) {
  std::vector<Measured::Turn> out;
  if (!list.is_array()) return out;
  for (const json& at : list)
    if (const Interval score = interval_of(member_of(at, "score")); !std::isnan(score.mean))
      out.push_back({whole_in(at, "turn"), score});
  return out;
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

double Measured::At::shown(ShownScore what) const {
  switch (what) {
    case ShownScore::score:
      return score;
    case ShownScore::digits_prefix:
      return digits_prefix;
    case ShownScore::digits_in_place:
      return digits_in_place;
    case ShownScore::attention:
      break;
  }
  return kNoNumber;
}

std::optional<Measured> measured_of(const json& measured) {
  Measured out;
  out.score = interval_of(member_of(measured, "score"));
  if (std::isnan(out.score.mean)) return std::nullopt;
  out.samples = whole_in(measured, "samples");
  out.texts = whole_in(measured, "texts");
  out.held_out = member_of(measured, "held_out") == true;
  out.full = interval_of(member_of(measured, "full"));
  const Interval loss = interval_of(member_of(measured, "loss"));
  out.change = std::isnan(loss.mean) ? negated(interval_of(member_of(measured, "loss_points")), 1)
                                     : negated(loss, 100);
  if (std::isnan(out.full.mean)) out.full.mean = out.score.mean - out.change.mean / 100;
  out.kept_share = number_in(measured, "kept_share");
  if (std::isnan(out.kept_share)) out.kept_share = 1 - number_in(measured, "kv_saved");
  out.read_share = number_in(measured, "read_bytes_per_token") /
                   number_in(measured, "full_read_bytes_per_token");
  out.kl = calibrate::divergence_from(member_of(measured, "kl"));
  out.agreement = interval_of(member_of(measured, "agreement"));
  const json& tasks = member_of(measured, "tasks");
  if (tasks.is_object() && tasks.size() > 1)
    for (const auto& [task, of_task] : tasks.items())
      out.tasks[task] = interval_of(member_of(of_task, "score"));
  out.depths = depths_of(member_of(measured, "by_length_and_depth"));
  out.full_depths = depths_of(member_of(measured, "full_by_length_and_depth"));
  out.turns = turns_of(member_of(measured, "by_turn"));
  out.full_turns = turns_of(member_of(measured, "full_by_turn"));
  out.held = held_of(member_of(measured, "held_over_tokens"));
  out.full_held = held_of(member_of(measured, "full_held_over_tokens"));
  return out;
}

std::string prompts_text(std::int64_t samples, std::int64_t texts, bool held_out) {
  if (samples <= 0) return {};
  return str(samples, samples == 1 ? " prompt" : " prompts", of_texts(samples, texts),
             held_out ? ", held out" : "");
}

std::string change_text(const Measured& measured) {
  if (std::isnan(measured.change.mean)) return "score " + fixed_text(measured.score.mean, 3);
  const bool unchanged = std::abs(measured.change.mean) < 0.05;
  const bool lost = !unchanged && measured.change.mean < 0;
  const Interval points = lost ? negated(measured.change, 1) : measured.change;
  std::string text = unchanged
                         ? "0 points lost"
                         : fixed_text(points.mean, 1) + (lost ? " points lost" : " points won");
  if (!std::isnan(points.low))
    text += str(" [", fixed_text(points.low, 1), ", ", fixed_text(points.high, 1), "]");
  if (measured.samples > 0)
    text += str(" on ", measured.samples, measured.samples == 1 ? " sample" : " samples",
                of_texts(measured.samples, measured.texts));
  return text;
}

}  // namespace kvatlas::viewer
