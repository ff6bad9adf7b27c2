// SPDX-License-Identifier: Apache-2.0
#include "viewer/draw/map_parts.hpp"

#include <QFontMetricsF>
#include <QPainter>
#include <QPainterPath>
#include <algorithm>
#include <cmath>

#include "base/str.hpp"

namespace kvatlas::viewer {

namespace {

double x_of(const MapLayout& layout, const MapScene& scene, double key) {
  return layout.map.left() + (key - scene.viewport.first_key) / scene.viewport.tokens_per_pixel;
}
double y_of(const MapLayout& layout, const MapScene& scene, double query) {
  return layout.map.top() + (query - scene.viewport.first_query) / scene.viewport.tokens_per_pixel;
}

QFont small_font(const Theme& theme) {
  QFont font = theme.font;
  if (font.pointSizeF() > 0) font.setPointSizeF(font.pointSizeF() * 0.85);
  return font;
}

/// A round number of tokens that takes at least `pixels`.
std::int64_t tick_step(double tokens_per_pixel, double pixels) {
  const double least = std::max(1.0, tokens_per_pixel * pixels);
  const double decade = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * decade >= least) return static_cast<std::int64_t>(factor * decade);
  return static_cast<std::int64_t>(10 * decade);
}

QString shown_text(const MapScene& scene, std::int64_t token) {
  return QString::fromStdString(token_text(scene.tokens, token));
}

QRectF rectangle_of(const MapLayout& layout, const MapScene& scene, const TokenRectangle& part) {
  const QRectF whole(QPointF(x_of(layout, scene, double(part.first_key)),
                             y_of(layout, scene, double(part.first_query))),
                     QPointF(x_of(layout, scene, double(part.first_key + part.keys)),
                             y_of(layout, scene, double(part.first_query + part.queries))));
  return whole;
}

QString scale_name(const ScaleSettings& settings) {
  if (settings.difference) return "difference";
  const char* names[] = {"linear", "log", "square root", "rank"};
  return QString(names[static_cast<int>(settings.kind)]) +
         (settings.per_row ? ", each row by its greatest" : "");
}

void paint_token_axis(QPainter& painter, const MapLayout& layout, const Theme& theme,
                      const MapScene& scene, bool keys) {
  const double first = keys ? scene.viewport.first_key : scene.viewport.first_query;
  const double pixels = keys ? layout.map.width() : layout.map.height();
  const double last = std::min(first + pixels * scene.viewport.tokens_per_pixel,
                               static_cast<double>(scene.n_tokens));
  const double token_pixels = 1 / scene.viewport.tokens_per_pixel;
  const bool texts = shows_token_texts(scene);
  const std::int64_t step = texts ? 1 : tick_step(scene.viewport.tokens_per_pixel, keys ? 70 : 40);
  const auto begin =
      static_cast<std::int64_t>(std::ceil(std::max(0.0, first) / double(step))) * step;
  const QFontMetricsF metrics(painter.font());
  for (std::int64_t token = texts ? std::max<std::int64_t>(0, static_cast<std::int64_t>(first))
                                  : begin;
       static_cast<double>(token) < last; token += step) {
    const QString place = QString::number(token);
    if (keys) {
      const double x = x_of(layout, scene, double(token));
      if (texts) {
        const double middle = x + token_pixels / 2;
        if (middle < layout.map.left() || middle > layout.map.right()) continue;
        painter.save();
        painter.translate(middle, layout.map.bottom() + 4);
        painter.rotate(90);
        painter.setPen(theme.text);
        const double length = layout.bottom_axis.height() - 22;
        painter.drawText(
            QRectF(0, -8, length, 16), Qt::AlignLeft | Qt::AlignVCenter,
            metrics.elidedText(place + " " + shown_text(scene, token), Qt::ElideRight, length));
        painter.restore();
      } else if (x >= layout.map.left() - 0.5 && x <= layout.map.right()) {
        painter.setPen(theme.faint_text);
        painter.drawLine(QPointF(x, layout.map.bottom()), QPointF(x, layout.map.bottom() + 4));
        painter.setPen(theme.text);
        painter.drawText(QRectF(x - 40, layout.map.bottom() + 4, 80, 14), Qt::AlignCenter, place);
      }
      continue;
    }
    const double y = y_of(layout, scene, double(token));
    const QRectF room(layout.left_axis.left() + 20, 0, layout.left_axis.width() - 27, 16);
    if (texts) {
      const double middle = y + token_pixels / 2;
      if (middle < layout.map.top() || middle > layout.map.bottom()) continue;
      painter.setPen(theme.text);
      const QString text =
          metrics.elidedText(shown_text(scene, token), Qt::ElideRight,
                             room.width() - metrics.horizontalAdvance(place + " "));
      painter.drawText(room.translated(0, middle - 8), Qt::AlignRight | Qt::AlignVCenter,
                       text + " " + place);
    } else if (y >= layout.map.top() - 0.5 && y <= layout.map.bottom()) {
      painter.setPen(theme.faint_text);
      painter.drawLine(QPointF(layout.map.left() - 4, y), QPointF(layout.map.left(), y));
      painter.setPen(theme.text);
      painter.drawText(room.translated(0, y - 8), Qt::AlignRight | Qt::AlignVCenter, place);
    }
  }
}

}  // namespace

void paint_axes(QPainter& painter, const MapLayout& layout, const Theme& theme,
                const MapScene& scene) {
  painter.save();
  painter.setFont(small_font(theme));
  paint_token_axis(painter, layout, theme, scene, true);
  paint_token_axis(painter, layout, theme, scene, false);
  painter.setPen(theme.faint_text);
  painter.drawText(QRectF(layout.bottom_axis.left(), layout.bottom_axis.bottom() - 17,
                          layout.bottom_axis.width(), 15),
                   Qt::AlignCenter, "key token");
  painter.translate(layout.left_axis.left() + 10, layout.left_axis.center().y());
  painter.rotate(-90);
  painter.drawText(QRectF(-60, -8, 120, 16), Qt::AlignCenter, "query token");
  painter.restore();
}

void paint_edges(QPainter& painter, const MapLayout& layout, const Theme& theme,
                 const MapScene& scene) {
  const bool greatest = scene.reduction == Reduction::maximum;
  const auto edges = scene.map->edges(scene.viewport, scene.n_tokens, greatest);
  // Masked sinks are drawn, but do not make the others small.
  const std::int64_t masked = scene.map->settings().masked_keys;
  const auto most_of = [&](const std::vector<double>& values, std::int64_t first, bool keys) {
    double most = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!std::isnan(values[i]) &&
          !(keys && (first + static_cast<std::int64_t>(i)) * edges.block < masked))
        most = std::max(most, std::abs(values[i]));
    return most > 0 ? most : 1;
  };
  painter.save();
  QColor fill = theme.accent;
  fill.setAlphaF(0.55F);
  painter.setPen(Qt::NoPen);
  painter.setBrush(theme.panel);
  painter.drawRect(layout.top_strip);
  painter.drawRect(layout.right_strip);
  painter.setClipRect(layout.top_strip);
  painter.setBrush(fill);
  // Of the cells in one pixel the greatest shows. The root makes small sums visible beside a sink.
  const auto bars = [&](const std::vector<double>& values, std::int64_t first, bool keys) {
    const double most = most_of(values, first, keys);
    int pixel = -1;
    double height = 0;
    QPolygonF outline;
    const auto add = [&](double at, double end) {
      if (keys)
        painter.drawRect(QRectF(at, layout.top_strip.bottom() - height, end - at, height));
      else
        painter.drawRect(QRectF(layout.right_strip.left(), at, height, end - at));
    };
    double begin = 0, end = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double token =
          static_cast<double>((first + static_cast<std::int64_t>(i)) * edges.block);
      const double at = keys ? x_of(layout, scene, token) : y_of(layout, scene, token);
      const double next = keys ? x_of(layout, scene, token + double(edges.block))
                               : y_of(layout, scene, token + double(edges.block));
      const double size =
          std::isnan(values[i]) ? 0 : std::min(1.0, std::sqrt(std::abs(values[i]) / most)) * 24;
      if (static_cast<int>(at) != pixel) {
        if (pixel >= 0) add(begin, std::max(end, begin + 1));
        pixel = static_cast<int>(at);
        begin = at;
        height = 0;
      }
      height = std::max(height, size);
      end = next;
    }
    if (pixel >= 0) add(begin, std::max(end, begin + 1));
    return most;
  };
  const double most_column = bars(edges.columns, edges.first_column, true);
  painter.setClipRect(layout.right_strip);
  const double most_row = bars(edges.rows, edges.first_row, false);
  painter.setClipping(false);
  painter.setPen(theme.faint_text);
  painter.setFont(small_font(theme));
  const auto number = [](double value) { return QString::number(value, 'g', 3); };
  painter.drawText(
      QRectF(layout.left_axis.left(), layout.top_strip.top(), layout.left_axis.width() - 6,
             layout.top_strip.height()),
      Qt::AlignRight | Qt::AlignVCenter,
      (greatest ? QString("greatest\nto ") : QString("column sum\nto ")) + number(most_column));
  painter.drawText(
      // Right of the last tick's label.
      QRectF(layout.right_strip.left() + 14, layout.right_strip.bottom() + 4, 90, 28),
      Qt::AlignLeft | Qt::AlignTop,
      (greatest ? QString("greatest\nto ") : QString("row sum\nto ")) + number(most_row));
  painter.restore();
}

void paint_overlays(QPainter& painter, const MapLayout& layout, const Theme& theme,
                    const MapScene& scene) {
  painter.save();
  painter.setClipRect(layout.map);
  const auto n = static_cast<double>(scene.n_tokens);
  // Lines lie on light and dark cells alike: a dark line with a light one on it.
  const auto line = [&](QPointF a, QPointF b, Qt::PenStyle style) {
    painter.setPen(QPen(QColor(0, 0, 0, 120), 2.2));
    painter.drawLine(a, b);
    painter.setPen(QPen(QColor(255, 255, 255, 220), 1, style));
    painter.drawLine(a, b);
  };
  const auto at = [&](double query, double key) {
    return QPointF(x_of(layout, scene, key), y_of(layout, scene, query));
  };
  if (scene.window) {
    const auto initial = static_cast<double>(scene.window->first);
    const auto recent = static_cast<double>(scene.window->second);
    if (recent < n) line(at(recent, 0), at(n, n - recent), Qt::DashLine);
    line(at(initial, initial), at(n, initial), Qt::DashLine);
  }
  if (scene.partitions && scene.partitions->second > 0) {
    const auto [sink, lag] = *scene.partitions;
    if (static_cast<double>(lag) / scene.viewport.tokens_per_pixel >= 4)
      for (std::int64_t edge = sink; edge < scene.n_tokens; edge += lag)
        line(at(double(edge), double(edge)), at(n, double(edge)), Qt::DotLine);
  }
  if (scene.region) {
    const QRectF part = rectangle_of(layout, scene, region_tokens(scene));
    painter.setBrush(Qt::NoBrush);
    painter.setPen(QPen(QColor(0, 0, 0, 200), 3));
    painter.drawRect(part);
    painter.setPen(QPen(Qt::white, 1.4, Qt::DashLine));
    painter.drawRect(part);
  }
  const auto ring = [&](const TokenRectangle& cell, const QColor& colour, double width) {
    QRectF box = rectangle_of(layout, scene, cell);
    const double grow = std::max(0.0, (7 - box.width()) / 2);
    box.adjust(-grow - 1, -grow - 1, grow + 1, grow + 1);
    painter.setBrush(Qt::NoBrush);
    painter.setPen(QPen(Qt::black, width + 2));
    painter.drawRect(box);
    painter.setPen(QPen(colour, width));
    painter.drawRect(box);
  };
  for (const auto& cell : scene.added) ring(cell, Qt::yellow, 1.2);
  if (scene.focus) ring(*scene.focus, Qt::white, 2);
  painter.restore();
  if (scene.lanes.empty()) return;

  painter.save();
  painter.setFont(small_font(theme));
  const double height = (layout.lanes.height() - 4) / double(scene.lanes.size());
  for (std::size_t i = 0; i < scene.lanes.size(); ++i) {
    const QRectF lane(layout.lanes.left(), layout.lanes.top() + 4 + double(i) * height,
                      layout.lanes.width(), height - 3);
    painter.fillRect(lane, theme.panel);
    painter.setPen(theme.text);
    const QRectF label(layout.left_axis.left(), lane.top() - 2, layout.left_axis.width() - 6,
                       height);
    painter.drawText(label, Qt::AlignRight | Qt::AlignVCenter,
                     QFontMetricsF(painter.font())
                         .elidedText(QString::fromStdString(scene.lanes[i].label), Qt::ElideRight,
                                     label.width()));
    painter.setClipRect(lane);
    for (const auto& [first, last] : scene.lanes[i].kept) {
      const double begin = x_of(layout, scene, double(first));
      const double end = std::max(begin + 1, x_of(layout, scene, double(last)));
      if (end < lane.left() || begin > lane.right()) continue;
      painter.fillRect(QRectF(begin, lane.top(), end - begin, lane.height()),
                       theme.series_colour(static_cast<int>(i) + 1));
    }
    painter.setClipping(false);
  }
  painter.restore();
}

void paint_legend(QPainter& painter, const MapLayout& layout, const Theme& theme,
                  const MapScene& scene) {
  const QuantisedMap& map = *scene.map;
  painter.save();
  painter.setFont(small_font(theme));
  painter.setPen(theme.text);
  painter.drawText(QRectF(layout.legend.left(), layout.legend.top(), layout.legend.width(), 16),
                   Qt::AlignLeft | Qt::AlignVCenter, "attention, share");
  const QRectF& bar = layout.legend_bar;
  const Scale legend = legend_scale(map);
  const ColourMap colours = map.settings().difference ? ColourMap::blue_white_brown : theme.colours;
  const int rows = static_cast<int>(bar.height());
  QImage strip(1, std::max(rows, 1), QImage::Format_RGB32);
  for (int row = 0; row < strip.height(); ++row) {
    const double value = legend_value(bar, legend, bar.top() + row + 0.5);
    strip.setPixelColor(0, row, to_qcolor(colour_at(colours, map.scale().position(value))));
  }
  painter.drawImage(bar, strip);
  painter.setPen(theme.grid);
  painter.drawRect(bar);

  // How many of the values in sight lie there, to the left.
  const QRectF& area = layout.legend_histogram;
  if (scene.noted && legend.kind() != ScaleKind::rank && !map.sample().empty()) {
    std::vector<double> bins(40, 0);
    for (const float value : map.sample()) {
      if (legend.kind() == ScaleKind::log && value <= 0) continue;
      const double place = legend.position(static_cast<double>(value)) * 39.999;
      bins[static_cast<std::size_t>(place)] += 1;
    }
    const double most = std::max(1.0, *std::max_element(bins.begin(), bins.end()));
    painter.setPen(Qt::NoPen);
    painter.setBrush(theme.missing);
    const double step = area.height() / double(bins.size());
    for (std::size_t i = 0; i < bins.size(); ++i) {
      const double width = std::sqrt(bins[i] / most) * area.width();
      painter.drawRect(
          QRectF(area.right() - width, area.bottom() - double(i + 1) * step, width, step * 0.9));
    }
    for (const double bound : {map.scale().range().low, map.scale().range().high}) {
      const double y = legend_place(bar, legend, bound);
      painter.setPen(QPen(theme.accent, 2));
      painter.drawLine(QPointF(area.left(), y), QPointF(bar.right() + 3, y));
      if (scene.still) continue;
      painter.setBrush(theme.accent);
      painter.drawEllipse(QPointF(area.left() + 3, y), 4, 4);
    }
  }
  painter.setPen(theme.text);
  for (const Tick& tick : ticks(legend, std::clamp(rows / 26, 2, 9))) {
    const double y = bar.bottom() - tick.position * bar.height();
    painter.drawLine(QPointF(bar.right(), y), QPointF(bar.right() + 4, y));
    painter.drawText(QRectF(bar.right() + 7, y - 8, 70, 16), Qt::AlignLeft | Qt::AlignVCenter,
                     QString::fromStdString(tick.label));
  }

  if (!scene.noted) return painter.restore();
  const QuantiseCounts counts = map.counts();
  QStringList notes = {scale_name(map.settings())};
  notes << (scene.locked_range          ? "range locked"
            : map.settings().range      ? "range set by hand"
            : map.settings().difference ? "range symmetric about 0"
                                        : "range: 1 to 99 % of what is in sight");
  if (counts.under_floor > 0 && !map.settings().difference)
    notes << QString("%L1 of %L2 cells under the floor").arg(counts.under_floor).arg(counts.shown);
  if (counts.missing > 0) notes << QString("%L1 cells missing (hatched)").arg(counts.missing);
  if (map.settings().masked_keys > 0)
    notes << QString("first %1 keys not in the range").arg(map.settings().masked_keys);
  notes << QString("%1 of blocks; finest stored: %2")
               .arg(scene.reduction == Reduction::mean ? "mean" : "greatest")
               .arg(scene.finest_block == 1 ? QString("single tokens")
                                            : QString("%1 x %1 tokens").arg(scene.finest_block));
  for (const auto& lane : scene.lanes)
    if (lane.label.size() > 16)
      notes
          << QString("marked below: %1").arg(QString::fromStdString(lane.label).replace(',', ", "));
  for (const auto& note : scene.notes) notes << QString::fromStdString(note);
  painter.setPen(theme.faint_text);
  painter.drawText(layout.legend_notes, Qt::AlignLeft | Qt::AlignTop | Qt::TextWordWrap,
                   notes.join('\n'));
  painter.restore();
}

}  // namespace kvatlas::viewer
