// SPDX-License-Identifier: Apache-2.0
// What a chart shows, as plain numbers and words. The window and the PNG and SVG files draw it; its
// table has the same numbers for screen readers and CSV files.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/plain_text.hpp"
#include "base/table.hpp"

namespace kvatlas::viewer {

inline constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

struct AxisTick {
  double at = 0;
  std::string label;
  bool operator==(const AxisTick&) const = default;
};

/// What the values of an axis count, where that matters to comparing two charts.
enum class AxisKind : std::uint8_t { other, layers, tokens };

struct Axis {
  std::string title, unit;                              // the unit may be empty
  std::vector<AxisTick> ticks = {};                     // empty: the drawing chooses them
  std::optional<std::pair<double, double>> range = {};  // none: as wide as the series need
  bool logarithmic = false;
  AxisKind kind = AxisKind::other;
};

/// How a series or a part of it stands out. Drawings make the difference visible without colour
/// too.
enum class Emphasis : std::uint8_t { normal, strong, faint, reference };

struct Point {
  double x = 0, y = 0;
  std::string label = {};  // shown where the mouse is on the point
  double low = kNoNumber, high = kNoNumber;
  Emphasis emphasis = Emphasis::normal;
  int colour = -1;  // index in Chart::point_colours; -1: the colour of its series
};

struct Line {
  std::string label;
  std::vector<Point> points;
  Emphasis emphasis = Emphasis::normal;
  bool steps = false;  // y holds until the next x
  bool right = false;  // its values belong to the axis on the right
};

struct Band {
  std::string label;         // empty: the legend has only its line
  std::vector<Point> edges;  // of which x, low and high are used
  int line = -1;             // index of the line whose look it has; -1: it has a look of its own
};

struct Points {
  std::string label;
  std::vector<Point> points;
  int shape = 0;  // number of the shape that is painted at each point
};

struct Bar {
  double x = 0, height = 0;
  std::string label = {};
  Emphasis emphasis = Emphasis::normal;
};
struct Bars {
  std::string label;
  std::vector<Bar> bars;
  bool stacked = false;  // its bars stand on those of the series before it
};

/// The quartiles, the least and the greatest of the values at x.
struct Box {
  double x = 0;
  double least = 0, lower = 0, median = 0, upper = 0, most = 0;
  Emphasis emphasis = Emphasis::normal;  // a strong box is filled and hatched
  bool flagged = false;
};

/// The setting that a mark changes when it is dragged.
enum class Handle : std::uint8_t {
  none,  // the mark cannot be dragged
  lazy_threshold,
  lazy_share,
  similarity,
  divergence,
  wanted_saving,
  gate_threshold,
  wanted_compression,
  least_score,
  compared_share,
};

/// A straight line over the whole chart, with its name.
struct Mark {
  std::string label;
  double at = 0;
  bool vertical = true;
  Handle handle = Handle::none;
  Emphasis emphasis = Emphasis::reference;

  bool can_be_dragged() const { return handle != Handle::none; }
};

/// A small matrix, whose first row is at the top.
struct Matrix {
  std::string label, unit;
  std::vector<std::string> row_labels, column_labels;
  std::vector<double> values;  // row by row; NaN: missing
  std::pair<double, double> range = {0, 1};
  struct Outline {
    std::int64_t first = 0, last = 0;  // rows and columns of a square on the diagonal
  };
  std::vector<Outline> outlines = {};
  std::vector<std::pair<std::size_t, std::size_t>> marked = {};  // row and column of outlined cells
  std::optional<double> contour = {};          // a line is drawn around the cells above this value
  std::vector<std::string> column_texts = {};  // shown where the mouse is, instead of column_labels

  double at(std::size_t row, std::size_t column) const {
    return values[row * column_labels.size() + column];
  }
};

struct Chart {
  std::string title;
  std::vector<std::string> notes;  // say what the numbers are of, and what is missing and why
  Axis x, y;
  std::optional<Axis> right;
  std::vector<Line> lines;
  std::vector<Band> bands;
  std::vector<Points> points;
  std::vector<std::string> point_colours;  // what each colour of points stands for, for the legend
  std::vector<Bars> bars;
  std::vector<Box> boxes;
  // What such bars and boxes stand for, for the legend.
  std::string strong_bars, strong_boxes, flagged_boxes;
  std::vector<Mark> marks;
  std::vector<Matrix> matrices;  // several are drawn side by side
  Table table;
};

/// Whether the chart has something to draw besides axes and marks.
bool has_content(const Chart& chart);
/// The mark that has this handle; nullptr if the chart has none.
const Mark* mark_of(const Chart& chart, Handle handle);

/// The table as CSV. Title and notes stand above it in lines that begin with '#'.
std::string chart_csv(const Chart& chart);

/// The title, the notes and one table of several charts, for CSV. Its first column names the chart
/// of a row; columns of one title are one column, and cells of columns that a chart lacks are
/// empty. A table that several charts share stands there once, and if there are no others it stays
/// as it is.
Chart joined(std::string title, const std::vector<const Chart*>& charts);

/// The box of these values at x; NaN values are left out. Quartiles are interpolated linearly
/// between ranks.
Box box_of(double x, std::vector<double> values);

}  // namespace kvatlas::viewer
