// SPDX-License-Identifier: Apache-2.0
// The axes, grid, lines and bands of a chart. Qt Charts draws them; it is given values, which it
// maps to pixels. Everything else of a chart is painted below or above them.
#pragma once

#include <QGraphicsScene>
#include <QList>
#include <QPointF>
#include <functional>
#include <memory>
#include <vector>

#include "viewer/draw/chart_layout_impl.hpp"

class QAbstractAxis;
class QAreaSeries;
class QChart;
class QLineSeries;
class QPainter;

namespace kvatlas::viewer {

/// The parts of a line that can be seen, in values of the axes: split where a value is missing, cut
/// at the plot's edges (an SVG knows no clipping), at most two points for each column of pixels.
std::vector<QList<QPointF>> visible_parts(const std::vector<Point>& points, bool steps,
                                          const PlotAxis& x, const PlotAxis& y);

class Curves {
 public:
  Curves();
  ~Curves();
  /// Draws this chart from now on. Series are made anew only if their number changes.
  void set(const Chart& chart, const ChartLayout& layout, const Theme& theme);
  /// Paints the chart; `below` paints what lies above the grid and below the lines.
  void paint(QPainter& painter, const std::function<void(QPainter&)>& below) const;

 private:
  struct Plan;
  struct Frame;
  void build(const Plan& plan, const Frame& frame);
  void set_frame(const Frame& frame);

  QGraphicsScene scene_;
  QChart* chart_;              // owned by the scene
  QGraphicsItem* below_item_;  // owned by the scene; calls paint_below_
  QAbstractAxis *x_ = nullptr, *y_ = nullptr, *right_ = nullptr;
  std::vector<QLineSeries*> lines_;
  std::vector<QAreaSeries*> areas_;
  std::vector<bool> line_sides_;  // of each line, whether it belongs to the right axis
  std::unique_ptr<Frame> frame_;
  mutable std::function<void(QPainter&)> paint_below_;
};

}  // namespace kvatlas::viewer
