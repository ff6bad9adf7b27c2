// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/lazy_model.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/str.hpp"
#include "base/text_count.hpp"
#include "calibrate/rules/policy_reports.hpp"
#include "calibrate/rules/read_evidence.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace {

/// Thresholds in the method's own code.
const std::vector<AxisTick> kPublished = {
    {0.65, "Llama 2"}, {0.80, "Mistral"}, {0.85, "Qwen"}, {0.90, "Llama 3"}};

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

calibrate::LazyChoice choice_of(const LazySettings& settings) {
  return {settings.per_head, settings.fixed, settings.share};
}

std::string lazy_words(const LazySettings& settings) {
  return str("lazy in at least ", percent_text(settings.share), " of the samples");
}

/// Lazy rates [layer][KV head], a row a KV head.
Chart heads_chart(const LazySettings& settings, const LazyView& view) {
  Chart chart;
  chart.title = "SimLayerKV: lazy rate of KV heads";
  chart.notes.push_back(str("threshold ", fixed_text(settings.threshold, 5)));
  chart.x = layer_axis(static_cast<std::int64_t>(view.head_rates.size()));
  chart.y = {"KV head", ""};
  chart.table.columns = {{"layer"}, {"KV head"}, {"lazy rate", "share"}};
  Matrix matrix{"lazy rate", "share", {}, {}, {}};
  for (std::size_t l = 0; l < view.head_rates.size(); ++l) matrix.column_labels.push_back(str(l));
  for (std::size_t head = 0; head < view.head_rates.front().size(); ++head) {
    matrix.row_labels.push_back(str(head));
    for (const auto& of_layer : view.head_rates) matrix.values.push_back(of_layer[head]);
  }
  for (std::size_t l = 0; l < view.head_rates.size(); ++l)
    for (std::size_t head = 0; head < view.head_rates[l].size(); ++head)
      chart.table.rows.push_back({l, head, view.head_rates[l][head]});
  chart.matrices.push_back(std::move(matrix));
  return chart;
}

std::string title_of(const LazyModel& model, const LazySettings& settings, const LazyView& view) {
  return str("SimLayerKV: ", fixed_text(view.lazy_layers, 1), " of ", model.shape.layers,
             " layers lazy, layer ratio ", fixed_text(view.savings.layer_ratio, 2), ", KV ratio ",
             fixed_text(view.savings.kv_ratio, 2), " at ", settings.length, " tokens, ",
             fixed_text(view.savings.kv_ratio_4bit, 2), " with 4 bits");
}

Chart layers_chart(const LazyModel& model, const LazySettings& settings, const LazyView& view) {
  Chart chart;
  chart.title = title_of(model, settings, view);
  chart.notes.push_back(str("threshold ", fixed_text(settings.threshold, 5), ", initial ",
                            model.choices.keep.initial, ", recent ", model.choices.keep.recent,
                            ", ", count_of(std::ssize(model.positions), "sample", "samples")));
  if (model.left_out > 0)
    chart.notes.push_back(str(count_of(model.left_out, "sample", "samples"),
                              " left out: no longer than initial + recent, or not captured"));
  chart.x = layer_axis(model.shape.layers);
  chart.y = {"layer mass", "share of attention", {}, {{0, 1}}};
  Points samples{"samples", {}};
  Bars fixed;  // hatched over the whole height
  chart.table.columns = {{"layer"},       {"mean mass"}, {"least mass"},
                         {"median mass"}, {"most mass"}, {"lazy rate"},
                         {"static"},      {"near half"}, {"consistency"}};
  const auto means = calibrate::mean_masses(model.masses.layers);
  for (std::size_t l = 0; l < view.rates.size(); ++l) {
    const auto x = static_cast<double>(l);
    std::vector<double> masses;
    for (std::size_t s = 0; s < model.masses.layers.size(); ++s) {
      const double mass = model.masses.layers[s][l];
      masses.push_back(mass);
      samples.points.push_back({x, mass, model.names[s]});
      if (calibrate::is_lazy(mass, settings.threshold))
        samples.points.back().emphasis = Emphasis::strong;
    }
    Box box = box_of(x, masses);
    const bool lazy = view.fixed.lazy[l] != 0;
    if (lazy) {
      box.emphasis = Emphasis::strong;
      fixed.bars.push_back({x, 1, str("lazy in ", percent_text(view.rates[l])), Emphasis::strong});
    }
    box.flagged =
        std::find(view.near_half.begin(), view.near_half.end(), l) != view.near_half.end();
    chart.table.rows.push_back({x, means[l], box.least, box.median, box.most, view.rates[l],
                                lazy ? "lazy" : "full", box.flagged ? "yes" : "",
                                view.consistency.empty() ? kNoNumber : view.consistency[l]});
    chart.boxes.push_back(box);
  }
  chart.strong_boxes = lazy_words(settings);
  fixed.label = chart.strong_boxes;
  chart.flagged_boxes = str("within ", percent_text(settings.near_half), " of that");
  chart.points.push_back(std::move(samples));
  if (!fixed.bars.empty()) chart.bars.push_back(std::move(fixed));
  chart.marks.push_back(
      {"threshold", settings.threshold, false, Handle::lazy_threshold, Emphasis::strong});
  return chart;
}

/// In how many samples each layer is lazy, and how long it stays as it was.
Chart strip_chart(const LazyModel& model, const LazySettings& settings, const LazyView& view,
                  const Table& table) {
  Chart chart;
  chart.title = "SimLayerKV: lazy rate and consistency";
  chart.notes.push_back(str("fixed layers differ from the input's own decision in ",
                            percent_text(view.fixed.disagreement),
                            view.near_half.empty() ? "" : "; flagged, near the share: layers ",
                            view.near_half.empty() ? "" : list_str(view.near_half)));
  if (view.consistency.empty())
    chart.notes.push_back(
        "no consistency: 'kvatlas profile --new 8' takes the masses of generated tokens");
  chart.x = layer_axis(model.shape.layers);
  chart.y = {"share", "", {}, {{0, 1}}};
  chart.table = table;
  chart.strong_bars = lazy_words(settings);
  Bars rates{"lazy rate", {}}, consistency{"consistency over generated tokens", {}};
  for (std::size_t l = 0; l < view.rates.size(); ++l) {
    const auto x = static_cast<double>(l);
    rates.bars.push_back({x, view.rates[l], percent_text(view.rates[l]),
                          view.fixed.lazy[l] != 0 ? Emphasis::strong : Emphasis::normal});
    if (!view.consistency.empty())
      consistency.bars.push_back({x, view.consistency[l], percent_text(view.consistency[l])});
  }
  chart.bars.push_back(std::move(rates));
  if (!consistency.bars.empty()) chart.bars.push_back(std::move(consistency));
  chart.marks.push_back({"share", settings.share, false, Handle::lazy_share});
  return chart;
}

/// Score and cache kept over all thresholds.
Chart scores_chart(const LazyModel& model, const LazySettings& settings, const LazyCurve& curve) {
  Chart chart;
  chart.title = "SimLayerKV: score and cache kept against the threshold";
  chart.x = {"threshold", "", {}, {{0, 1}}};
  chart.y = {"score", "", {}, {{0, 1}}};
  chart.right = Axis{"KV kept", "share", {}, {{0, 1}}};
  draw_scores(model.scores, 0, 1, chart);
  if (model.scores.points.empty())
    chart.notes.push_back("no scores: 'kvatlas calibrate simlayerkv --model' measures them");
  Line kept{"KV kept", {}, Emphasis::normal};
  kept.right = true;
  chart.table.columns = {{"threshold"},     {"score"},         {"low"},
                         {"high"},          {"lazy layers"},   {"KV kept", "share"},
                         {"kept", "bytes"}, {"saved", "bytes"}};
  auto measured = model.scores.points.begin();
  for (std::size_t i = 0; i < curve.thresholds.size(); ++i) {
    const double threshold = curve.thresholds[i];
    const auto savings =
        calibrate::layer_savings(curve.shares[i], model.shape, settings.length, model.choices.keep);
    const double lazy = sum_of(curve.shares[i]);
    Estimate score;
    while (measured != model.scores.points.end() && measured->setting <= threshold)
      score = (measured++)->score;
    kept.points.push_back({threshold, 1 / savings.kv_ratio});
    chart.table.rows.push_back({threshold, score.mean, score.low, score.high, lazy,
                                1 / savings.kv_ratio, savings.kept_bytes,
                                savings.full_bytes - savings.kept_bytes});
  }
  chart.lines.push_back(std::move(kept));
  for (const auto& published : kPublished)
    chart.marks.push_back({published.label, published.at, true, Handle::none, Emphasis::faint});
  chart.marks.push_back(
      {"threshold", settings.threshold, true, Handle::lazy_threshold, Emphasis::strong});
  return chart;
}

}  // namespace

LazyModel read_lazy_model(const profile::Reader& profile, const std::vector<std::size_t>& positions,
                          const LazyChoices& choices, const nlohmann::json& section) {
  calibrate::require_fit(calibrate::method::kSimLayerKv, profile.header());
  calibrate::SimLayerKv policy;
  policy.keep = choices.keep;
  policy.identify = choices.identify;
  policy.w_last = choices.w_last;
  LazyModel model;
  model.choices = choices;
  model.shape = calibrate::cache_shape(profile.header());
  if (section.is_object())
    model.scores =
        score_curve(report_in<calibrate::SimLayerKvReport>(section, calibrate::method::kSimLayerKv),
                    std::get<calibrate::SimLayerKv>(
                        calibrate::part_of(calibrate::method::kSimLayerKv.name, section))
                        .threshold);
  const auto kept = choices.keep.initial + choices.keep.recent;
  auto found =
      calibrate::read_masses(profile, calibrate::longer_than(profile, positions, kept), policy);
  model.positions = std::move(found.positions);
  model.masses = std::move(found);
  model.left_out = positions.size() - model.positions.size();
  for (const auto position : model.positions) model.names.push_back(profile.samples()[position].id);
  model.steps = calibrate::read_steps(profile, model.positions, choices.keep);
  if (model.positions.empty())
    fail(ErrorCode::usage, "no sample chosen has masses and more than the ", kept,
         " tokens that are kept anyway: choose a smaller recent, or longer samples");
  return model;
}

LazyCurve lazy_curve(const LazyModel& model, const LazySettings& settings,
                     std::optional<double> also) {
  LazyCurve curve;
  for (int hundredths = 0; hundredths <= 100; ++hundredths)
    curve.thresholds.push_back(hundredths / 100.0);
  for (const auto& at : model.scores.points) curve.thresholds.push_back(at.setting);
  if (also) curve.thresholds.push_back(*also);
  std::sort(curve.thresholds.begin(), curve.thresholds.end());
  curve.thresholds.erase(std::unique(curve.thresholds.begin(), curve.thresholds.end()),
                         curve.thresholds.end());
  for (const double threshold : curve.thresholds)
    curve.shares.push_back(calibrate::lazy_shares(model.masses, threshold, choice_of(settings)));
  return curve;
}

LazyDecisions lazy_decisions(const LazyModel& model, const LazySettings& settings) {
  LazyDecisions out;
  out.shares = calibrate::lazy_shares(model.masses, settings.threshold, choice_of(settings));
  out.lazy_layers = sum_of(out.shares);
  out.rates = calibrate::lazy_rates(model.masses.layers, settings.threshold);
  out.fixed = calibrate::static_view(model.masses.layers, settings.threshold, settings.share);
  for (std::size_t l = 0; l < out.rates.size(); ++l)
    if (std::abs(out.rates[l] - settings.share) < settings.near_half) out.near_half.push_back(l);
  return out;
}

LazyView lazy_view(const LazyModel& model, const LazySettings& settings, const LazyCurve& curve) {
  LazyView view{lazy_decisions(model, settings)};
  if (settings.per_head)
    view.head_rates =
        calibrate::head_view(model.masses.heads, settings.threshold, settings.share).rates;
  view.consistency = calibrate::layer_consistency(model.steps, settings.threshold);
  view.savings =
      calibrate::layer_savings(view.shares, model.shape, settings.length, model.choices.keep);
  view.layers = layers_chart(model, settings, view);
  view.strip = strip_chart(model, settings, view, view.layers.table);
  if (settings.per_head) view.heads = heads_chart(settings, view);
  view.scores = scores_chart(model, settings, curve);
  return view;
}

}  // namespace kvatlas::viewer
