// SPDX-License-Identifier: Apache-2.0
// A chart's axes, grid, lines and bands, drawn by Qt Charts; all else is painted above or below.
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
  /// Updates what changed; builds anew only if series come or go.
  void set(const Chart& chart, const ChartLayout& layout, const Theme& theme);
  /// `below` is painted above the grid and below the lines.
  void paint(QPainter& painter, const std::function<void(QPainter&)>& below) const;

 private:
  struct Plan;
  struct Frame;
  void build(const Plan& plan, const Frame& frame);
  void set_frame(const Frame& frame);

  QGraphicsScene scene_;
  QChart* chart_;              // of the scene
  QGraphicsItem* below_item_;  // likewise
  QAbstractAxis *x_ = nullptr, *y_ = nullptr, *right_ = nullptr;
  std::vector<QLineSeries*> lines_;
  std::vector<QAreaSeries*> areas_;
  std::vector<bool> line_sides_;  // right?
  std::unique_ptr<Frame> frame_;
  mutable std::function<void(QPainter&)> paint_below_;
};

}  // namespace kvatlas::viewer
