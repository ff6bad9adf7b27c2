// SPDX-License-Identifier: Apache-2.0
#include <QFontMetricsF>
#include <QPaintEngine>
#include <QPainter>
#include <QPainterPath>
#include <QPolygonF>
#include <algorithm>
#include <cmath>
#include <optional>

#include "viewer/draw/chart_drawing_impl.hpp"

namespace kvatlas::viewer {

namespace {

constexpr int kFlagShape = 4;
constexpr double kLinePoint = 2.4;  // radius of a line's points

QColor faded(QColor colour, double alpha) {
  colour.setAlphaF(static_cast<float>(alpha));
  return colour;
}

void set_pen(QPainter& painter, const QPen& pen, const QBrush& brush = Qt::NoBrush) {
  painter.setPen(pen);
  painter.setBrush(brush);
}

QBrush point_fill(const QColor& colour, Emphasis emphasis) {
  if (emphasis == Emphasis::faint) return Qt::NoBrush;
  return emphasis == Emphasis::strong ? colour : faded(colour, 0.25);
}

/// Text along the left or right side, read from below.
void paint_upward(QPainter& painter, const QRectF& area, const QString& text) {
  painter.save();
  painter.translate(area.left(), area.bottom());
  painter.rotate(-90);
  painter.drawText(QRectF(0, 0, area.height(), area.width()), Qt::AlignCenter,
                   QFontMetricsF(painter.font()).elidedText(text, Qt::ElideRight, area.height()));
  painter.restore();
}

void paint_grip(QPainter& painter, const QPointF& at, bool vertical, const Theme& theme) {
  const QSizeF size = vertical ? QSizeF(14, 20) : QSizeF(20, 14);
  const QRectF grip(at - QPointF(size.width() / 2, size.height() / 2), size);
  set_pen(painter, QPen(theme.background, 1.5), theme.accent);
  painter.drawRoundedRect(grip, 4, 4);
  painter.setPen(QPen(theme.dark ? QColor("#0b0d10") : QColor(Qt::white), 1.5));
  for (const double shift : {-2.5, 2.5})
    if (vertical)
      painter.drawLine(QPointF(at.x() + shift, at.y() - 4), QPointF(at.x() + shift, at.y() + 4));
    else
      painter.drawLine(QPointF(at.x() - 4, at.y() + shift), QPointF(at.x() + 4, at.y() + shift));
}

}  // namespace

void ChartDrawing::paint(QPainter& painter) const {
  painter.save();
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setRenderHint(QPainter::TextAntialiasing);
  if (layout_.has_plot) {
    curves_->paint(painter, [this](QPainter& below) {
      below.save();
      below.translate(-layout_.area.topLeft());
      below.setRenderHint(QPainter::Antialiasing);
      paint_bars(below);
      below.restore();
    });
    paint_boxes(painter);
    paint_points(painter);
    paint_axes(painter);
    paint_legend(painter);
  }
  if (!chart_.matrices.empty()) paint_matrices(painter);
  paint_marks(painter);
  paint_text(painter);
  painter.restore();
}

void ChartDrawing::paint_text(QPainter& painter) const {
  if (!layout_.title.isEmpty()) {
    painter.setFont(sized_font(theme_.font, kTitleFont, true));
    painter.setPen(theme_.text);
    painter.drawText(layout_.title, Qt::TextWordWrap | Qt::AlignLeft | Qt::AlignTop,
                     QString::fromStdString(chart_.title));
  }
  if (layout_.notes.isEmpty()) return;
  const QFont font = sized_font(theme_.font, kNoteFont);
  painter.setFont(font);
  painter.setPen(theme_.faint_text);
  QRectF room = layout_.notes;
  for (const auto& note : chart_.notes) {
    QRectF used;
    painter.drawText(room, Qt::TextWordWrap | Qt::AlignLeft | Qt::AlignTop,
                     QString::fromStdString(note), &used);
    room.setTop(std::min(used.bottom(), room.bottom()));
    if (room.height() < QFontMetricsF(font).height() / 2) break;
  }
}

void ChartDrawing::paint_axes(QPainter& painter) const {
  const QFont font = sized_font(theme_.font, kTickFont);
  const QFontMetricsF metrics(font);
  painter.setFont(font);
  const QRectF plot = layout_.plot;
  const double half = metrics.height() / 2;
  const auto tick_pen = QPen(theme_.faint_text, 1);
  double free_from = -1e9;
  for (const auto& tick : layout_.x.ticks) {
    const double at = layout_.x.pixel(tick.at);
    const QString text = QString::fromStdString(tick.label);
    const double width = metrics.horizontalAdvance(text) / 2;
    painter.setPen(tick_pen);
    painter.drawLine(QPointF(at, plot.bottom()), QPointF(at, plot.bottom() + 4));
    if (at - width < free_from || at + width > layout_.area.right()) continue;
    free_from = at + width + 6;
    painter.setPen(theme_.text);
    painter.drawText(QRectF(at - width - 2, plot.bottom() + 5, 2 * width + 4, 2 * half),
                     Qt::AlignCenter, text);
  }
  const auto paint_side = [&](const PlotAxis& axis, bool right) {
    for (const auto& tick : axis.ticks) {
      const double at = axis.pixel(tick.at);
      const double edge = right ? plot.right() : plot.left();
      painter.setPen(tick_pen);
      painter.drawLine(QPointF(edge, at), QPointF(edge + (right ? 4 : -4), at));
      painter.setPen(theme_.text);
      const QRectF room = right ? QRectF(edge + 6, at - half, 300, 2 * half)
                                : QRectF(edge - 306, at - half, 300, 2 * half);
      painter.drawText(room, Qt::AlignVCenter | (right ? Qt::AlignLeft : Qt::AlignRight),
                       QString::fromStdString(tick.label));
    }
  };
  paint_side(layout_.y, false);
  if (layout_.has_right) paint_side(layout_.right, true);
  painter.setPen(theme_.text);
  painter.drawText(layout_.x_title, Qt::AlignCenter, axis_words(chart_.x));
  paint_upward(painter, layout_.y_title, axis_words(chart_.y));
  if (layout_.has_right) paint_upward(painter, layout_.right_title, axis_words(*chart_.right));
}

void ChartDrawing::paint_legend(QPainter& painter) const {
  using Kind = LegendEntry::Kind;
  Fills fills(painter);
  painter.setFont(sized_font(theme_.font, kTickFont));
  for (const auto& entry : layout_.legend) {
    const QRectF swatch(entry.area.left(), entry.area.center().y() - 5, 20, 10);
    switch (entry.kind) {
      case Kind::line: {
        const auto line = static_cast<std::size_t>(entry.number);
        const int look = line_look(chart_, line);
        const QPen pen = theme_.series_pen(look, entry.emphasis);
        painter.setPen(pen);
        painter.drawLine(QPointF(swatch.left(), swatch.center().y()),
                         QPointF(swatch.right(), swatch.center().y()));
        if (!shows_points(chart_.lines[line])) break;
        set_pen(painter, QPen(pen.color(), 1), pen.color());
        paint_shape(painter, swatch.center(), look, kLinePoint);
        break;
      }
      case Kind::band: {
        const QBrush brush = theme_.series_brush(
            band_look(chart_, static_cast<std::size_t>(entry.number)), Emphasis::faint);
        set_pen(painter, QPen(brush.color(), 1), brush);
        painter.drawRect(swatch);
        break;
      }
      case Kind::points: {
        const QColor colour = entry.emphasis == Emphasis::reference
                                  ? theme_.faint_text
                                  : theme_.series_colour(entry.number);
        set_pen(painter, QPen(colour, 1.3), point_fill(colour, entry.emphasis));
        paint_shape(painter, swatch.center(), entry.shape, 4.5);
        break;
      }
      case Kind::colour:
        set_pen(painter, Qt::NoPen, theme_.series_colour(entry.number));
        painter.drawRect(swatch.adjusted(4, 0, -4, 0));
        break;
      case Kind::bars:
        paint_bar(painter, fills, swatch, static_cast<std::size_t>(entry.number), entry.emphasis);
        break;
      case Kind::flag:
        set_pen(painter, QPen(theme_.background, 1), theme_.warning);
        paint_shape(painter, swatch.center(), kFlagShape, 5);
        break;
      case Kind::box:
        paint_box_body(painter, fills, swatch.adjusted(4, 0, -4, 0), entry.emphasis);
        painter.drawLine(QPointF(swatch.left(), swatch.center().y()),
                         QPointF(swatch.left() + 4, swatch.center().y()));
        painter.drawLine(QPointF(swatch.right() - 4, swatch.center().y()),
                         QPointF(swatch.right(), swatch.center().y()));
        break;
      case Kind::rest:
        break;
    }
    painter.setPen(theme_.text);
    painter.drawText(entry.area.adjusted(26, 0, 4, 0), Qt::AlignVCenter | Qt::AlignLeft,
                     entry.text);
  }
}

/// Few series have colours of their own, many have those of a colour map, in order.
QBrush ChartDrawing::bar_brush(std::size_t series, Emphasis emphasis) const {
  if (chart_.bars.size() > kMostColours) {
    const double at = static_cast<double>(series) / static_cast<double>(chart_.bars.size() - 1);
    return to_qcolor(colour_at(theme_.colours, at));
  }
  return theme_.series_brush(bars_look(chart_, series), emphasis);
}

void ChartDrawing::paint_bars(QPainter& painter) const {
  Fills fills(painter);
  for (std::size_t s = 0; s < chart_.bars.size(); ++s)
    for (std::size_t i = 0; i < chart_.bars[s].bars.size(); ++i) {
      const QRectF area = area_of({Part::Kind::bar, static_cast<int>(s), static_cast<int>(i)});
      if (!area.isEmpty()) paint_bar(painter, fills, area, s, chart_.bars[s].bars[i].emphasis);
    }
}

/// Strong ones are filled, and hatched.
void ChartDrawing::paint_bar(QPainter& painter, Fills& fills, const QRectF& area,
                             std::size_t series, Emphasis emphasis) const {
  const bool many = chart_.bars.size() > kMostColours;
  const QColor edge = many ? theme_.background
                           : faded(theme_.series_colour(bars_look(chart_, series)),
                                   emphasis == Emphasis::faint ? 0.4 : 0.8);
  if (emphasis == Emphasis::strong && !many) {
    painter.setPen(Qt::NoPen);
    fills.rect(area, bar_brush(series, Emphasis::normal));
  }
  painter.setPen(QPen(edge, many ? 0.5 : 1));
  fills.rect(area, bar_brush(series, emphasis));
}

/// Strong ones are filled and hatched.
void ChartDrawing::paint_box_body(QPainter& painter, Fills& fills, const QRectF& body,
                                  Emphasis emphasis) const {
  const bool strong = emphasis == Emphasis::strong;
  painter.setPen(Qt::NoPen);
  fills.rect(body, strong ? faded(theme_.accent, 0.3) : theme_.panel);
  painter.setPen(QPen(strong ? theme_.accent : theme_.faint_text, 1.2));
  fills.rect(body, strong ? QBrush(theme_.accent, Qt::BDiagPattern) : QBrush(Qt::NoBrush));
}

void ChartDrawing::paint_boxes(QPainter& painter) const {
  Fills fills(painter);
  const double width =
      std::clamp(0.42 * std::abs(layout_.x.pixel(1) - layout_.x.pixel(0)), 3.0, 26.0);
  for (const auto& box : chart_.boxes) {
    const double at = layout_.x.pixel(box.x);
    if (!std::isfinite(box.median) || !layout_.x.holds(box.x)) continue;
    const auto y = [&](double value) {
      return std::clamp(layout_.y.pixel(value), layout_.plot.top(), layout_.plot.bottom());
    };
    const bool strong = box.emphasis == Emphasis::strong;
    set_pen(painter, QPen(strong ? theme_.accent : theme_.faint_text, 1.2));
    painter.drawLine(QPointF(at, y(box.least)), QPointF(at, y(box.lower)));
    painter.drawLine(QPointF(at, y(box.upper)), QPointF(at, y(box.most)));
    for (const double end : {box.least, box.most})
      painter.drawLine(QPointF(at - width / 4, y(end)), QPointF(at + width / 4, y(end)));
    paint_box_body(
        painter, fills,
        QRectF(QPointF(at - width / 2, y(box.upper)), QPointF(at + width / 2, y(box.lower))),
        box.emphasis);
    painter.setPen(QPen(theme_.text, 1.8));
    painter.drawLine(QPointF(at - width / 2, y(box.median)),
                     QPointF(at + width / 2, y(box.median)));
    if (box.flagged) {
      set_pen(painter, QPen(theme_.background, 1), theme_.warning);
      paint_shape(painter, {at, layout_.plot.top() + 8}, kFlagShape, 5);
    }
  }
}

void ChartDrawing::paint_points(QPainter& painter) const {
  std::size_t count = 0;
  for (const auto& series : chart_.points) count += series.points.size();
  const double radius = count > 400 ? 2.2 : count > 120 ? 3 : 4.5;
  std::optional<Stamps> stamps;
  if (count > 400 && painter.paintEngine()->type() == QPaintEngine::Raster) stamps.emplace(painter);
  for (std::size_t s = 0; s < chart_.points.size(); ++s) {
    const auto& series = chart_.points[s];
    for (const auto& point : series.points) {
      const QPointF at = place_of(point, false);
      if (std::isnan(at.x())) continue;
      const bool faint = point.emphasis == Emphasis::faint;
      QColor colour = point.emphasis == Emphasis::reference
                          ? theme_.faint_text
                          : theme_.series_colour(point.colour >= 0 ? point_colour_look(point.colour)
                                                                   : points_look(chart_, s));
      if (faint) colour.setAlphaF(0.6F);
      if (std::isfinite(point.low) && std::isfinite(point.high)) {
        const auto y = [&](double value) {
          return std::clamp(layout_.y.pixel(value), layout_.plot.top(), layout_.plot.bottom());
        };
        painter.setPen(QPen(colour, 1));
        painter.drawLine(QPointF(at.x(), y(point.low)), QPointF(at.x(), y(point.high)));
        for (const double end : {point.low, point.high})
          painter.drawLine(QPointF(at.x() - 3, y(end)), QPointF(at.x() + 3, y(end)));
      }
      set_pen(painter, QPen(colour, count > 400 ? 0.8 : 1.3), point_fill(colour, point.emphasis));
      if (stamps)
        stamps->paint(at, series.shape, radius);
      else
        paint_shape(painter, at, series.shape, radius);
    }
  }
  for (std::size_t l = 0; l < chart_.lines.size(); ++l) {
    const auto& line = chart_.lines[l];
    if (!shows_points(line)) continue;
    for (const auto& point : line.points) {
      const QPointF at = place_of(point, line.right && layout_.has_right);
      if (std::isnan(at.x())) continue;
      const QColor colour = theme_.series_pen(line_look(chart_, l), line.emphasis).color();
      set_pen(painter, QPen(colour, 1), colour);
      paint_shape(painter, at, line_look(chart_, l), kLinePoint);
    }
  }
}

bool ChartDrawing::holds_points(const QRectF& area) const {
  const auto any = [&](const auto& series, bool right) {
    return std::any_of(series.points.begin(), series.points.end(), [&](const Point& point) {
      return area.contains(place_of(point, right && layout_.has_right));
    });
  };
  return std::any_of(chart_.points.begin(), chart_.points.end(),
                     [&](const Points& series) { return any(series, false); }) ||
         std::any_of(chart_.lines.begin(), chart_.lines.end(),
                     [&](const Line& line) { return any(line, line.right); });
}

void ChartDrawing::paint_marks(QPainter& painter) const {
  const QFont font = sized_font(theme_.font, kTickFont);
  const QFontMetricsF metrics(font);
  painter.setFont(font);
  std::vector<QRectF> taken;
  // What can be dragged, or is strong, has the first choice of a place for its label.
  const auto is_strong = [](const Mark& mark) {
    return mark.can_be_dragged() || mark.emphasis == Emphasis::strong;
  };
  auto by_rank = chart_.marks;
  std::stable_partition(by_rank.begin(), by_rank.end(), is_strong);
  struct Label {
    QRectF area;
    QString text;
    QColor colour;
  };
  std::vector<Label> labels;
  for (const Mark& mark : by_rank) {
    const double at = mark_pixel(mark);
    if (std::isnan(at)) continue;
    const bool on_legend = !layout_.has_plot;
    const bool vertical = mark.vertical && !on_legend;
    const QRectF plot = on_legend ? layout_.legend_bar.adjusted(-6, 0, 6, 0) : layout_.plot;
    QPen pen(theme_.faint_text, 1.2, Qt::DashLine);
    if (is_strong(mark)) pen = QPen(theme_.accent, 2);
    if (!mark.can_be_dragged() && mark.emphasis == Emphasis::faint)
      pen = QPen(theme_.faint_text, 1, Qt::DotLine);
    painter.setPen(pen);
    if (vertical)
      painter.drawLine(QPointF(at, plot.top()), QPointF(at, plot.bottom()));
    else
      painter.drawLine(QPointF(plot.left(), at), QPointF(plot.right(), at));
    QString text = QString::fromStdString(mark.label);
    if (mark.can_be_dragged()) text += " " + plain_number(mark.at, 4);
    const double width = metrics.horizontalAdvance(text) + 6, height = metrics.height();
    if (text.isEmpty()) continue;
    // Below the legend's bar, in as many lines as it takes not to cover the cells.
    QRectF below(plot.left() - 6, plot.bottom() + 12, layout_.area.right() - plot.left() + 4, 0);
    below.setHeight(metrics.boundingRect(below, Qt::TextWordWrap, text).height());
    // The first free place beside the line; if there is none without points, one with them.
    constexpr int kSteps = 12;
    for (int attempt = 0; attempt < 2 * kSteps; ++attempt) {
      QRectF area;
      const int step = attempt % kSteps, turn = step / 2;
      if (vertical) {
        const bool left = step % 2 == 1;
        area = {left ? at - width - 3 : at + 3, plot.top() + 2 + turn * (height + 5), width,
                height};
      } else if (on_legend) {
        area = below.translated(0, step * height);
      } else {
        area = {plot.right() - width - 4 - turn * 60, step % 2 == 0 ? at - height - 1 : at + 1,
                width, height};
      }
      const bool inside = on_legend || layout_.plot.adjusted(-2, -2, 2, 2).contains(area);
      const QRectF apart = area.adjusted(-4, -2, 4, 2);
      const bool free = std::none_of(taken.begin(), taken.end(),
                                     [&](const QRectF& other) { return other.intersects(apart); });
      if (!inside || !free || (attempt < kSteps && holds_points(apart))) continue;
      taken.push_back(area);
      labels.push_back({area, text, is_strong(mark) ? theme_.accent : theme_.faint_text});
      break;
    }
  }
  for (const auto& label : labels) {
    painter.fillRect(label.area, faded(theme_.background, 0.8));
    painter.setPen(label.colour);
    painter.drawText(label.area, Qt::AlignCenter | Qt::TextWordWrap, label.text);
  }
  for (const Mark& mark : chart_.marks) {
    const double at = mark_pixel(mark);
    if (!mark.can_be_dragged() || std::isnan(at)) continue;
    if (!layout_.has_plot)
      paint_grip(painter, {layout_.legend_bar.left() - 8, at}, false, theme_);
    else if (mark.vertical)
      paint_grip(painter, {at, layout_.plot.bottom() - kGripIn}, true, theme_);
    else
      paint_grip(painter, {layout_.plot.left() + kGripIn, at}, false, theme_);
  }
}

}  // namespace kvatlas::viewer
