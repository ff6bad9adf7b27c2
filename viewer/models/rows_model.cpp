// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/rows_model.hpp"

#include <algorithm>
#include <cmath>

#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "viewer/models/model_axes.hpp"
#include "viewer/models/token_texts.hpp"

namespace kvatlas::viewer {

namespace {

constexpr std::int64_t kMostPoints = 600, kMostRowColumns = 400;
constexpr std::size_t kTopKeys = 50;
constexpr double kFloor = 1e-9;  // of the log axis

/// The statistics of one key over all rows.
struct KeyShare {
  double mean = 0, least = 0, most = 0;
};
KeyShare share_of(const RowsModel& model, const RowsModel::Rows& line, std::int64_t key) {
  KeyShare found{0, 1, 0};
  std::int64_t seen = 0;
  for (std::int64_t row = 0; row < model.rows; ++row) {
    if (key > model.n_tokens - model.rows + row) continue;
    const auto share = static_cast<double>(line.shares(row, key));
    if (std::isnan(share)) continue;
    found.mean += share;
    found.least = std::min(found.least, share);
    found.most = std::max(found.most, share);
    ++seen;
  }
  if (seen == 0) return {kNoNumber, kNoNumber, kNoNumber};
  found.mean /= static_cast<double>(seen);
  return found;
}

std::string text_of(const std::vector<std::string>& texts, std::int64_t key) {
  return static_cast<std::size_t>(key) < texts.size() ? texts[key] : "";
}

Chart lines_chart(const RowsModel& model, std::int64_t first, std::int64_t last,
                  const std::vector<std::string>& texts) {
  Chart chart;
  const std::int64_t step =
      std::max<std::int64_t>(1, (last - first + kMostPoints - 1) / kMostPoints);
  chart.x = {"key token", ""};
  chart.x.kind = AxisKind::tokens;
  chart.x.range = {{static_cast<double>(first) - 0.5, static_cast<double>(last) - 0.5}};
  chart.y = {"attention", "share"};
  chart.y.logarithmic = true;
  double least = 1, most = kFloor;
  for (std::size_t i = 0; i < model.lines.size(); ++i) {
    Line line{model.lines[i].label, {}};
    line.emphasis = i == 0 ? Emphasis::strong : Emphasis::normal;
    Band band{"least and greatest of the rows", {}};
    for (std::int64_t begin = first; begin < last; begin += step) {
      // Of the keys in one point the greatest mean shows, so that none is passed over.
      KeyShare shown{kNoNumber, 1, 0};
      std::int64_t at = begin;
      for (std::int64_t key = begin; key < std::min(begin + step, last); ++key) {
        const KeyShare share = share_of(model, model.lines[i], key);
        if (std::isnan(share.mean)) continue;
        if (std::isnan(shown.mean) || share.mean > shown.mean) {
          shown.mean = share.mean;
          at = key;
        }
        shown.least = std::min(shown.least, share.least);
        shown.most = std::max(shown.most, share.most);
      }
      if (std::isnan(shown.mean)) continue;
      const auto floored = [](double value) { return std::max(value, kFloor); };
      const auto x = static_cast<double>(at);
      line.points.push_back({x, floored(shown.mean), text_of(texts, at)});
      band.edges.push_back({x, 0, "", floored(shown.least), floored(shown.most)});
      least = std::min(least, floored(shown.mean));
      most = std::max(most, floored(shown.most));
    }
    chart.lines.push_back(std::move(line));
    if (i == 0) chart.bands.push_back(std::move(band));
  }
  // Marks of what is kept, in lanes under the least value.
  double lane_y = least / 2;
  for (std::size_t i = 0; i < model.lanes.size(); ++i) {
    Points points{"kept: " + model.lanes[i].label, {}};
    points.shape = static_cast<int>(i);
    for (std::int64_t begin = first; begin < last; begin += step)
      for (std::int64_t key = begin; key < std::min(begin + step, last); ++key)
        if (model.lanes[i].kept[key]) {
          points.points.push_back({static_cast<double>(key), lane_y, text_of(texts, key)});
          break;
        }
    if (!points.points.empty()) chart.points.push_back(std::move(points));
    lane_y /= 2;
  }
  chart.y.range = {{lane_y, std::min(1.0, most * 1.5)}};
  chart.title = str("Attention of the last ", model.rows, " rows, layer ", model.choices.layer);
  chart.notes.push_back(str(model.sample, ", ", model.n_tokens, " tokens; mean over the rows"));
  if (step > 1) chart.notes.push_back(str("each point is the greatest of ", step, " keys"));
  return chart;
}

Chart rows_heatmap(const RowsModel& model, std::int64_t first, std::int64_t last,
                   const std::vector<std::string>& texts) {
  Chart chart;
  const RowsModel::Rows& line = model.lines.front();
  const std::int64_t step =
      std::max<std::int64_t>(1, (last - first + kMostRowColumns - 1) / kMostRowColumns);
  chart.title = str("Each of the rows, ", line.label);
  if (step > 1) chart.notes.push_back(str("each cell is the greatest of ", step, " keys"));
  chart.x = {"key token", ""};
  chart.x.kind = AxisKind::tokens;
  chart.y = {"query token", ""};
  Matrix matrix;
  matrix.label = line.label;
  matrix.unit = "log10 share";
  for (std::int64_t key = first; key < last; key += step) {
    const std::string text = text_of(texts, key);
    matrix.column_labels.push_back(text.empty() ? std::to_string(key) : str(key, " ", text));
  }
  double least = 0, most = -9;
  for (std::int64_t row = 0; row < model.rows; ++row) {
    const std::int64_t query = model.n_tokens - model.rows + row;
    matrix.row_labels.push_back(std::to_string(query));
    for (std::int64_t begin = first; begin < last; begin += step) {
      double greatest = kNoNumber;
      for (std::int64_t key = begin; key < std::min({begin + step, last, query + 1}); ++key) {
        const auto share = static_cast<double>(line.shares(row, key));
        if (!std::isnan(share) && !(greatest >= share)) greatest = share;
      }
      const double log10 =
          std::isnan(greatest) ? kNoNumber : std::log10(std::max(greatest, kFloor));
      if (!std::isnan(log10)) {
        least = std::min(least, log10);
        most = std::max(most, log10);
      }
      matrix.values.push_back(log10);
    }
  }
  matrix.range = {std::min(least, most - 0.1), most};
  chart.matrices.push_back(std::move(matrix));
  return chart;
}

Table top_table(const RowsModel& model, std::int64_t first, std::int64_t last,
                const std::vector<std::string>& texts) {
  Table table;
  table.columns = {{"rank"},          {"key", "token"},   {"text"},
                   {"mean", "share"}, {"least", "share"}, {"greatest", "share"}};
  for (const auto& lane : model.lanes) table.columns.push_back({"kept: " + lane.label});
  std::vector<std::pair<double, std::int64_t>> keys;
  for (std::int64_t key = first; key < last; ++key) {
    const double mean = share_of(model, model.lines.front(), key).mean;
    if (!std::isnan(mean)) keys.emplace_back(-mean, key);
  }
  const auto count = std::min(kTopKeys, keys.size());
  std::partial_sort(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(count), keys.end());
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t key = keys[i].second;
    const KeyShare share = share_of(model, model.lines.front(), key);
    std::vector<Table::Cell> row = {static_cast<double>(i + 1),
                                    static_cast<double>(key),
                                    text_of(texts, key),
                                    share.mean,
                                    share.least,
                                    share.most};
    for (const auto& lane : model.lanes) row.emplace_back(lane.kept[key] ? "yes" : "no");
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace

RowsModel read_rows_model(const profile::Reader& profile, std::size_t position,
                          const RowsChoices& choices) {
  const auto& header = profile.header();
  calibrate::cache_shape(header);
  if (!profile.has(position, profile::name::kRows))
    fail(ErrorCode::usage,
         "the last rows of this sample were not captured; 'kvatlas profile --capture maps' takes "
         "them of the first --map-samples samples");
  if (choices.layer < 0 || choices.layer >= header.n_layers)
    fail(ErrorCode::usage, "there is no layer ", choices.layer, ", but ", header.n_layers);
  RowsModel model;
  model.choices = choices;
  model.sample = profile.samples()[position].id;
  model.n_tokens = profile.samples()[position].n_tokens;
  const auto add = [&](std::int64_t head) {
    if (head < 0 || head >= header.n_heads)
      fail(ErrorCode::usage, "there is no head ", head, ", but ", header.n_heads);
    auto shares = calibrate::read_attention(profile, position, choices.layer, head);
    model.rows = shares.rows();
    return shares;
  };
  for (const std::int64_t head : choices.heads)
    model.lines.push_back({str("L", choices.layer, ".H", head), add(head)});
  if (choices.heads.empty()) {
    auto mean = add(0);
    for (std::int64_t head = 1; head < header.n_heads; ++head) mean += add(head);
    mean /= static_cast<float>(header.n_heads);
    model.lines.push_back({str("mean of layer ", choices.layer), std::move(mean)});
  }
  RowsModel::Lane lazy{str("SimLayerKV, lazy: ", choices.keep.initial, " + ", choices.keep.recent),
                       {}};
  const std::int64_t window =
      header.window.empty() ? 0 : header.window[static_cast<std::size_t>(choices.layer)];
  const std::int64_t held = profile::held_tokens(window, model.n_tokens);
  for (std::int64_t key = 0; key < model.n_tokens; ++key)
    lazy.kept.push_back(
        key >= model.n_tokens - held &&
        (key < choices.keep.initial || key >= model.n_tokens - choices.keep.recent));
  model.lanes.push_back(std::move(lazy));
  const std::int64_t kv_head =
      std::clamp<std::int64_t>(choices.kept_of_head, 0, header.n_heads - 1) /
      heads_per_kv_head(header);
  for (const auto& label : choices.selections) {
    auto kept = calibrate::read_kept_tokens(profile, position, label, choices.layer, kv_head);
    if (!kept.empty()) model.lanes.push_back({label, std::move(kept)});
  }
  return model;
}

std::vector<double> mean_shares(const RowsModel& model) {
  std::vector<double> shares;
  for (std::int64_t key = 0; key < model.n_tokens; ++key)
    shares.push_back(share_of(model, model.lines.front(), key).mean);
  return shares;
}

RowsView rows_view(const RowsModel& model, std::pair<std::int64_t, std::int64_t> keys,
                   const std::vector<std::string>& texts) {
  const std::int64_t first = std::clamp<std::int64_t>(keys.first, 0, model.n_tokens - 1);
  const std::int64_t last = std::clamp<std::int64_t>(keys.second, first + 1, model.n_tokens);
  RowsView view;
  view.lines = lines_chart(model, first, last, texts);
  view.heatmap = rows_heatmap(model, first, last, texts);
  view.top = top_table(model, first, last, texts);
  view.lines.table = view.top;
  return view;
}

}  // namespace kvatlas::viewer
