// SPDX-License-Identifier: Apache-2.0
// Quick painting of many shapes and areas that look alike.
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

/// Paints the shape of a point around `at`: a circle, square, triangle, diamond, cross and so on.
void paint_shape(QPainter& painter, const QPointF& at, int shape, double radius);

/// Paints shapes: each look is painted once as an image, which is then copied to whole pixels.
class Stamps {
 public:
  explicit Stamps(QPainter& painter);
  /// Paints a shape with the painter's pen and brush.
  void paint(const QPointF& at, int shape, double radius);

 private:
  QPainter& painter_;
  double scale_;
  std::map<std::tuple<int, QRgb, QRgb>, QImage> looks_;
};

/// Paints filled and hatched rectangles. Qt is slow with patterns and hands the rows of tall areas
/// to threads, which takes longer than to fill them. So on an image, hatching is painted from a
/// prepared picture, and tall areas are filled slice by slice.
class Fills {
 public:
  explicit Fills(QPainter& painter);
  /// Paints a rectangle with the painter's pen, which may be none.
  void rect(const QRectF& area, const QBrush& brush);

 private:
  QBrush quick(const QBrush& brush);

  QPainter& painter_;
  double scale_ = 0;  // 0: the painter paints vectors
  std::map<QRgb, QBrush> hatches_;
};

}  // namespace kvatlas::viewer
