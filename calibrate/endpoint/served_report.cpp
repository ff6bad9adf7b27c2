// SPDX-License-Identifier: Apache-2.0
#include "calibrate/endpoint/served_report.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/plain_text.hpp"
#include "base/str.hpp"
#include "base/text_count.hpp"
#include "calibrate/rules/calibrated.hpp"
#include "calibrate/rules/policy_reports.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

double mean_over(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

/// Bounds of each pair's value, from below and from above.
struct BoundValues {
  std::vector<double> low, high;
  std::vector<std::string> groups;

  void add(double low_value, double high_value, const std::string& group) {
    low.push_back(low_value);
    high.push_back(high_value);
    groups.push_back(group);
  }
  /// The low end of the lower bounds' interval, and the high end of the upper ones'.
  Estimate interval(double most, double& high_mean) const {
    const auto lower = group_means(low, groups), upper = group_means(high, groups);
    if (lower.empty()) return {};
    high_mean = mean_over(upper);
    return {mean_over(lower), betting_mean(lower, {0, most}).low,
            std::min(most, betting_mean(upper, {0, most}).high)};
  }
};

RatioMedian median_of(std::span<const AskedPair> pairs, std::optional<double> AskedPair::*ratio,
                      double AskedPair::*full, double AskedPair::*compressed) {
  std::vector<double> ratios, of_full, of_compressed;
  for (const auto& pair : pairs)
    if (pair.*ratio) {
      ratios.push_back(*(pair.*ratio));
      of_full.push_back(pair.*full);
      of_compressed.push_back(pair.*compressed);
    }
  RatioMedian out;
  out.pairs = ratios.size();
  if (ratios.empty()) return out;
  out.ratio = quantile_of(ratios, 0.5);
  out.full_seconds = quantile_of(of_full, 0.5).value;
  out.compressed_seconds = quantile_of(of_compressed, 0.5).value;
  return out;
}

std::string milliseconds(double seconds) { return fixed_text(1000 * seconds, 1) + " ms"; }

std::string ratio_text(const char* what, const RatioMedian& of) {
  return str(what, ": ", fixed_text(of.ratio.value, 2), " times the full server's [",
             fixed_text(of.ratio.low, 2), ", ", fixed_text(of.ratio.high, 2), "] (median of ",
             count_of(static_cast<std::int64_t>(of.pairs), "pair", "pairs"), "; ",
             milliseconds(of.compressed_seconds), " and ", milliseconds(of.full_seconds), ")");
}

std::string between(const Estimate& of, double high_mean, int digits) {
  return str("from ", fixed_text(of.mean, digits), " to ", fixed_text(high_mean, digits), " [",
             fixed_text(of.low, digits), ", ", fixed_text(of.high, digits), "]");
}

json ratio_json(const RatioMedian& of) {
  return {{"pairs", of.pairs},
          {"median", number_json(of.ratio.value)},
          {"low", number_json(of.ratio.low)},
          {"high", number_json(of.ratio.high)},
          {"full_seconds", number_json(of.full_seconds)},
          {"seconds", number_json(of.compressed_seconds)}};
}

json bounds_json(const Estimate& of, double high_mean, std::size_t pairs) {
  return {{"pairs", pairs},
          {"mean_at_least", number_json(of.mean)},
          {"mean_at_most", number_json(high_mean)},
          {"low", number_json(of.low)},
          {"high", number_json(of.high)}};
}

json load_json(const std::vector<LoadLevel>& levels) {
  json out = json::array();
  for (const auto& level : levels)
    out.push_back(
        {{"at_a_time", level.at_a_time},
         {"tokens_per_second", number_json(static_cast<double>(level.tokens) / level.seconds)},
         {"most_running", level.most_running},
         {"most_waiting", level.most_waiting},
         {"preempted", level.preempted},
         {"refused", level.refused}});
  return out;
}

std::string load_text(const char* server, const std::vector<LoadLevel>& levels) {
  std::string line = str("load of ", server, ":");
  for (const auto& level : levels)
    line += str(' ', level.at_a_time, " at a time ",
                fixed_text(static_cast<double>(level.tokens) / level.seconds, 1), " tokens/s",
                level.most_waiting > 0 ? str(" (", level.most_waiting, " wait)") : "",
                level.preempted > 0 ? str(" (", level.preempted, " preempted)") : "",
                level.refused ? " (some refused)" : "", &level == &levels.back() ? "" : ",");
  return line;
}

}  // namespace

ServedFigures figures_of(std::span<const AskedPair> pairs, std::span<const std::string> groups,
                         bool forced) {
  ServedFigures out;
  out.forced = forced;
  BoundValues agreement, tv, js;
  std::vector<double> kl;
  std::vector<std::string> kl_groups;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const AskedPair& pair = pairs[i];
    const bool full_failed = !pair.full_problem.empty();
    const bool compressed_failed = !pair.compressed_problem.empty();
    out.both_failed += full_failed && compressed_failed;
    out.full_failed += full_failed && !compressed_failed;
    out.compressed_failed += compressed_failed && !full_failed;
    if (out.full_problem.empty()) out.full_problem = pair.full_problem;
    if (out.compressed_problem.empty()) out.compressed_problem = pair.compressed_problem;
    if (full_failed || compressed_failed) continue;
    ++out.pairs;
    out.same += pair.same;
    out.full_cut += pair.full_cut;
    out.compressed_cut += pair.compressed_cut;
    out.cached_tokens += pair.cached_tokens;
    out.controls += pair.has_control;
    out.controls_same += pair.control_same;
    if (pair.agreement) agreement.add(pair.agreement->low, pair.agreement->high, groups[i]);
    if (pair.divergences) {
      const auto& bounds = *pair.divergences;
      tv.add(bounds.tv_low, bounds.tv_high, groups[i]);
      js.add(bounds.js_low, bounds.js_high, groups[i]);
      kl.push_back(std::min(bounds.kl_low, 1e6));
      kl_groups.push_back(groups[i]);
      out.places += pair.places;
    }
  }
  out.agreement_pairs = agreement.low.size();
  out.agreement = agreement.interval(1, out.agreement_high);
  out.divergence_pairs = tv.low.size();
  out.tv = tv.interval(1, out.tv_high);
  out.js = js.interval(std::numbers::ln2, out.js_high);
  if (!kl.empty()) out.kl = quantile_of(group_means(kl, kl_groups), 0.5);
  out.first_token = median_of(pairs, &AskedPair::first_token_ratio, &AskedPair::full_first_seconds,
                              &AskedPair::compressed_first_seconds);
  out.per_token = median_of(pairs, &AskedPair::per_token_ratio, &AskedPair::full_token_seconds,
                            &AskedPair::compressed_token_seconds);
  return out;
}

std::vector<std::string> figures_text(const ServedFigures& f, const ServedRun& run) {
  std::vector<std::string> out;
  out.push_back(str("answers: ", f.same, " of ", f.pairs, " are the same; the most tokens ended ",
                    f.compressed_cut, ", and ", f.full_cut, " of the full server's"));
  if (f.compressed_failed > 0)
    out.push_back(str("failed on the judged server alone, and score 0 there: ", f.compressed_failed,
                      " (", f.compressed_problem, ")"));
  if (f.full_failed > 0)
    out.push_back(str("failed on the full server alone, and are left out: ", f.full_failed, " (",
                      f.full_problem, ")"));
  if (f.both_failed > 0)
    out.push_back(
        str("failed on both, and are left out: ", f.both_failed, " (", f.full_problem, ")"));
  if (f.agreement_pairs > 0 && f.forced && f.agreement_high - f.agreement.mean < 1e-9)
    out.push_back(str("agreement along the full server's answers, forced: ",
                      estimate_text({f.agreement.mean, f.agreement.low, f.agreement.high})));
  else if (f.agreement_pairs > 0)
    out.push_back(str("agreement along the full server's answers, ",
                      f.forced ? "forced as text: " : "by their common beginnings: ",
                      between(f.agreement, f.agreement_high, 3)));
  if (f.divergence_pairs > 0)
    out.push_back(str("next-token distributions at ", count_of(f.places, "place", "places"),
                      f.forced ? "" : " up to the first difference", ": total variation ",
                      between(f.tv, f.tv_high, 4), ", JS ", between(f.js, f.js_high, 4),
                      " nats, KL at least ", fixed_text(f.kl.value, 4),
                      " nats in half of the texts [", fixed_text(f.kl.low, 4), ", -]"));
  if (f.first_token.pairs > 0) out.push_back(ratio_text("time to the first token", f.first_token));
  if (f.per_token.pairs > 0) out.push_back(ratio_text("time per token", f.per_token));
  if (f.cached_tokens > 0)
    out.push_back(str("prompt tokens that came from a prefix cache: ", f.cached_tokens));
  if (f.controls > 0)
    out.push_back(str("control: asked again, the full server gives ", f.controls - f.controls_same,
                      " of ", f.controls, " answers otherwise, and loses ",
                      estimate_text(run.control_loss, 1), " points: what batching alone does"));
  if (!run.full_load.empty()) out.push_back(load_text("the full server", run.full_load));
  if (!run.compressed_load.empty())
    out.push_back(load_text("the judged server", run.compressed_load));
  if (!run.signs.empty()) {
    out.push_back(str("did a compression run: ", seen_text(seen_of(run.signs))));
    for (const auto& sign : run.signs)
      out.push_back(str("  ", sign.name, ": ", seen_text(sign.seen), " (", sign.words, ")"));
  }
  return out;
}

json figures_json(const ServedFigures& f, const ServedRun& run) {
  json out = {
      {"pairs", f.pairs},
      {"same_answers", f.same},
      {"ended_by_length", {{"full", f.full_cut}, {"endpoint", f.compressed_cut}}},
      {"failed",
       {{"full", f.full_failed}, {"endpoint", f.compressed_failed}, {"both", f.both_failed}}},
      {"cached_tokens", f.cached_tokens},
      {"first_token", ratio_json(f.first_token)},
      {"per_token", ratio_json(f.per_token)},
      {"control",
       {{"prompts", f.controls},
        {"same_answers", f.controls_same},
        {"loss_points", estimate_json(run.control_loss)}}}};
  if (f.agreement_pairs > 0) {
    out["agreement"] = bounds_json(f.agreement, f.agreement_high, f.agreement_pairs);
    out["agreement"]["by"] = f.forced ? "forced decoding" : "common beginning";
  }
  if (f.divergence_pairs > 0) {
    out["total_variation"] = bounds_json(f.tv, f.tv_high, f.divergence_pairs);
    out["js_nats"] = bounds_json(f.js, f.js_high, f.divergence_pairs);
    out["kl_nats_at_least"] = {{"median", number_json(f.kl.value)}, {"low", number_json(f.kl.low)}};
    out["places"] = f.places;
  }
  if (!run.full_load.empty() || !run.compressed_load.empty())
    out["load"] = {{"full", load_json(run.full_load)},
                   {"endpoint", load_json(run.compressed_load)}};
  if (!run.signs.empty()) {
    out["compression"] = {{"verdict", seen_text(seen_of(run.signs))}, {"signs", json::array()}};
    for (const auto& sign : run.signs)
      out["compression"]["signs"].push_back(
          {{"name", sign.name}, {"verdict", seen_text(sign.seen)}, {"reason", sign.words}});
  }
  return out;
}

}  // namespace kvatlas::calibrate
