// SPDX-License-Identifier: Apache-2.0
// What is painted many times alike: painted once, then copied.
#pragma once

#include <QBrush>
#include <QImage>
#include <QRgb>
#include <map>
#include <tuple>

class QPainter;
class QPointF;
class QRectF;

namespace kvatlas::viewer {

/// The shape of a point, about (0, 0): circle, square, triangle, diamond, cross, …
void paint_shape(QPainter& painter, const QPointF& at, int shape, double radius);

/// Many shapes of few looks: each look is painted once, then copied to whole pixels.
class Stamps {
 public:
  explicit Stamps(QPainter& painter);
  /// With the painter's pen and brush.
  void paint(const QPointF& at, int shape, double radius);

 private:
  QPainter& painter_;
  double scale_;
  std::map<std::tuple<int, QRgb, QRgb>, QImage> looks_;
};

/// Filled and hatched rectangles. Where pixels are painted, hatching is a picture of itself and
/// tall areas are filled slice by slice: Qt is slow with patterns, and hands the rows of tall areas
/// to threads, which takes longer than to fill them.
class Fills {
 public:
  explicit Fills(QPainter& painter);
  /// With the painter's pen, which may be none.
  void rect(const QRectF& area, const QBrush& brush);

 private:
  QBrush quick(const QBrush& brush);

  QPainter& painter_;
  double scale_ = 0;  // 0: vectors are painted
  std::map<QRgb, QBrush> hatches_;
};

}  // namespace kvatlas::viewer
