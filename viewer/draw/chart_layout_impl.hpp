// SPDX-License-Identifier: Apache-2.0
// Where everything of a chart goes: axes between values and pixels, ticks, room for text, the grid
// of small multiples. Numbers and rectangles; nothing is painted here.
#pragma once

#include <QFont>
#include <QRectF>
#include <QString>
#include <optional>
#include <utility>
#include <vector>

#include "viewer/draw/theme.hpp"
#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

/// An axis on the screen. A value that a logarithmic axis cannot show lies at NaN.
struct PlotAxis {
  double low = 0, high = 1;
  bool logarithmic = false;
  double first = 0, last = 1;  // pixels of low and high
  std::vector<AxisTick> ticks = {};

  /// How far along the axis a value lies: 0 at `low`, 1 at `high`.
  double share(double value) const;
  double at_share(double share) const;
  double pixel(double value) const;
  double value(double pixel) const;
  bool holds(double value) const { return value >= low && value <= high; }
  bool operator==(const PlotAxis&) const = default;
};

/// How a series is told apart in the legend.
struct LegendEntry {
  enum class Kind { line, band, points, colour, bars, box, flag } kind = Kind::line;
  int number = 0;  // of its look; bars: of the series
  int shape = 0;
  Emphasis emphasis = Emphasis::normal;
  QString text;
  QRectF area = {};  // filled by the layout
};

struct ChartLayout {
  QRectF area, title, notes, plot, matrices, legend_bar;
  QRectF x_title, y_title, right_title;
  PlotAxis x, y, right;
  bool has_plot = false, has_right = false;
  std::vector<LegendEntry> legend;
  struct MatrixPlace {
    QRectF label, cells;
    bool row_labels = false, column_labels = false;
  };
  std::vector<MatrixPlace> places;  // of each matrix
};

/// Sizes in units of a 96-dpi pixel, so that windows, PNG and SVG agree.
QFont sized_font(const QFont& font, double factor, bool bold = false);
inline constexpr double kTickFont = 0.88, kTitleFont = 1.08, kNoteFont = 0.88;

/// A handle's grip lies so far inside the plot, beside the labels of the ticks.
inline constexpr double kGripIn = 12;

/// Whether there is something to draw between two axes.
bool has_plot(const Chart& chart);
/// Colours by place in a sequence where a stack has more series than colours.
inline constexpr std::size_t kMostColours = 8;
ChartLayout layout_of(const Chart& chart, const Theme& theme, const QRectF& area);

/// At most so many digits, but whole numbers and thousands in full: "0.88246", "131072".
QString plain_number(double value, int digits);
/// The label of a chosen tick, without powers of ten where a number will do.
QString tick_text(double value, const std::string& label);
/// "KV kept (share)".
QString axis_words(const Axis& axis);

/// Series numbers of looks: lines first, then points, then bars.
int line_look(const Chart& chart, std::size_t line);
int points_look(const Chart& chart, std::size_t series);
int point_colour_look(int colour);  // not black, which is for lines
int bars_look(const Chart& chart, std::size_t series);

/// Height of bar `index` of a series with the stack below it: bottom and top.
std::pair<double, double> bar_ends(const Chart& chart, std::size_t series, std::size_t index);
/// The bar's left and right ends in axis units.
std::pair<double, double> bar_sides(const Chart& chart, std::size_t series, std::size_t index);

}  // namespace kvatlas::viewer
