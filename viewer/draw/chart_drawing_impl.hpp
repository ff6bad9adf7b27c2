// SPDX-License-Identifier: Apache-2.0
// Draws a chart, for a window or a file, and finds what lies at a place of the drawing.
#pragma once

#include <QImage>
#include <QString>
#include <memory>
#include <optional>
#include <vector>

#include "viewer/draw/chart_layout_impl.hpp"
#include "viewer/draw/curves_impl.hpp"
#include "viewer/draw/stamps_impl.hpp"

class QPainter;

namespace kvatlas::viewer {

/// A part of a chart that can be pointed at.
struct Part {
  enum class Kind : std::uint8_t { none, point, line_point, bar, box, cell } kind = Kind::none;
  int series = -1, index = -1;  // of a cell, `index` is the matrix
  int row = -1, column = -1;
  bool operator==(const Part&) const = default;
};

class ChartDrawing {
 public:
  /// Draws this chart from now on. Images of matrices that are as before are kept.
  void set(Chart chart, const Theme& theme, const QRectF& area);
  /// Moves the chart to another area.
  void place(const QRectF& area);
  /// Its frame by itself, and the one that it shares with a chart that it is compared with.
  ChartFrame own_frame() const { return frame_of(layout_of(chart_, theme_, layout_.area)); }
  void set_frame(const ChartFrame& least);
  /// Beside the frame that it shares.
  double least_height(double width) const {
    return viewer::least_height(chart_, theme_, width, least_);
  }
  void paint(QPainter& painter) const;

  const Chart& chart() const { return chart_; }
  const ChartLayout& layout() const { return layout_; }

  /// The part under a pixel, or near to it.
  Part part_at(const QPointF& at) const;
  /// The mark whose handle or line is here and can be dragged; nullptr if there is none.
  const Mark* handle_at(const QPointF& at) const;
  /// Where a mark's line is, in pixels along its axis; NaN if it cannot be seen.
  double mark_pixel(const Mark& mark) const;
  /// The value that a mark gets by being dragged to here, within its axis.
  double mark_value(const Mark& mark, const QPointF& at) const;
  /// The rectangle around a part; empty if the part cannot be seen.
  QRectF area_of(const Part& part) const;
  /// A part in words: its series, place and value, such as "needle: layer 3, 0.82 (0.7 to 0.9)".
  QString words(const Part& part) const;
  /// A text that is shown cut short under a pixel, whole: an entry of the legend, or the name of a
  /// matrix' row. Empty where there is none.
  QString whole_text_at(const QPointF& at) const;
  /// The value of a matrix' cell, as words() says it.
  static QString cell_number(double value);
  /// All parts that the keyboard can move between, series by series, each from left to right.
  std::vector<Part> parts() const;

 private:
  void paint_text(QPainter& painter) const;
  void paint_axes(QPainter& painter) const;
  void paint_legend(QPainter& painter) const;
  void paint_bars(QPainter& painter) const;
  void paint_boxes(QPainter& painter) const;
  void paint_box_body(QPainter& painter, Fills& fills, const QRectF& body, Emphasis emphasis) const;
  void paint_points(QPainter& painter) const;
  void paint_marks(QPainter& painter) const;
  void paint_matrices(QPainter& painter) const;
  void paint_matrix(QPainter& painter, std::size_t matrix) const;
  void paint_legend_bar(QPainter& painter) const;
  QPointF place_of(const Point& point, bool right) const;
  /// Whether a point of the chart lies in this area.
  bool holds_points(const QRectF& area) const;
  QBrush bar_brush(std::size_t series, Emphasis emphasis) const;
  void paint_bar(QPainter& painter, Fills& fills, const QRectF& area, std::size_t series,
                 Emphasis emphasis) const;

  Chart chart_;
  Theme theme_;
  ChartLayout layout_;
  ChartFrame least_;
  std::unique_ptr<Curves> curves_;
  std::vector<QImage> images_;  // one for each matrix, with one pixel for each cell
};

}  // namespace kvatlas::viewer
