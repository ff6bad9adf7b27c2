// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/needle_model.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.hpp"
#include "calibrate/policy/method.hpp"

namespace kvatlas::viewer {
namespace {

/// "SimLayerKV + LagKV".
std::string composition_title(const calibrate::Document& document) {
  std::string joined;
  for (const auto& name : document.compose)
    if (const auto* section = calibrate::find_section(name))
      joined += str(joined.empty() ? "" : " + ", section->title);
  return joined;
}

using MeasuredCells =
    std::map<std::pair<double, std::int64_t>, calibrate::DepthScore>;  // by depth and length

MeasuredCells cells_of(const NeedleModel::Map& map) {
  MeasuredCells cells;
  for (const auto& at : map.cells) cells[{at.depth, at.length}] = at;
  return cells;
}

}  // namespace

NeedleModel needle_model(std::span<const calibrate::Document> documents) {
  NeedleModel model;
  for (const auto& document : documents) {
    const bool composed = document.compose.size() > 1;
    for (const calibrate::Method& section : calibrate::kSections) {
      const auto found = document.sections.find(section.name);
      // Each section of a composition has the scores of the whole.
      if (found == document.sections.end() ||
          (composed && document.compose.front() != section.name))
        continue;
      auto measured = report_in<calibrate::MethodReport>(*found, section).measured;
      if (!measured || measured->depths.empty()) continue;
      if (model.maps.empty() && !measured->full_depths.empty())
        model.maps.push_back({"full cache", std::move(measured->full_depths)});
      model.maps.push_back(
          {composed ? composition_title(document) : section.title, std::move(measured->depths)});
    }
  }
  if (model.maps.empty())
    fail(ErrorCode::usage,
         "no open document has scores by length and depth: 'kvatlas evaluate --task needle "
         "--lengths 512,1024 --policy policy.json -o FILE' measures them");
  return model;
}

bool NeedleModel::has_digits() const {
  return std::any_of(maps.begin(), maps.end(), [](const Map& map) {
    return std::any_of(map.cells.begin(), map.cells.end(),
                       [](const auto& at) { return !std::isnan(at.digits_prefix); });
  });
}

Chart needle_chart(const NeedleModel& model, ShownScore score, bool difference) {
  if (score == ShownScore::attention || !model.has_digits()) score = ShownScore::score;
  const std::string word = score_word(score);
  Chart chart;
  chart.title =
      "Needle: " + word + (difference ? " less the full cache's," : "") + " over length and depth";
  chart.x = {"prompt length", "tokens"};
  chart.y = {"depth", "share of the prompt"};
  chart.table.columns = {{"policy"}, {"length", "tokens"}, {"depth", "share"}, {"samples"}, {word},
                         {"full"}};
  std::set<double> depths;
  std::set<std::int64_t> lengths;
  for (const auto& map : model.maps)
    for (const auto& at : map.cells) {
      depths.insert(at.depth);
      lengths.insert(at.length);
    }
  const MeasuredCells full = cells_of(model.maps.front());
  for (std::size_t m = 0; m < model.maps.size(); ++m) {
    const bool reference = m == 0;
    const MeasuredCells cells = cells_of(model.maps[m]);
    // The title says which digits; the legend has room for a word.
    Matrix matrix{
        model.maps[m].policy, score == ShownScore::score ? "score" : "digits", {}, {}, {}};
    if (difference) matrix.range = {-1, 1};
    for (const auto length : lengths) matrix.column_labels.push_back(str(length));
    for (const double depth : depths) {
      matrix.row_labels.push_back(percent_text(depth));
      for (const auto length : lengths) {
        const auto found = cells.find({depth, length});
        const auto other = full.find({depth, length});
        const double shown = found == cells.end() ? kNoNumber : shown_of(found->second, score);
        const double of_full = other == full.end() ? kNoNumber : shown_of(other->second, score);
        matrix.values.push_back(difference ? shown - of_full : shown);
        if (found != cells.end())
          chart.table.rows.push_back(
              {model.maps[m].policy, length, depth, found->second.samples, shown, of_full});
      }
    }
    if (!difference || !reference) chart.matrices.push_back(std::move(matrix));
  }
  return chart;
}

}  // namespace kvatlas::viewer
