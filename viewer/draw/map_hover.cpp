// SPDX-License-Identifier: Apache-2.0
#include <QFontMetricsF>
#include <QPainter>

#include "viewer/draw/map_parts.hpp"

namespace kvatlas::viewer {

void paint_hover(QPainter& painter, const QRectF& area, const Theme& theme, const MapScene& scene,
                 std::int64_t query, std::int64_t key, QString text) {
  const QRectF map = map_layout(area, scene).map;
  const double per_pixel = scene.viewport.tokens_per_pixel;
  const double x = map.left() + (double(key) + 0.5 - scene.viewport.first_key) / per_pixel;
  const double y = map.top() + (double(query) + 0.5 - scene.viewport.first_query) / per_pixel;
  painter.save();
  painter.setClipRect(map);
  // A light line beside a dark one is seen on every colour.
  painter.setPen(QPen(QColor(255, 255, 255, 130), 1));
  painter.drawLine(QPointF(map.left(), y), QPointF(x - 4, y));
  painter.drawLine(QPointF(x, y + 4), QPointF(x, map.bottom()));
  painter.setPen(QPen(QColor(0, 0, 0, 110), 1));
  painter.drawLine(QPointF(map.left(), y + 1), QPointF(x - 4, y + 1));
  painter.drawLine(QPointF(x + 1, y + 4), QPointF(x + 1, map.bottom()));
  painter.setClipping(false);
  text.replace(" · ", "\n");
  const QFontMetricsF metrics(painter.font());
  QRectF box =
      metrics.boundingRect(QRectF(0, 0, 400, 200), Qt::AlignLeft, text).adjusted(-8, -6, 8, 6);
  if (scene.bare) box.adjust(3, 3, -3, -3);
  box.moveTopLeft({x + 14, y - box.height() - 12});
  if (box.right() > area.right()) box.moveRight(x - 14);
  if (box.top() < area.top()) box.moveTop(y + 14);
  painter.setPen(theme.grid);
  painter.setBrush(theme.panel);
  painter.drawRoundedRect(box, 4, 4);
  painter.setPen(theme.text);
  painter.drawText(scene.bare ? box : box.adjusted(8, 6, -8, -6),
                   scene.bare ? Qt::AlignCenter : Qt::AlignLeft | Qt::AlignTop, text);
  painter.restore();
}

}  // namespace kvatlas::viewer
