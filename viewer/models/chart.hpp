// SPDX-License-Identifier: Apache-2.0
// What a chart shows, as plain numbers and words: one vocabulary for the window, for PNG and SVG,
// and for the table twin that a screen reader walks and that the CSV is made of.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
  std::vector<AxisTick> ticks = {};                     // empty: the drawing chooses
  std::optional<std::pair<double, double>> range = {};  // none: what the series need
  bool logarithmic = false;
  AxisKind kind = AxisKind::other;
};

/// How a series or a part of it stands out; drawings tell these apart without colour too.
enum class Emphasis : std::uint8_t { normal, strong, faint, reference };

struct Point {
  double x = 0, y = 0;
  std::string label = {};  // for hovering
  double low = kNoNumber, high = kNoNumber;
  Emphasis emphasis = Emphasis::normal;
  int colour = -1;  // in Chart::point_colours; -1: that of its series
};

struct Line {
  std::string label;
  std::vector<Point> points;
  Emphasis emphasis = Emphasis::normal;
  bool steps = false;  // y holds until the next x
  bool right = false;  // against the axis on the right
};

struct Band {
  std::string label;         // empty: the legend has only its line
  std::vector<Point> edges;  // x, low and high
  int line = -1;             // of Chart::lines, in whose look it is drawn; -1: in one of its own
};

struct Points {
  std::string label;
  std::vector<Point> points;
  int shape = 0;  // series of other shapes look different
};

struct Bar {
  double x = 0, height = 0;
  std::string label = {};
  Emphasis emphasis = Emphasis::normal;
};
struct Bars {
  std::string label;
  std::vector<Bar> bars;
  bool stacked = false;  // on the series before it
};

/// Of the values at x: their quartiles and ends.
struct Box {
  double x = 0;
  double least = 0, lower = 0, median = 0, upper = 0, most = 0;
  Emphasis emphasis = Emphasis::normal;  // strong: filled and hatched
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

/// A small matrix, row by row from the top.
struct Matrix {
  std::string label, unit;
  std::vector<std::string> row_labels, column_labels;
  std::vector<double> values;  // [row][column]; NaN: missing
  std::pair<double, double> range = {0, 1};
  struct Outline {
    std::int64_t first = 0, last = 0;  // rows and columns of a square on the diagonal
  };
  std::vector<Outline> outlines = {};
  std::optional<double> contour = {};          // a line around the cells above it
  std::vector<std::string> column_texts = {};  // for hovering, in the place of labels

  double at(std::size_t row, std::size_t column) const {
    return values[row * column_labels.size() + column];
  }
};

struct Table {
  struct Column {
    std::string title, unit = {};
    bool sentences = false;  // its cells are long texts
  };
  /// A number, or text. (As a std::variant it trips GCC 12's -Wfree-nonheap-object.)
  struct Cell {
    Cell(double value) : number(value) {}
    Cell(std::string value) : text(std::move(value)), is_text(true) {}
    Cell(const char* value) : text(value), is_text(true) {}
    double number = kNoNumber;
    std::string text = {};
    bool is_text = false;
  };
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
};

struct Chart {
  std::string title;
  std::vector<std::string> notes;  // what the numbers are of; what is missing, and why
  Axis x, y;
  std::optional<Axis> right;
  std::vector<Line> lines;
  std::vector<Band> bands;
  std::vector<Points> points;
  std::vector<std::string> point_colours;  // what these stand for, for the legend
  std::vector<Bars> bars;
  std::vector<Box> boxes;
  std::string strong_boxes, flagged_boxes;  // what these are, for the legend
  std::vector<Mark> marks;
  std::vector<Matrix> matrices;  // several: small multiples
  Table table;
};

/// Something to draw besides axes and marks.
bool has_content(const Chart& chart);
/// The mark that has this handle; nullptr if the chart has none.
const Mark* mark_of(const Chart& chart, Handle handle);

/// The table in CSV (RFC 4180, line ends "\n"), title and notes above it in lines that begin with
/// '#'. Numbers have up to nine significant digits; NaN is an empty field, infinity "inf".
std::string chart_csv(const Chart& chart);

/// Text for titles: "0.885"; "-" for NaN, "infinite".
std::string number_text(double value, int decimals);
std::string percent_text(double share);  // "37.5 %"

/// Least, quartiles and most (linear between ranks), at x; NaN values are left out.
Box box_of(double x, std::vector<double> values);

}  // namespace kvatlas::viewer
