// SPDX-License-Identifier: Apache-2.0
#include <QAreaSeries>
#include <QChart>
#include <QGraphicsItem>
#include <QGraphicsLayout>
#include <QLineSeries>
#include <QLogValueAxis>
#include <QPainter>
#include <QValueAxis>
#include <algorithm>
#include <cmath>

#include "viewer/draw/curves_impl.hpp"

namespace kvatlas::viewer {

namespace {

constexpr double kAboveGrid = 3.5;  // Qt Charts: grid 2, axes 3, series 4

/// Paints whatever the function paints, at its place in the scene's order.
class PaintedItem : public QGraphicsItem {
 public:
  PaintedItem(const QChart* chart, const std::function<void(QPainter&)>* paint)
      : chart_(chart), paint_(paint) {}
  QRectF boundingRect() const override { return chart_->rect(); }
  void paint(QPainter* painter, const QStyleOptionGraphicsItem* /*option*/,
             QWidget* /*widget*/) override {
    if (*paint_) (*paint_)(*painter);
  }

 private:
  const QChart* chart_;
  const std::function<void(QPainter&)>* paint_;
};

/// The part of a segment that both axes hold; false if they hold none of it. An end that they hold
/// stays as it is.
bool cut(QPointF& a, QPointF& b, const PlotAxis& x, const PlotAxis& y) {
  const auto held = [&](const QPointF& p) { return x.holds(p.x()) && y.holds(p.y()); };
  if (held(a) && held(b)) return true;
  const QPointF start(x.share(a.x()), y.share(a.y()));
  const QPointF d = QPointF(x.share(b.x()), y.share(b.y())) - start;
  double from = 0, to = 1;
  const auto side = [&](double step, double room) {  // step * t <= room
    if (step == 0) return room >= 0;
    const double t = room / step;
    step < 0 ? from = std::max(from, t) : to = std::min(to, t);
    return from <= to;
  };
  if (!side(-d.x(), start.x()) || !side(d.x(), 1 - start.x()) || !side(-d.y(), start.y()) ||
      !side(d.y(), 1 - start.y()))
    return false;
  const auto point = [&](double t) {
    const QPointF at = start + t * d;
    return QPointF(x.at_share(at.x()), y.at_share(at.y()));
  };
  if (from > 0) a = point(from);
  if (to < 1) b = point(to);
  return true;
}

/// Of the points in one column of pixels: the first of the least and of the greatest.
QList<QPointF> thinned(const QList<QPointF>& points, const PlotAxis& x) {
  if (static_cast<double>(points.size()) <= 2 * (x.last - x.first)) return points;
  const auto column_of = [&](const QPointF& point) { return std::floor(x.pixel(point.x())); };
  QList<QPointF> out;
  for (auto first = points.begin(); first != points.end();) {
    const double column = column_of(*first);
    const auto end = std::find_if(first, points.end(),
                                  [&](const QPointF& point) { return column_of(point) != column; });
    const auto lower = [](const QPointF& a, const QPointF& b) { return a.y() < b.y(); };
    const auto low = std::min_element(first, end, lower);
    const auto high = std::max_element(first, end, lower);
    out.push_back(*std::min(low, high));
    if (low != high) out.push_back(*std::max(low, high));
    first = end;
  }
  return out;
}

QAbstractAxis* new_axis(bool logarithmic) {
  QAbstractAxis* axis = nullptr;
  if (logarithmic)
    axis = new QLogValueAxis;
  else
    axis = new QValueAxis;
  axis->setLabelsVisible(false);
  axis->setMinorGridLineVisible(false);
  return axis;
}

/// Without a valid colour of the grid there is none.
void set_range(QAbstractAxis* axis, const PlotAxis& range, const QColor& line, const QColor& grid) {
  axis->setRange(range.low, range.high);
  axis->setLinePen(QPen(line, 1));
  axis->setGridLinePen(QPen(grid, 1));
  // Grid and ticks stand where the labels do; uneven ones are painted with the labels.
  bool even = range.ticks.size() >= 2;
  for (std::size_t i = 2; i < range.ticks.size(); ++i)
    even =
        even && std::abs((range.ticks[i].at - range.ticks[i - 1].at) -
                         (range.ticks[1].at - range.ticks[0].at)) < 1e-6 * (range.high - range.low);
  if (auto* value_axis = qobject_cast<QValueAxis*>(axis)) {
    if (even) {
      value_axis->setTickType(QValueAxis::TicksDynamic);
      value_axis->setTickAnchor(range.ticks[0].at);
      value_axis->setTickInterval(range.ticks[1].at - range.ticks[0].at);
    }
    axis->setGridLineVisible(grid.isValid() && even);
  } else {
    axis->setGridLineVisible(grid.isValid());
  }
}

void replace(QLineSeries& series, const QList<QPointF>& points) {
  if (series.points() != points) series.replace(points);
}

}  // namespace

std::vector<QList<QPointF>> visible_parts(const std::vector<Point>& points, bool steps,
                                          const PlotAxis& x, const PlotAxis& y) {
  std::vector<QList<QPointF>> runs(1);
  for (const auto& point : points) {
    if (!std::isfinite(x.share(point.x)) || !std::isfinite(y.share(point.y))) {
      if (!runs.back().empty()) runs.emplace_back();
      continue;
    }
    if (steps && !runs.back().empty()) runs.back().push_back({point.x, runs.back().back().y()});
    runs.back().push_back({point.x, point.y});
  }
  std::vector<QList<QPointF>> out;
  for (const auto& run : runs) {
    const auto some = thinned(run, x);
    bool joined = false;
    for (qsizetype i = 1; i < some.size(); ++i) {
      QPointF a = some[i - 1], b = some[i];
      if (!cut(a, b, x, y)) {
        joined = false;
        continue;
      }
      if (!joined) out.push_back({a});
      out.back().push_back(b);
      joined = b == some[i];
    }
  }
  return out;
}

/// What Qt Charts draws, in values of the axes.
struct Curves::Plan {
  struct Curve {
    QList<QPointF> points;
    QPen pen;
    bool right;
  };
  struct Area {
    QList<QPointF> lower, upper;
    QBrush brush;
  };
  std::vector<Curve> curves;
  std::vector<Area> areas;
};

/// All that the chart's own layout depends on.
struct Curves::Frame {
  QRectF area, plot;
  PlotAxis x, y, right;
  QColor line, grid;

  bool same_kind(const Frame& other) const {
    return x.logarithmic == other.x.logarithmic && y.logarithmic == other.y.logarithmic &&
           right.logarithmic == other.right.logarithmic;
  }
  bool operator==(const Frame&) const = default;
};

Curves::Curves() : chart_(new QChart), below_item_(new PaintedItem(chart_, &paint_below_)) {
  chart_->setBackgroundVisible(false);
  chart_->setPlotAreaBackgroundVisible(false);
  chart_->setAnimationOptions(QChart::NoAnimation);
  chart_->legend()->hide();
  chart_->setMargins({});
  below_item_->setParentItem(chart_);
  below_item_->setZValue(kAboveGrid);
  scene_.addItem(chart_);
}

Curves::~Curves() = default;

void Curves::build(const Plan& plan, const Frame& frame) {
  chart_->removeAllSeries();
  for (auto* axis : {&x_, &y_, &right_}) {
    if (*axis) chart_->removeAxis(*axis), delete *axis;
    *axis = nullptr;
  }
  chart_->addAxis(x_ = new_axis(frame.x.logarithmic), Qt::AlignBottom);
  chart_->addAxis(y_ = new_axis(frame.y.logarithmic), Qt::AlignLeft);
  bool any_right = false;
  for (const auto& curve : plan.curves) any_right = any_right || curve.right;
  if (any_right) chart_->addAxis(right_ = new_axis(frame.right.logarithmic), Qt::AlignRight);
  lines_.clear();
  areas_.clear();
  line_sides_.clear();
  for (std::size_t i = 0; i < plan.areas.size(); ++i) {
    auto* area = new QAreaSeries;
    area->setUpperSeries(new QLineSeries(area));
    area->setLowerSeries(new QLineSeries(area));
    chart_->addSeries(area);
    area->attachAxis(x_);
    area->attachAxis(y_);
    areas_.push_back(area);
  }
  for (const auto& curve : plan.curves) {
    auto* line = new QLineSeries;
    chart_->addSeries(line);
    line->attachAxis(x_);
    line->attachAxis(curve.right ? right_ : y_);
    lines_.push_back(line);
    line_sides_.push_back(curve.right);
  }
}

void Curves::set(const Chart& chart, const ChartLayout& layout, const Theme& theme) {
  Plan plan;
  for (std::size_t i = 0; i < chart.bands.size(); ++i) {
    std::vector<Point> low, high;
    for (const auto& edge : chart.bands[i].edges) {
      if (!std::isfinite(edge.low) || !std::isfinite(edge.high)) continue;
      const auto inside = [&](double value) {
        return std::clamp(value, layout.y.low, layout.y.high);
      };
      low.push_back({edge.x, inside(edge.low)});
      high.push_back({edge.x, inside(edge.high)});
    }
    const auto lower = visible_parts(low, false, layout.x, layout.y);
    const auto upper = visible_parts(high, false, layout.x, layout.y);
    if (lower.size() != 1 || upper.size() != 1) continue;
    plan.areas.push_back(
        {lower.front(), upper.front(), theme.series_brush(band_look(chart, i), Emphasis::faint)});
  }
  for (std::size_t i = 0; i < chart.lines.size(); ++i) {
    const auto& line = chart.lines[i];
    const bool right = line.right && layout.has_right;
    const PlotAxis& y = right ? layout.right : layout.y;
    for (const auto& part : visible_parts(line.points, line.steps, layout.x, y))
      plan.curves.push_back({part, theme.series_pen(line_look(chart, i), line.emphasis), right});
  }
  std::vector<bool> sides;
  for (const auto& curve : plan.curves) sides.push_back(curve.right);
  const Frame frame{layout.area,  layout.plot,      layout.x,  layout.y,
                    layout.right, theme.faint_text, theme.grid};
  const bool built = !frame_ || !frame.same_kind(*frame_) || sides != line_sides_ ||
                     areas_.size() != plan.areas.size();
  if (built) build(plan, frame);
  if (built || frame != *frame_) set_frame(frame);
  for (std::size_t i = 0; i < plan.curves.size(); ++i) {
    lines_[i]->setPen(plan.curves[i].pen);
    replace(*lines_[i], plan.curves[i].points);
  }
  for (std::size_t i = 0; i < plan.areas.size(); ++i) {
    areas_[i]->setBrush(plan.areas[i].brush);
    areas_[i]->setPen(QPen(plan.areas[i].brush.color(), 1));  // seen where it is flat
    replace(*areas_[i]->lowerSeries(), plan.areas[i].lower);
    replace(*areas_[i]->upperSeries(), plan.areas[i].upper);
  }
}

/// The chart lays its hidden labels out as documents, which takes milliseconds.
void Curves::set_frame(const Frame& frame) {
  if (chart_->geometry() != frame.area) {
    chart_->setGeometry(frame.area);
    scene_.setSceneRect(frame.area);
  }
  chart_->setPlotArea(frame.plot.translated(-frame.area.topLeft()));
  set_range(x_, frame.x, frame.line, frame.grid);
  set_range(y_, frame.y, frame.line, frame.grid);
  if (right_) set_range(right_, frame.right, frame.line, {});
  // Nobody else runs the layout: there may be no event loop.
  chart_->layout()->invalidate();
  chart_->layout()->activate();
  frame_ = std::make_unique<Frame>(frame);
}

void Curves::paint(QPainter& painter, const std::function<void(QPainter&)>& below) const {
  paint_below_ = below;
  auto& scene = const_cast<QGraphicsScene&>(scene_);
  scene.render(&painter, scene_.sceneRect(), scene_.sceneRect());
  paint_below_ = nullptr;
}

}  // namespace kvatlas::viewer
