// SPDX-License-Identifier: Apache-2.0
// Computes where the parts of a chart lie: axes and their ticks, titles, notes, the legend, and the
// grid of matrices. Nothing is painted here.
#pragma once

#include <QFont>
#include <QRectF>
#include <QString>
#include <optional>
#include <utility>
#include <vector>

#include "viewer/draw/theme.hpp"
#include "viewer/maps/scale.hpp"
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

/// One entry of the legend.
struct LegendEntry {
  enum class Kind { line, band, points, colour, bars, box, flag, rest } kind = Kind::line;
  int number = 0;  // of the line, the band or the bars; for points of the look (points_look())
  int shape = 0;
  Emphasis emphasis = Emphasis::normal;
  QString text;
  QRectF area = {};  // set by layout_of()
};

/// What two charts that are compared have in common, so that they line up: the least heights of
/// what stands around the plot, and the least ranges of the axes.
struct ChartFrame {
  double title = 0, notes = 0, legend = 0;
  using Range = std::optional<std::pair<double, double>>;
  Range x = {}, y = {}, right = {};
};
ChartFrame joined(const ChartFrame& one, const ChartFrame& other);

struct ChartLayout {
  QRectF area, title, notes, plot, matrices, legend_bar;
  QRectF x_title, y_title, right_title;
  PlotAxis x, y, right;
  bool has_plot = false, has_right = false;
  double legend_height = 0;  // above the plot
  std::vector<LegendEntry> legend;
  struct MatrixPlace {
    QRectF label, cells;
    bool row_labels = false, column_labels = false;
    double row_label_width = 0;  // labels of rows that are wider are cut short
  };
  std::vector<MatrixPlace> places;  // one for each matrix
  struct CutText {
    QRectF area;
    QString whole;
  };
  std::vector<CutText> cut_texts;  // what the legend shows cut short
};

/// The font at `factor` times its size, measured in pixels of 96 dpi, so that text has the same
/// size in windows, PNG and SVG files.
QFont sized_font(const QFont& font, double factor, bool bold = false);
inline constexpr double kTickFont = 0.88, kTitleFont = 1.08, kNoteFont = 0.88;

/// How far inside the plot a handle's grip lies, so that it does not cover labels of ticks.
inline constexpr double kGripIn = 12;

/// Whether the chart has something to draw between two axes.
bool has_plot(const Chart& chart);
/// If a stack has more series than this, each gets its colour by its place in the stack.
inline constexpr std::size_t kMostColours = 8;
ChartLayout layout_of(const Chart& chart, const Theme& theme, const QRectF& area,
                      const ChartFrame& least = {});
ChartFrame frame_of(const ChartLayout& layout);
/// From this height on the title, the notes and the legend are whole, and what they belong to is
/// high enough to be read.
double least_height(const Chart& chart, const Theme& theme, double width,
                    const ChartFrame& least = {});

/// The scale of a matrix' colours, from 0 to 1 if its range is none.
Scale legend_scale(const Matrix& matrix);
inline constexpr int kMostLegendTicks = 9;

/// A number with at most so many digits; whole numbers and thousands are written in full, such as
/// "0.88246" and "131072".
QString plain_number(double value, int digits);
/// The label of a tick; thousands are written in full, not as powers of ten.
QString tick_text(double value, const std::string& label);
/// The title of an axis and its unit, such as "KV kept (share)".
QString axis_words(const Axis& axis);

/// The look of a series, a number that the theme turns into a colour and a dash. Lines have the
/// first numbers, points follow, then bars. Reference lines are counted by themselves.
int line_look(const Chart& chart, std::size_t line);
int points_look(const Chart& chart, std::size_t series);
int band_look(const Chart& chart, std::size_t band);
/// Lines of few points show where these are.
bool shows_points(const Line& line);
int point_colour_look(int colour);  // never black, which lines have
int bars_look(const Chart& chart, std::size_t series);

/// The bottom and the top of bar `index` of a series, in axis units, on the stack below it.
std::pair<double, double> bar_ends(const Chart& chart, std::size_t series, std::size_t index);
/// The left and right sides of the bar, in axis units.
std::pair<double, double> bar_sides(const Chart& chart, std::size_t series, std::size_t index);

}  // namespace kvatlas::viewer
