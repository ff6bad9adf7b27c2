// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/chart_difference.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/str.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace {

/// The one with the same label. One of each, whatever they are called, are of the same thing.
template <class Series>
const Series* partner(const std::vector<Series>& mine, std::size_t at,
                      const std::vector<Series>& others) {
  for (const Series& other : others)
    if (other.label == mine[at].label) return &other;
  return mine.size() == 1 && others.size() == 1 ? &others[0] : nullptr;
}

/// From an x of one chart to that of the other: the same, or the same share of another range.
struct Shift {
  double from = 0, to = 0, factor = 1;
  double operator()(double x) const { return to + (x - from) * factor; }
};

Shift shift_between(const Axis& mine, const Axis& other) {
  if (mine.kind != AxisKind::tokens || !mine.range || !other.range) return {};
  const auto [low, high] = *mine.range;
  const auto [other_low, other_high] = *other.range;
  if (!(high > low) || !(other_high > other_low)) return {};
  return {low, other_low, (other_high - other_low) / (high - low)};
}

bool other_layers(const Axis& mine, const Axis& other) {
  return mine.kind == AxisKind::layers && other.kind == AxisKind::layers &&
         mine.range != other.range;
}

/// For each column of a matrix that of the other: of the same label, or of the same share of the
/// prompt; nothing for what the other does not have.
std::vector<std::optional<std::size_t>> paired_columns(const Matrix& mine, const Matrix& other,
                                                       bool tokens) {
  const std::size_t columns = mine.column_labels.size();
  const std::size_t others = other.column_labels.size();
  std::vector<std::optional<std::size_t>> out(columns);
  if (others == 0) return out;
  for (std::size_t i = 0; i < columns; ++i) {
    if (tokens) {
      out[i] = std::min(others - 1, i * others / columns);
      continue;
    }
    const auto same =
        std::find(other.column_labels.begin(), other.column_labels.end(), mine.column_labels[i]);
    if (same != other.column_labels.end())
      out[i] = static_cast<std::size_t>(same - other.column_labels.begin());
  }
  return out;
}

/// Of a line at x, where it has a point no farther off than `reach`: nothing was measured between
/// points. Steps hold up to the last one.
double value_at(const Line& line, double x, double reach) {
  const auto& points = line.points;
  const auto after = std::upper_bound(points.begin(), points.end(), x + reach,
                                      [](double at, const Point& point) { return at < point.x; });
  double found = kNoNumber, nearest = reach;
  for (auto point = after; point != points.begin() && (--point)->x >= x - reach;)
    if (const double away = std::abs(point->x - x); away <= nearest) {
      nearest = away;
      found = point->y;
    }
  const bool holds = line.steps && after != points.begin() && after != points.end();
  return std::isnan(found) && holds ? (after - 1)->y : found;
}

/// The same place on two axes: of the same name where places have names.
bool same_place(const Axis& mine, double x, const Axis& other, double other_x) {
  const auto name = [](const Axis& axis, double at) {
    const auto tick = std::find_if(axis.ticks.begin(), axis.ticks.end(),
                                   [&](const AxisTick& one) { return one.at == at; });
    return tick == axis.ticks.end() ? std::string() : tick->label;
  };
  if (mine.ticks.empty() || other.ticks.empty()) return x == other_x;
  const std::string named = name(mine, x);
  return !named.empty() && named == name(other, other_x);
}

constexpr double kRoom = 1.05;  // above the greatest bar

class Difference {
 public:
  Difference(const Chart& mine, const Chart& other, const Shift& shift)
      : mine_(mine), other_(other), shift_(shift) {}

  void take(Chart& out) {
    for (std::size_t i = 0; i < mine_.lines.size(); ++i) add_line(out, i);
    for (std::size_t i = 0; i < mine_.bars.size(); ++i) add_bars(out, i);
    add_boxes(out);
    for (std::size_t i = 0; i < mine_.matrices.size(); ++i) add_matrix(out, i);
    const auto about_zero = [](double most) {
      return most > 0 ? std::pair(-most, most) : std::pair(-1.0, 1.0);
    };
    for (auto& matrix : out.matrices) matrix.range = about_zero(most_cell_);
    if (out.matrices.empty()) {
      out.y.range = about_zero(kRoom * most_);
      if (out.right) out.right->range = about_zero(kRoom * most_right_);
      out.marks.push_back({"no change", 0, false});
    }
    fill_table(out);
  }

 private:
  struct Row {
    std::string series;
    double x = 0, mine = 0, other = 0;
    double difference() const { return mine - other; }
  };

  double note(const std::string& series, double x, double mine, double other) {
    rows_.push_back({series, x, mine, other});
    return mine - other;
  }
  static void raise(double& most, double value) {
    if (std::isfinite(value)) most = std::max(most, std::abs(value));
  }

  void add_line(Chart& out, std::size_t at) {
    const Line& line = mine_.lines[at];
    const Line* other = partner(mine_.lines, at, other_.lines);
    if (!other || line.emphasis == Emphasis::reference) return;
    Line difference{line.label, {}, line.emphasis, line.steps, line.right};
    // Of many tokens a point stands for several, and not always for the same one of them.
    const bool tokens = mine_.x.kind == AxisKind::tokens && other->points.size() > 1;
    const double apart = tokens ? (other->points.back().x - other->points.front().x) /
                                      static_cast<double>(other->points.size() - 1)
                                : 2e-9;
    for (const Point& point : line.points) {
      const double theirs = value_at(*other, shift_(point.x), apart / 2);
      if (std::isnan(theirs) || std::isnan(point.y)) continue;
      Point moved{point.x, note(line.label, point.x, point.y, theirs), point.label};
      raise(line.right ? most_right_ : most_, moved.y);
      difference.points.push_back(std::move(moved));
    }
    if (const auto both = difference.points.size(); both < line.points.size())
      out.notes.push_back(str(line.label, ": ", both, " of ", line.points.size(),
                              " points are there in both; nothing is drawn between them"));
    if (!difference.points.empty()) out.lines.push_back(std::move(difference));
  }

  void add_bars(Chart& out, std::size_t at) {
    const Bars& bars = mine_.bars[at];
    const Bars* other = partner(mine_.bars, at, other_.bars);
    if (!other || bars.label.empty()) return;  // without a label it is a backdrop
    Bars difference{bars.label, {}};
    for (const Bar& bar : bars.bars)
      for (const Bar& theirs : other->bars)
        if (same_place(mine_.x, bar.x, other_.x, theirs.x))
          add_bar(difference, bars.label, bar.x, bar.height, theirs.height);
    if (!difference.bars.empty()) out.bars.push_back(std::move(difference));
  }

  void add_boxes(Chart& out) {
    Bars difference{"difference of the medians", {}};
    for (const Box& box : mine_.boxes)
      for (const Box& theirs : other_.boxes)
        if (theirs.x == box.x) add_bar(difference, "median", box.x, box.median, theirs.median);
    if (!difference.bars.empty()) out.bars.push_back(std::move(difference));
  }

  void add_bar(Bars& bars, const std::string& series, double x, double mine, double other) {
    if (std::isnan(mine) || std::isnan(other)) return;
    const double height = note(series, x, mine, other);
    raise(most_, height);
    bars.bars.push_back({x, height, fixed_text(height, 4)});
  }

  void add_matrix(Chart& out, std::size_t at) {
    const Matrix& matrix = mine_.matrices[at];
    const Matrix* other = partner(mine_.matrices, at, other_.matrices);
    const std::size_t rows = matrix.row_labels.size(), columns = matrix.column_labels.size();
    if (!other || other->row_labels.size() != rows) return;
    const auto pairs = paired_columns(matrix, *other, mine_.x.kind == AxisKind::tokens);
    if (std::count(pairs.begin(), pairs.end(), std::nullopt) == std::ssize(pairs)) return;
    Matrix difference = matrix;
    difference.unit = matrix.unit.empty() ? "difference" : "\u0394 " + matrix.unit;
    difference.outlines.clear();
    difference.marked.clear();
    difference.contour.reset();
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t column = 0; column < columns; ++column) {
        const double less =
            pairs[column] ? matrix.at(row, column) - other->at(row, *pairs[column]) : kNoNumber;
        raise(most_cell_, less);
        difference.values[row * columns + column] = less;
      }
    out.matrices.push_back(std::move(difference));
  }

  /// A row a datum; of small multiples a row a matrix, or they would be millions.
  void fill_table(Chart& out) const {
    Table& table = out.table;
    if (out.matrices.empty()) {
      table.columns = {
          {"what"}, {mine_.x.title, mine_.x.unit}, {"profile"}, {"baseline"}, {"difference"}};
      for (const Row& row : rows_)
        table.rows.push_back({row.series, row.x, row.mine, row.other, row.difference()});
    } else if (out.matrices.size() == 1) {
      const Matrix& matrix = out.matrices.front();
      table.columns = {{mine_.y.title}, {mine_.x.title}, {"difference", matrix.unit}};
      for (std::size_t row = 0; row < matrix.row_labels.size(); ++row)
        for (std::size_t column = 0; column < matrix.column_labels.size(); ++column)
          table.rows.push_back(
              {matrix.row_labels[row], matrix.column_labels[column], matrix.at(row, column)});
    } else {
      table.columns = {
          {"what"}, {"mean absolute difference"}, {"greatest"}, {"at row"}, {"at column"}};
      for (const Matrix& matrix : out.matrices) add_summary(table, matrix);
    }
  }

  static void add_summary(Table& table, const Matrix& matrix) {
    double sum = 0;
    std::size_t known = 0, greatest = 0;
    for (std::size_t i = 0; i < matrix.values.size(); ++i) {
      const double size = std::abs(matrix.values[i]);
      if (std::isnan(size)) continue;
      sum += size;
      ++known;
      if (!(std::abs(matrix.values[greatest]) >= size)) greatest = i;
    }
    if (known == 0) return;
    const std::size_t columns = matrix.column_labels.size();
    table.rows.push_back({matrix.label, sum / static_cast<double>(known), matrix.values[greatest],
                          matrix.row_labels[greatest / columns],
                          matrix.column_labels[greatest % columns]});
  }

  const Chart &mine_, &other_;
  const Shift shift_;
  std::vector<Row> rows_;
  double most_ = 0, most_right_ = 0, most_cell_ = 0;
};

/// Titles tell live numbers, which differ: what they have in common, up to ": " or " of ".
std::string common_title(const Chart& mine, const Chart& other) {
  if (mine.title == other.title) return mine.title;
  const auto differ =
      std::mismatch(mine.title.begin(), mine.title.end(), other.title.begin(), other.title.end());
  const std::string begin(mine.title.begin(), differ.first);
  const auto end = std::min(begin.rfind(": "), begin.rfind(" of "));
  return end == begin.npos ? str(mine.y.title, " by ", mine.x.title) : begin.substr(0, end);
}

}  // namespace

Chart chart_difference(const Chart& mine, const std::string& name, const Chart& baseline,
                       const std::string& baseline_name) {
  Chart out;
  const std::string title = str(common_title(mine, baseline), ": ", name, " less ", baseline_name);
  out.title = title;
  if (mine.title != baseline.title)
    out.notes = {str(name, ": ", mine.title), str(baseline_name, ": ", baseline.title)};
  if (other_layers(mine.x, baseline.x) || other_layers(mine.y, baseline.y)) {
    out.notes.assign(
        1,
        "the two models have other numbers of layers; 'Pair by depth' on the comparison screen "
        "compares layers of the same relative depth");
    return out;
  }
  out.x = mine.x;
  out.y = {mine.y.title, mine.y.unit};
  if (!mine.matrices.empty()) out.y = mine.y;
  if (mine.right) out.right = Axis{mine.right->title, mine.right->unit};
  const Shift shift = shift_between(mine.x, baseline.x);
  if (shift.factor != 1)
    out.notes.push_back(
        "prompts of other lengths: tokens at the same share of the prompt are "
        "compared");
  Difference(mine, baseline, shift).take(out);
  if (out.lines.empty() && out.bars.empty() && out.matrices.empty()) {
    auto notes = std::move(out.notes);
    notes.insert(notes.begin(), "the two have no series in common");
    out = {};
    out.title = title;
    out.notes = std::move(notes);
  }
  return out;
}

}  // namespace kvatlas::viewer
