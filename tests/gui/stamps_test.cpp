// SPDX-License-Identifier: Apache-2.0
#include <QPainter>
#include <functional>

#include <gtest/gtest.h>

#include "viewer/draw/stamps_impl.hpp"

namespace kvatlas::viewer {
namespace {

const QBrush kHatched(QColor("#0969da"), Qt::BDiagPattern);
const QRectF kArea(5, 7, 30, 200);  // taller than a slice

QImage painted(double scale, const std::function<void(QPainter&)>& paint) {
  QImage image((QSizeF(50, 220) * scale).toSize(), QImage::Format_ARGB32_Premultiplied);
  image.fill(Qt::white);
  QPainter painter(&image);
  painter.scale(scale, scale);
  painter.setPen(Qt::NoPen);
  paint(painter);
  return image;
}

TEST(Fills, LookAsQtWouldFillThem) {
  for (const double scale : {1.0, 2.0})
    for (const auto& brush : {kHatched, QBrush(QColor(200, 30, 30, 90))})
      EXPECT_EQ(painted(scale, [&](QPainter& painter) { Fills(painter).rect(kArea, brush); }),
                painted(scale, [&](QPainter& painter) { painter.fillRect(kArea, brush); }))
          << scale << " " << brush.style();
}

TEST(Fills, HaveAnEdgeInThePainterPen) {
  const auto filled = painted(1, [&](QPainter& painter) {
    painter.setPen(QPen(Qt::red, 2));
    Fills(painter).rect(kArea, QColor(Qt::yellow));
  });
  EXPECT_EQ(filled.pixelColor(5, 100), QColor(Qt::red));
  EXPECT_EQ(filled.pixelColor(20, 100), QColor(Qt::yellow));
  EXPECT_EQ(filled.pixelColor(45, 100), QColor(Qt::white));
}

TEST(Stamps, LookLikeTheShapesThatTheyAreOf) {
  for (const double scale : {1.0, 2.0})
    for (int shape = 0; shape < 7; ++shape) {
      SCOPED_TRACE(shape);
      const auto with_pen = [](QPainter& painter) {
        painter.setRenderHint(QPainter::Antialiasing);
        painter.setPen(QPen(Qt::blue, 1.3));
        painter.setBrush(QColor(255, 255, 0));
      };
      const QPointF places[] = {{12, 20},
                                {30, 60}};  // whole pixels: the stamps lie as they were cut
      const auto stamped = painted(scale, [&](QPainter& painter) {
        with_pen(painter);
        Stamps stamps(painter);
        for (const auto& at : places) stamps.paint(at, shape, 4);
      });
      const auto drawn = painted(scale, [&](QPainter& painter) {
        with_pen(painter);
        for (const auto& at : places) paint_shape(painter, at, shape, 4);
      });
      EXPECT_EQ(stamped, drawn);
      EXPECT_NE(drawn, painted(scale, [](QPainter&) {}));
    }
}

}  // namespace
}  // namespace kvatlas::viewer
