// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/precision_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/str.hpp"
#include "base/text_count.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/rules/precision.hpp"

namespace kvatlas::viewer {
namespace {

using calibrate::KvFormat;
using nlohmann::json;
using Item = PrecisionModel::Item;
constexpr const char* kName = calibrate::method::kPrecision.name;
/// Smaller divergences are rounding of the arithmetic, and have the colour of this one.
constexpr double kLeastKl = 1e-6;

std::string word_of(KvFormat format) { return std::string(calibrate::facts_of(format).word); }

KvFormat format_called(const std::string& word, const char* place) {
  if (const auto known = calibrate::kv_format_called(word)) return *known;
  fail(ErrorCode::unreadable, place, ": there is no format ", quoted(word));
}

calibrate::Precision part_in(const json& section) {
  return std::get<calibrate::Precision>(calibrate::part_of(kName, section));
}

void read_sensitivity(calibrate::FormatSensitivity sensitivity, PrecisionModel& model) {
  for (const auto& word : sensitivity.formats)
    model.formats.push_back(format_called(word, "precision.sensitivity.formats"));
  model.samples = sensitivity.samples;
  model.items = std::move(sensitivity.items);
  const auto in_model = [&](std::int64_t layer) {
    return layer >= 0 && layer < static_cast<std::int64_t>(model.layers());
  };
  for (const Item& item : model.items)
    if (item.layers.empty() || !(item.keys || item.values) ||
        item.kl.size() != model.formats.size() ||
        !std::all_of(item.layers.begin(), item.layers.end(), in_model))
      fail(ErrorCode::unreadable, "precision.sensitivity.items: not of this model's layers");
}

void read_curve(const calibrate::PrecisionReport& report, PrecisionModel& model) {
  for (const auto& entry : report.curve) {
    PrecisionModel::Point point{entry.size, entry.score, entry.kl, entry.expected_kl, {}};
    if (entry.keys.size() != model.layers() || entry.values.size() != model.layers())
      fail(ErrorCode::unreadable, "precision.curve: formats of another number of layers");
    for (std::size_t l = 0; l < model.layers(); ++l)
      point.formats.push_back({format_called(entry.keys[l], "precision.curve.keys"),
                               format_called(entry.values[l], "precision.curve.values")});
    model.curve.push_back(std::move(point));
  }
  std::stable_sort(model.curve.begin(), model.curve.end(),
                   [](const PrecisionModel::Point& a, const PrecisionModel::Point& b) {
                     return a.size < b.size;
                   });
  for (std::size_t i = 0; i < model.curve.size(); ++i)
    if (model.curve[i].formats == *model.part.fixed) model.calibrated = i;
}

/// Which of the keys and values of layers an item is.
struct Side {
  const char* title;
  bool keys, values;
  bool has(const Item& item) const { return item.keys == keys && item.values == values; }
};
constexpr std::array<Side, 3> kSides = {
    {{"keys", true, false}, {"values", false, true}, {"keys and values", true, true}}};

/// A row for each side and format, a column for each layer, or for layers that were tried together.
Chart strip_chart(const PrecisionModel& model, const LayerFormats& chosen) {
  Chart chart;
  if (model.items.empty()) return chart;
  chart.title = str("Precision: what fewer bits cost each layer alone (",
                    count_of(model.samples, "sample", "samples"), ")");
  chart.x = {"layer", ""};
  chart.x.kind = AxisKind::layers;
  Matrix matrix{"", "log10 of KL", {}, {}, {}};
  std::vector<const Item*> firsts;   // one item of each column
  std::vector<std::size_t> columns;  // of each item
  std::map<std::vector<std::int64_t>, std::size_t> known;
  for (const Item& item : model.items) {
    const auto [found, is_new] = known.try_emplace(item.layers, firsts.size());
    columns.push_back(found->second);
    if (is_new) firsts.push_back(&item);
  }
  chart.table.columns = {{"layer"}};
  for (const Item* item : firsts) {
    const auto first = item->layers.front(), last = item->layers.back();
    matrix.column_labels.push_back(first == last ? str(first) : str(first, " to ", last));
    matrix.column_texts.push_back(
        str(first == last ? "layer " : "layers ", matrix.column_labels.back()));
    chart.table.rows.push_back({matrix.column_labels.back()});
  }
  double least = kNoNumber, most = kNoNumber;
  for (const Side& side : kSides) {
    if (std::none_of(model.items.begin(), model.items.end(),
                     [&](const Item& item) { return side.has(item); }))
      continue;
    for (std::size_t f = 0; f < model.formats.size(); ++f) {
      const std::size_t row = matrix.row_labels.size();
      matrix.row_labels.push_back(str(side.title, " ", word_of(model.formats[f])));
      chart.table.columns.push_back({matrix.row_labels.back(), "KL"});
      std::vector<double> costs(firsts.size(), kNoNumber);
      for (std::size_t i = 0; i < model.items.size(); ++i) {
        const Item& item = model.items[i];
        if (!side.has(item)) continue;
        costs[columns[i]] = item.kl[f];
        const auto& of_layer = chosen[static_cast<std::size_t>(item.layers.front())];
        if ((side.keys ? of_layer.keys : of_layer.values) == model.formats[f])
          matrix.marked.emplace_back(row, columns[i]);
      }
      for (std::size_t c = 0; c < costs.size(); ++c) {
        // One decimal, which fits into a cell.
        const double shown = std::isnan(costs[c])
                                 ? kNoNumber
                                 : std::round(10 * std::log10(std::max(costs[c], kLeastKl))) / 10;
        matrix.values.push_back(shown);
        chart.table.rows[c].emplace_back(costs[c]);
        least = std::fmin(least, shown);
        most = std::fmax(most, shown);
      }
    }
  }
  chart.table.columns.push_back({"keys in"});
  chart.table.columns.push_back({"values in"});
  for (std::size_t c = 0; c < firsts.size(); ++c) {
    const auto& of_layer = chosen[static_cast<std::size_t>(firsts[c]->layers.front())];
    chart.table.rows[c].emplace_back(word_of(of_layer.keys));
    chart.table.rows[c].emplace_back(word_of(of_layer.values));
  }
  if (!std::isnan(least))
    matrix.range = {std::floor(least), std::max(std::ceil(most), std::floor(least) + 1)};
  chart.notes.push_back(
      "outlined: the format in which they are stored; where none is, they stay at 16 bits");
  if (least <= std::log10(kLeastKl)) chart.notes.push_back("-6 stands for all that cost less");
  chart.matrices.push_back(std::move(matrix));
  return chart;
}

std::string point_text(const PrecisionModel::Point& point) {
  return str("size ", percent_text(point.size), ", ", calibrate::formats_text(point.formats));
}

void draw_full(const PrecisionModel& model, Chart& chart) {
  if (!model.full) return;
  const double full = model.full->mean;
  if (model.tolerance > 0)
    chart.bands.push_back({"tolerance",
                           {{0, full, {}, full - model.tolerance, full},
                            {1, full, {}, full - model.tolerance, full}}});
  chart.lines.push_back({"full cache", {{0, full}, {1, full}}, Emphasis::reference});
}

void draw_kl(const PrecisionModel& model, Chart& chart) {
  Line measured{"KL", {}, Emphasis::normal, false, true},
      expected{"KL expected of the layers' sum", {}, Emphasis::normal, false, true};
  for (const PrecisionModel::Point& point : model.curve) {
    if (!std::isnan(point.kl)) measured.points.push_back({point.size, point.kl});
    if (!std::isnan(point.expected_kl)) expected.points.push_back({point.size, point.expected_kl});
  }
  if (measured.points.empty() && expected.points.empty()) return;
  double most = 0;
  for (Line* line : {&measured, &expected}) {
    for (const auto& point : line->points) most = std::max(most, point.y);
    if (!line->points.empty()) chart.lines.push_back(std::move(*line));
  }
  chart.right = Axis{"KL divergence", "nat", {}, {{0, most > 0 ? 1.05 * most : 1}}};
}

Chart curve_chart(const PrecisionModel& model, std::optional<std::size_t> chosen,
                  std::vector<std::size_t>& points) {
  Chart chart;
  if (model.curve.empty()) return chart;
  chart.title = "Precision: score and KL divergence against size";
  chart.x = {"size", "share of the bytes at 16 bits", {}, {{0, 1}}};
  chart.y = {"score", "", {}, {{0, 1}}};
  draw_kl(model, chart);
  draw_full(model, chart);
  const auto shown = chosen ? chosen : model.calibrated;
  Points tried{"formats by layer", {}};
  chart.table.columns = {
      {"size", "share"},    {"score"}, {"low"}, {"high"}, {"KL", "nat"}, {"KL expected", "nat"},
      {"formats", "", true}};
  for (std::size_t i = 0; i < model.curve.size(); ++i) {
    const PrecisionModel::Point& point = model.curve[i];
    chart.table.rows.push_back({point.size, point.score.mean, point.score.low, point.score.high,
                                point.kl, point.expected_kl,
                                calibrate::formats_text(point.formats)});
    if (std::isnan(point.score.mean)) continue;
    tried.points.push_back({point.size, point.score.mean, point_text(point), point.score.low,
                            point.score.high, shown == i ? Emphasis::strong : Emphasis::normal});
    points.push_back(i);
  }
  chart.points.push_back(std::move(tried));
  Points uniform{"one format in all layers", {}, 1};
  for (const auto& one : model.uniform) {
    const Measured& measured = one.measured;
    const std::string text = word_of(one.format) + " in all layers";
    uniform.points.push_back(
        {measured.kept_share, measured.score.mean, text, measured.score.low, measured.score.high});
    chart.table.rows.push_back({measured.kept_share, measured.score.mean, measured.score.low,
                                measured.score.high, measured.kl.mean, kNoNumber, text});
  }
  if (!uniform.points.empty()) chart.points.push_back(std::move(uniform));
  if (shown)
    chart.marks.push_back({chosen ? "chosen" : "calibrated", model.curve[*shown].size, true,
                           Handle::none, Emphasis::strong});
  chart.notes.push_back(str(chosen ? "chosen: " : "as calibrated: ",
                            calibrate::formats_text(model.formats_of(chosen))));
  return chart;
}

}  // namespace

const LayerFormats& PrecisionModel::formats_of(std::optional<std::size_t> point) const {
  return point && *point < curve.size() ? curve[*point].formats : *part.fixed;
}

std::optional<std::size_t> curve_point(const PrecisionModel& model, int chosen) {
  const auto at = static_cast<std::size_t>(std::max(chosen, 0));
  return chosen >= 0 && at < model.curve.size() ? std::optional(at) : std::nullopt;
}

PrecisionModel precision_model(const json& section) {
  PrecisionModel model;
  if (section.is_object()) model.part = part_in(section);
  if (!model.part.fixed || model.part.fixed->empty())
    fail(ErrorCode::usage,
         "the document has no number formats by layer; 'kvatlas calibrate precision' finds them");
  auto report = report_in<calibrate::PrecisionReport>(section, calibrate::method::kPrecision);
  if (report.sensitivity) read_sensitivity(std::move(*report.sensitivity), model);
  read_curve(report, model);
  if (model.items.empty() && model.curve.empty())
    fail(ErrorCode::usage,
         "the document does not say how its number formats were found; 'kvatlas calibrate "
         "precision' makes one that does");
  model.full = report.full;
  model.tolerance = report.tolerance;
  for (std::size_t f = 0; f < calibrate::kKvFormats.size(); ++f) {
    const auto format = static_cast<KvFormat>(f);
    if (const auto found = report.uniform.find(word_of(format)); found != report.uniform.end())
      model.uniform.push_back({format, std::move(found->second)});
  }
  return model;
}

PrecisionView precision_view(const PrecisionModel& model, std::optional<std::size_t> chosen) {
  PrecisionView view;
  view.strip = strip_chart(model, model.formats_of(chosen));
  view.curve = curve_chart(model, chosen, view.points);
  return view;
}

}  // namespace kvatlas::viewer
