// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/blocks_model.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/str.hpp"
#include "calibrate/rules/policy_reports.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace {

using calibrate::Blocks;
using calibrate::PodPoint;
using calibrate::Similarity;

std::vector<Matrix::Outline> outlines_of(const std::vector<std::int64_t>& lowest) {
  std::vector<Matrix::Outline> out;
  for (std::size_t layer = 0; layer < lowest.size(); ++layer) {
    const auto at = static_cast<std::int64_t>(layer);
    if (lowest[layer] == at) out.push_back({at, at});
    out.back().last = at;
  }
  return out;
}

std::int64_t block_count(const std::vector<std::int64_t>& lowest) {
  return calibrate::count_blocks({lowest});
}

/// The blocks of what is grouped: query heads, or KV heads by the first query head of each.
Blocks grouped_blocks(const Blocks& of_query_heads, std::int64_t groups) {
  Blocks out;
  const std::size_t step = of_query_heads.size() / static_cast<std::size_t>(groups);
  for (std::size_t head = 0; head < of_query_heads.size(); head += step)
    out.push_back(of_query_heads[head]);
  return out;
}

const char* shown_word(const BlocksSettings& settings) {
  return settings.show_divergence ? "divergence" : "similarity";
}
/// Of what is grouped.
const Similarity& shown_similarity(const BlocksModel& model, const BlocksSettings& settings) {
  return settings.per_query_head ? model.similarity : model.of_kv_heads;
}
const char* head_word(const BlocksSettings& settings) {
  return settings.per_query_head ? "head" : "KV head";
}

Matrix head_matrix(const Similarity& shown, const std::vector<std::int64_t>& lowest,
                   const BlocksSettings& settings, std::int64_t head) {
  const auto layers = static_cast<std::size_t>(shown.layers);
  std::vector<std::string> labels;
  for (std::size_t l = 0; l < layers; ++l) labels.push_back(str(l));
  const double* first = shown.values.data() + static_cast<std::size_t>(head) * layers * layers;
  Matrix matrix{str(head_word(settings), " ", head),
                shown_word(settings),
                labels,
                labels,
                {first, first + layers * layers}};
  if (settings.show_divergence)
    for (double& value : matrix.values) value = 1 - value;
  matrix.outlines = outlines_of(lowest);
  return matrix;
}

/// Axes, notes and the line on the legend, of one matrix or of all.
Chart empty_matrices(const BlocksModel& model, const BlocksSettings& settings) {
  Chart chart;
  chart.notes.push_back(
      "similarity is 1 minus the mean Jensen-Shannon divergence of the last rows");
  chart.x = chart.y = layer_axis(model.shape.layers);
  chart.marks.push_back({"delta", settings.show_divergence ? 1 - settings.delta : settings.delta,
                         false, settings.show_divergence ? Handle::divergence : Handle::similarity,
                         Emphasis::strong});
  return chart;
}

Chart matrices_chart(const BlocksModel& model, const Similarity& shown, const Blocks& blocks,
                     const BlocksSettings& settings, const BlocksView& view) {
  Chart chart = empty_matrices(model, settings);
  chart.title =
      str("PoD at delta ", fixed_text(settings.delta, 2), ": ", view.point.blocks, " blocks, ",
          percent_text(view.point.dropped), " of the keys dropped, ", percent_text(view.saved),
          " of the cache saved at ", settings.length, " tokens");
  chart.notes.push_back("blocks are counted over query heads");
  chart.notes.push_back(
      str("greatest batch: ", view.batch, ", with the full cache ", view.full_batch));
  chart.table.columns = {{head_word(settings)}, {"layer"}, {"lowest layer of its block"}};
  for (std::int64_t head = 0; head < shown.heads; ++head) {
    const auto& lowest = blocks[head];
    chart.matrices.push_back(head_matrix(shown, lowest, settings, head));
    for (std::size_t l = 0; l < lowest.size(); ++l)
      chart.table.rows.push_back({head, l, lowest[l]});
  }
  return chart;
}

Chart counts_chart(const Blocks& blocks, const BlocksSettings& settings) {
  Chart chart;
  chart.title = str("PoD: blocks a ", head_word(settings));
  chart.x = {head_word(settings), "", {}, {{-0.5, static_cast<double>(blocks.size()) - 0.5}}};
  chart.y = {"blocks", "", {}, {{0, static_cast<double>(blocks.front().size())}}};
  chart.table.columns = {{head_word(settings)}, {"blocks"}};
  Bars bars{"blocks", {}};
  for (std::size_t head = 0; head < blocks.size(); ++head) {
    const auto x = static_cast<double>(head);
    const auto count = static_cast<double>(block_count(blocks[head]));
    bars.bars.push_back({x, count, fixed_text(count, 0)});
    chart.table.rows.push_back({x, count});
  }
  chart.bars.push_back(std::move(bars));
  return chart;
}

/// What every hundredth of delta drops, every other one that was measured, and the present one.
std::vector<PodPoint> with_measured(const BlocksModel& model, const BlocksSettings& settings) {
  std::vector<PodPoint> points = settings.per_query_head ? model.by_query_head : model.by_kv_head;
  std::vector<double> deltas = {settings.delta};
  for (const auto& at : model.scores.points) deltas.push_back(at.setting);
  for (const double delta : deltas) {
    const bool known = std::any_of(points.begin(), points.end(), [&](const PodPoint& point) {
      return std::abs(point.delta - delta) < 1e-9;
    });
    if (known) continue;
    BlocksSettings there = settings;
    there.delta = delta;
    points.push_back(block_decisions(model, there).point);
  }
  std::sort(points.begin(), points.end(),
            [](const PodPoint& a, const PodPoint& b) { return a.delta < b.delta; });
  return points;
}

std::string gate_title(double skipped, double tau) {
  return str("PoD: ", percent_text(skipped), " of the distant parts skipped at tau ",
             fixed_text(tau, 2));
}

double saved_at(const PodPoint& point, const BlocksModel& model, const BlocksSettings& settings,
                std::int64_t tokens) {
  return calibrate::pod_saved(point.layers, model.shape, tokens, settings.proximal);
}

Chart sweep_chart(const BlocksModel& model, const std::vector<PodPoint>& points,
                  const BlocksSettings& settings, const BlocksView& view) {
  Chart chart;
  chart.title = str("PoD: what every delta saves at ", settings.length, " tokens");
  chart.x = {"delta", "", {}, {{0, 1}}};
  chart.y = {"share", "", {}, {{0, 1}}};
  chart.right = Axis{"batch", "sequences", {}, {}};
  draw_scores(model.scores, 0, 1, chart);
  Line dropped{"keys dropped", {}, Emphasis::normal}, saved{"cache saved", {}, Emphasis::strong};
  Line batch{"greatest batch", {}, Emphasis::faint};
  batch.right = true;
  chart.table.columns = {{"delta"},
                         {"score"},
                         {"low"},
                         {"high"},
                         {"blocks"},
                         {"keys dropped", "share"},
                         {"cache saved", "share"},
                         {"greatest batch"}};
  for (const PodPoint& point : points) {
    const double share = saved_at(point, model, settings, settings.length);
    const std::int64_t end = settings.length + settings.new_tokens;
    const auto fits = static_cast<double>(calibrate::greatest_batch(
        settings.memory_bytes, model.shape, end, saved_at(point, model, settings, end)));
    dropped.points.push_back({point.delta, point.dropped});
    saved.points.push_back({point.delta, share});
    batch.points.push_back({point.delta, fits});
    Estimate score;
    for (const auto& at : model.scores.points)
      if (std::abs(at.setting - point.delta) < 1e-9) score = at.score;
    chart.table.rows.push_back(
        {point.delta, score.mean, score.low, score.high, point.blocks, point.dropped, share, fits});
  }
  chart.lines.push_back(std::move(dropped));
  chart.lines.push_back(std::move(saved));
  chart.lines.push_back(std::move(batch));
  chart.marks.push_back({"delta", settings.delta, true, Handle::similarity, Emphasis::strong});
  if (settings.wanted_saving) {
    chart.marks.push_back({"wanted saving", *settings.wanted_saving, false, Handle::wanted_saving});
    if (view.delta_for_saving)
      chart.marks.push_back({"delta that saves it", *view.delta_for_saving});
    else
      chart.notes.push_back(str("no delta saves ", percent_text(*settings.wanted_saving)));
  }
  return chart;
}

}  // namespace

BlocksModel read_blocks_model(const profile::Reader& profile,
                              const std::vector<std::size_t>& positions,
                              const nlohmann::json& section) {
  calibrate::require_fit(calibrate::method::kPod, profile.header());
  BlocksModel model;
  model.shape = calibrate::cache_shape(profile.header());
  auto found = calibrate::read_similarity(profile, positions);
  if (found.positions.empty()) fail(ErrorCode::usage, "no sample chosen has layer similarities");
  model.positions = std::move(found.positions);
  model.similarity = std::move(found);
  model.of_kv_heads = calibrate::of_kv_heads(model.similarity, model.shape.kv_heads);
  model.by_kv_head = calibrate::pod_hundredths(model.similarity, model.shape.kv_heads, false);
  model.by_query_head = calibrate::pod_hundredths(model.similarity, model.shape.kv_heads, true);
  if (section.is_object())
    model.scores = score_curve(
        report_in<calibrate::PodReport>(section, calibrate::method::kPod),
        std::get<calibrate::Pod>(calibrate::part_of(calibrate::method::kPod.name, section)).delta);
  return model;
}

BlockDecisions block_decisions(const BlocksModel& model, const BlocksSettings& settings) {
  BlockDecisions out;
  out.blocks = calibrate::for_query_heads(
      calibrate::layer_blocks(shown_similarity(model, settings), settings.delta),
      model.similarity.heads);
  out.point = calibrate::pod_point(settings.delta, out.blocks, model.shape.kv_heads);
  out.saved = saved_at(out.point, model, settings, settings.length);
  return out;
}

BlocksView blocks_view(const BlocksModel& model, const BlocksSettings& settings) {
  BlocksView view{block_decisions(model, settings)};
  const Similarity& shown = shown_similarity(model, settings);
  const std::int64_t end = settings.length + settings.new_tokens;
  view.full_batch = calibrate::greatest_batch(settings.memory_bytes, model.shape, end);
  view.batch = calibrate::greatest_batch(settings.memory_bytes, model.shape, end,
                                         saved_at(view.point, model, settings, end));
  const auto points = with_measured(model, settings);
  if (settings.wanted_saving)
    view.delta_for_saving = calibrate::delta_for(points, model.shape, settings.length,
                                                 settings.proximal, *settings.wanted_saving);
  const Blocks grouped = grouped_blocks(view.blocks, shown.heads);
  view.matrices = matrices_chart(model, shown, grouped, settings, view);
  view.counts = counts_chart(grouped, settings);
  view.sweep = sweep_chart(model, points, settings, view);
  return view;
}

Chart matrix_chart(const BlocksModel& model, const BlocksSettings& settings, std::int64_t head) {
  const Similarity& shown = shown_similarity(model, settings);
  if (head < 0 || head >= shown.heads)
    fail(ErrorCode::usage, "there is no ", head_word(settings), " ", head, ", but ", shown.heads,
         " of them");
  const auto layers = static_cast<std::size_t>(shown.layers);
  const auto lowest = calibrate::layer_blocks(shown, settings.delta)[head];
  Chart chart = empty_matrices(model, settings);
  chart.title = str("PoD: ", head_word(settings), " ", head, ", ", block_count(lowest),
                    " blocks at delta ", fixed_text(settings.delta, 2));
  chart.matrices.push_back(head_matrix(shown, lowest, settings, head));
  chart.table.columns = {{"layer a"}, {"layer b"}, {shown_word(settings)}, {"same block"}};
  for (std::size_t a = 0; a < layers; ++a)
    for (std::size_t b = 0; b < layers; ++b)
      chart.table.rows.push_back(
          {a, b, chart.matrices.front().at(a, b), lowest[a] == lowest[b] ? "yes" : "no"});
  return chart;
}

GateView at_tau(GateView view, double tau) {
  Chart& chart = view.chart;
  for (const auto& row : chart.table.rows)
    if (row[0].number == tau) view.skipped = row[1].number;
  if (chart.notes.empty()) chart.title = gate_title(view.skipped, tau);
  chart.marks.front().at = tau;
  return view;
}

GateModel read_gate_model(const profile::Reader& profile, const std::vector<std::size_t>& positions,
                          calibrate::Proximity proximal) {
  GateModel model;
  for (const auto position : positions)
    model.samples.push_back(calibrate::read_gate_sums(profile, position, proximal));
  return model;
}

GateView gate_view(const GateModel& model, const calibrate::Blocks& blocks, double tau) {
  calibrate::GateCurve curve(blocks);
  for (const auto& sample : model.samples) curve.add(sample.view());
  GateView view;
  view.skipped = curve.skipped(tau);
  Chart& chart = view.chart;
  const bool none = curve.rows() == 0;
  chart.title =
      none ? "PoD: no distant parts that could be skipped" : gate_title(view.skipped, tau);
  chart.x = {"tau", "", {}, {{0, 1}}};
  chart.y = {"skipped", "share", {}, {{0, 1}}};
  chart.table.columns = {{"tau"}, {"skipped", "share"}};
  if (none)
    chart.notes.push_back(
        "neither the prompts nor the windows of the layers whose keys are shared hold more than "
        "the proximal tokens: nothing is distant");
  Line line{"distant attention skipped", {}, Emphasis::strong};
  for (int hundredths = 0; hundredths <= 100; ++hundredths) {
    const double at = hundredths / 100.0, skipped = curve.skipped(at);
    line.points.push_back({at, skipped});
    chart.table.rows.push_back({at, skipped});
  }
  chart.lines.push_back(std::move(line));
  chart.marks.push_back({"tau", tau, true, Handle::gate_threshold, Emphasis::strong});
  return view;
}

}  // namespace kvatlas::viewer
