// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/chart.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "viewer/maps/scale.hpp"

namespace kvatlas::viewer {
namespace {

/// One comment line, whatever line ends the text has.
std::string csv_comment(std::string text) {
  std::replace(text.begin(), text.end(), '\r', ' ');
  std::replace(text.begin(), text.end(), '\n', ' ');
  return "# " + text + "\n";
}

}  // namespace

bool has_content(const Chart& chart) {
  return !chart.lines.empty() || !chart.bands.empty() || !chart.points.empty() ||
         !chart.bars.empty() || !chart.boxes.empty() || !chart.matrices.empty();
}

const Mark* mark_of(const Chart& chart, Handle handle) {
  for (const Mark& mark : chart.marks)
    if (handle != Handle::none && mark.handle == handle) return &mark;
  return nullptr;
}

std::string chart_csv(const Chart& chart) {
  std::string out = csv_comment(chart.title);
  for (const auto& note : chart.notes) out += csv_comment(note);
  return out + table_csv(chart.table);
}

Chart joined(std::string title, const std::vector<const Chart*>& charts) {
  Chart all;
  all.title = std::move(title);
  std::vector<const Chart*> with_tables;
  std::set<std::string> seen;
  for (const Chart* chart : charts) {
    if (chart->title != all.title) all.notes.push_back(chart->title);
    all.notes.insert(all.notes.end(), chart->notes.begin(), chart->notes.end());
    if (!chart->table.columns.empty() && seen.insert(table_csv(chart->table)).second)
      with_tables.push_back(chart);
  }
  if (with_tables.size() == 1) {
    all.table = with_tables.front()->table;
    return all;
  }
  all.table.columns = {{"chart"}};
  auto& columns = all.table.columns;
  for (const Chart* chart : with_tables) {
    std::vector<std::size_t> places;
    for (const auto& column : chart->table.columns) {
      const auto same = std::find_if(columns.begin() + 1, columns.end(), [&](const auto& other) {
        return exact_title(other) == exact_title(column);
      });
      places.push_back(static_cast<std::size_t>(same - columns.begin()));
      if (same == columns.end()) columns.push_back(column);
    }
    for (const auto& row : chart->table.rows) {
      std::vector<Table::Cell> cells(columns.size(), kNoNumber);
      cells.front() = chart->title;
      for (std::size_t i = 0; i < row.size(); ++i) cells[places[i]] = row[i];
      all.table.rows.push_back(std::move(cells));
    }
  }
  for (auto& row : all.table.rows) row.resize(columns.size(), kNoNumber);
  return all;
}

Box box_of(double x, std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return {x, kNoNumber, kNoNumber, kNoNumber, kNoNumber, kNoNumber};
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) { return quantile<double>(values, share); };
  return {x, values.front(), at(0.25), at(0.5), at(0.75), values.back()};
}

}  // namespace kvatlas::viewer
