// SPDX-License-Identifier: Apache-2.0
#include <QPaintEngine>
#include <QPainter>
#include <QPolygonF>
#include <algorithm>
#include <cmath>

#include "viewer/draw/stamps_impl.hpp"

namespace kvatlas::viewer {

void paint_shape(QPainter& painter, const QPointF& at, int shape, double radius) {
  const double r = radius;
  const auto polygon = [&](std::initializer_list<QPointF> corners) {
    QPolygonF out;
    for (const auto& corner : corners) out << at + r * corner;
    painter.drawPolygon(out);
  };
  const auto line = [&](double x1, double y1, double x2, double y2) {
    painter.drawLine(at + r * QPointF(x1, y1), at + r * QPointF(x2, y2));
  };
  switch (shape % 7) {
    case 0:
      painter.drawEllipse(at, r, r);
      break;
    case 1:
      polygon({{-0.9, -0.9}, {0.9, -0.9}, {0.9, 0.9}, {-0.9, 0.9}});
      break;
    case 2:
      polygon({{0, -1.2}, {1.1, 0.8}, {-1.1, 0.8}});
      break;
    case 3:
      polygon({{0, -1.3}, {1.3, 0}, {0, 1.3}, {-1.3, 0}});
      break;
    case 4:
      polygon({{0, 1.2}, {1.1, -0.8}, {-1.1, -0.8}});
      break;
    case 5:
      line(-1, -1, 1, 1);
      line(-1, 1, 1, -1);
      break;
    default:
      line(-1.2, 0, 1.2, 0);
      line(0, -1.2, 0, 1.2);
  }
}

Stamps::Stamps(QPainter& painter) : painter_(painter), scale_(painter.deviceTransform().m11()) {}

void Stamps::paint(const QPointF& at, int shape, double radius) {
  const double half = std::ceil(radius) + 2;
  const QBrush brush = painter_.brush();
  const auto key = std::make_tuple(shape, painter_.pen().color().rgba(),
                                   brush.style() == Qt::NoBrush ? QRgb{0} : brush.color().rgba());
  auto& image = looks_[key];
  if (image.isNull()) {
    const int side = static_cast<int>(std::ceil(2 * half * scale_));
    image = QImage(side, side, QImage::Format_ARGB32_Premultiplied);
    image.setDevicePixelRatio(scale_);
    image.fill(Qt::transparent);
    QPainter inside(&image);
    inside.setRenderHint(QPainter::Antialiasing);
    inside.setPen(painter_.pen());
    inside.setBrush(brush);
    paint_shape(inside, {half, half}, shape, radius);
  }
  painter_.drawImage(at - QPointF(half, half), image);
}

Fills::Fills(QPainter& painter) : painter_(painter) {
  if (painter.paintEngine()->type() == QPaintEngine::Raster)
    scale_ = painter.deviceTransform().m11();
}

QBrush Fills::quick(const QBrush& brush) {
  if (brush.style() != Qt::BDiagPattern) return brush;
  QBrush& made = hatches_[brush.color().rgba()];
  if (made.style() == Qt::NoBrush) {
    constexpr int kPeriod = 8;  // of Qt's pattern
    const int side = std::max(1, static_cast<int>(std::lround(kPeriod * scale_)));
    const double scale = static_cast<double>(side) / kPeriod;
    QImage tile(side, side, QImage::Format_ARGB32_Premultiplied);
    tile.fill(Qt::transparent);
    QPainter inside(&tile);
    inside.scale(scale, scale);
    inside.fillRect(QRect(0, 0, kPeriod, kPeriod), brush);
    inside.end();
    made = QBrush(tile);
    made.setTransform(QTransform::fromScale(1 / scale, 1 / scale));
  }
  return made;
}

void Fills::rect(const QRectF& area, const QBrush& brush) {
  if (scale_ <= 0) {
    painter_.setBrush(brush);
    painter_.drawRect(area);
    return;
  }
  constexpr int kRows = 64;
  const QBrush made = quick(brush);
  const auto whole = [this](double at) { return static_cast<int>(std::lround(at * scale_)); };
  const int left = whole(area.left()), right = std::max(whole(area.right()), left + 1);
  const int bottom = whole(area.bottom());
  painter_.setRenderHint(QPainter::Antialiasing, false);
  for (int row = whole(area.top()); row < bottom; row += kRows)
    painter_.fillRect(QRectF(left / scale_, row / scale_, (right - left) / scale_,
                             std::min(kRows, bottom - row) / scale_),
                      made);
  painter_.setRenderHint(QPainter::Antialiasing);
  if (painter_.pen().style() == Qt::NoPen) return;
  painter_.setBrush(Qt::NoBrush);
  painter_.drawRect(area);
}

}  // namespace kvatlas::viewer
