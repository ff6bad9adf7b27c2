// SPDX-License-Identifier: Apache-2.0
#include <QFontMetricsF>
#include <QPainter>
#include <algorithm>
#include <cmath>

#include "viewer/draw/chart_drawing_impl.hpp"
#include "viewer/maps/scale.hpp"

namespace kvatlas::viewer {

namespace {

/// So many labels fit that each `step`-th is shown.
std::size_t label_step(std::size_t count, double room, double each) {
  const auto fit = static_cast<std::size_t>(std::max(1.0, room / each));
  std::size_t step = 1;
  for (const std::size_t wanted : {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}) {
    step = wanted;
    if ((count + wanted - 1) / wanted <= fit) break;
  }
  return step;
}

/// Black or white, whichever is easier to read on the colour.
QColor readable_on(QRgb colour) {
  // By the definition of contrast: relative luminance.
  const auto part = [](int value) { return std::pow(value / 255.0, 2.2); };
  const double light =
      0.2126 * part(qRed(colour)) + 0.7152 * part(qGreen(colour)) + 0.0722 * part(qBlue(colour));
  return light > 0.18 ? QColor(Qt::black) : QColor(Qt::white);
}

QString cell_text(double value, int digits) {
  return value == std::floor(value) || std::abs(value) >= 100 ? QString::number(std::round(value))
                                                              : QString::number(value, 'g', digits);
}

/// The sides between cells above the contour and others.
QList<QLineF> contour_lines(const Matrix& matrix, const QRectF& cells) {
  QList<QLineF> lines;
  const std::size_t rows = matrix.row_labels.size(), columns = matrix.column_labels.size();
  const double width = cells.width() / static_cast<double>(columns);
  const double height = cells.height() / static_cast<double>(rows);
  const auto above = [&](std::size_t row, std::size_t column) {
    return matrix.at(row, column) > *matrix.contour;
  };
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t column = 0; column < columns; ++column) {
      const double x = cells.left() + static_cast<double>(column) * width;
      const double y = cells.top() + static_cast<double>(row) * height;
      if (column > 0 && above(row, column) != above(row, column - 1))
        lines.push_back({x, y, x, y + height});
      if (row > 0 && above(row, column) != above(row - 1, column))
        lines.push_back({x, y, x + width, y});
    }
  return lines;
}

}  // namespace

void ChartDrawing::paint_matrix(QPainter& painter, std::size_t number) const {
  const auto& matrix = chart_.matrices[number];
  const auto& place = layout_.places[number];
  const QImage& image = images_[number];
  const QFont font = sized_font(theme_.font, kTickFont);
  const QFontMetricsF metrics(font);
  painter.setFont(font);
  if (place.label.height() > 0) {
    painter.setPen(theme_.text);
    painter.drawText(place.label, Qt::AlignLeft | Qt::AlignVCenter,
                     metrics.elidedText(QString::fromStdString(matrix.label), Qt::ElideRight,
                                        place.label.width()));
  }
  if (image.isNull()) return;
  const QRectF cells = place.cells;
  const std::size_t rows = matrix.row_labels.size(), columns = matrix.column_labels.size();
  const double width = cells.width() / static_cast<double>(columns);
  const double height = cells.height() / static_cast<double>(rows);
  painter.setRenderHint(QPainter::SmoothPixmapTransform, false);
  painter.drawImage(cells, image);
  Fills fills(painter);
  painter.setPen(Qt::NoPen);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t column = 0; column < columns; ++column) {
      if (!std::isnan(matrix.at(row, column))) continue;
      std::size_t end = column;
      while (end + 1 < columns && std::isnan(matrix.at(row, end + 1))) ++end;
      fills.rect(QRectF(cells.left() + static_cast<double>(column) * width,
                        cells.top() + static_cast<double>(row) * height,
                        static_cast<double>(end - column + 1) * width, height),
                 QBrush(theme_.faint_text, Qt::BDiagPattern));
      column = end;
    }
  // Numbers where there is room for them, with as many digits as fit.
  if (width >= 34 && height >= metrics.height())
    for (std::size_t row = 0; row < rows; ++row)
      for (std::size_t column = 0; column < columns; ++column) {
        const double value = matrix.at(row, column);
        if (std::isnan(value)) continue;
        QString text = cell_text(value, 3);
        for (int digits = 2; digits > 0 && metrics.horizontalAdvance(text) > width - 6; --digits)
          text = cell_text(value, digits);
        painter.setPen(readable_on(image.pixel(static_cast<int>(column), static_cast<int>(row))));
        painter.drawText(QRectF(cells.left() + static_cast<double>(column) * width,
                                cells.top() + static_cast<double>(row) * height, width, height),
                         Qt::AlignCenter, text);
      }
  painter.setBrush(Qt::NoBrush);
  QList<QRectF> frames;
  for (const auto& outline : matrix.outlines) {
    const auto first = static_cast<double>(outline.first);
    const auto size = static_cast<double>(outline.last - outline.first + 1);
    frames.push_back(
        {cells.left() + first * width, cells.top() + first * height, size * width, size * height});
  }
  // Inside of the cell, so that a neighbour between two of them does not seem framed too.
  const double inset = std::min({3.0, width / 6, height / 6});
  for (const auto& [row, column] : matrix.marked)
    frames.push_back(QRectF(cells.left() + static_cast<double>(column) * width,
                            cells.top() + static_cast<double>(row) * height, width, height)
                         .adjusted(inset, inset, -inset, -inset));
  if (!frames.isEmpty()) {
    painter.setRenderHint(QPainter::Antialiasing, false);
    // Dark below light, to be seen on every colour.
    const double thick = width >= 6 ? 2 : 1;
    if (width >= 3) {
      painter.setPen(QPen(Qt::black, thick + 1));
      painter.drawRects(frames);
    }
    painter.setPen(QPen(Qt::white, thick));
    painter.drawRects(frames);
    painter.setRenderHint(QPainter::Antialiasing);
  }
  if (matrix.contour) {
    const auto lines = contour_lines(matrix, cells);
    painter.setRenderHint(QPainter::Antialiasing, false);
    painter.setPen(QPen(Qt::black, 3));
    painter.drawLines(lines);
    painter.setPen(QPen(Qt::white, 1));
    painter.drawLines(lines);
    painter.setRenderHint(QPainter::Antialiasing);
  }
  painter.setPen(QPen(theme_.grid, 1));
  painter.drawRect(cells);
  painter.setPen(theme_.text);
  if (place.row_labels) {
    const std::size_t step = label_step(rows, cells.height(), metrics.height());
    for (std::size_t row = 0; row < rows; row += step) {
      const double at = cells.top() + (static_cast<double>(row) + 0.5) * height;
      const double width_of_label = place.row_label_width;
      const QRectF room(cells.left() - 5 - width_of_label, at - metrics.height() / 2,
                        width_of_label, metrics.height());
      painter.drawText(room, Qt::AlignRight | Qt::AlignVCenter,
                       metrics.elidedText(QString::fromStdString(matrix.row_labels[row]),
                                          Qt::ElideMiddle, width_of_label));
    }
  }
  if (place.column_labels) {
    double widest = 0;
    for (const auto& label : matrix.column_labels)
      widest = std::max(widest, metrics.horizontalAdvance(QString::fromStdString(label)));
    // Few and long ones are cut short, many are thinned.
    const bool few = columns <= 12;
    const std::size_t step = few ? 1 : label_step(columns, cells.width(), widest + 8);
    for (std::size_t column = 0; column < columns; column += step) {
      const double at = cells.left() + (static_cast<double>(column) + 0.5) * width;
      const double room = few ? width - 2 : widest + 8;
      painter.drawText(QRectF(at - room / 2, cells.bottom() + 2, room, metrics.height()),
                       Qt::AlignCenter,
                       metrics.elidedText(QString::fromStdString(matrix.column_labels[column]),
                                          Qt::ElideMiddle, room));
    }
  }
}

void ChartDrawing::paint_legend_bar(QPainter& painter) const {
  const auto& matrix = chart_.matrices.front();
  const QRectF bar = layout_.legend_bar;
  if (bar.isEmpty()) return;
  const Scale scale = legend_scale(matrix);
  const auto [low, high] = scale.range();
  const ColourMap map = low == -high ? ColourMap::blue_white_brown : theme_.colours;
  QImage image(1, 256, QImage::Format_RGB32);
  for (int i = 0; i < 256; ++i) {
    const Colour colour = colour_at(map, 1 - i / 255.0);
    image.setPixel(0, i, qRgb(colour.red, colour.green, colour.blue));
  }
  painter.drawImage(bar, image);
  painter.setBrush(Qt::NoBrush);
  painter.setPen(QPen(theme_.faint_text, 1));
  painter.drawRect(bar);
  const QFont font = sized_font(theme_.font, kTickFont);
  const QFontMetricsF metrics(font);
  painter.setFont(font);
  const int most =
      std::clamp(static_cast<int>(bar.height() / (2 * metrics.height())), 2, kMostLegendTicks);
  for (const auto& tick : ticks(scale, most)) {
    const double at = bar.bottom() - tick.position * bar.height();
    painter.setPen(QPen(theme_.faint_text, 1));
    painter.drawLine(QPointF(bar.right(), at), QPointF(bar.right() + 4, at));
    painter.setPen(theme_.text);
    painter.drawText(QRectF(bar.right() + 7, at - metrics.height() / 2, 70, metrics.height()),
                     Qt::AlignLeft | Qt::AlignVCenter, tick_text(tick.value, tick.label));
  }
  painter.setPen(theme_.text);
  const QRectF unit(bar.left() - 12, layout_.matrices.top() - 2,
                    layout_.area.right() - bar.left() + 12, metrics.height());
  painter.drawText(
      unit, Qt::AlignLeft | Qt::AlignVCenter,
      metrics.elidedText(QString::fromStdString(matrix.unit), Qt::ElideRight, unit.width()));
}

void ChartDrawing::paint_matrices(QPainter& painter) const {
  for (std::size_t i = 0; i < chart_.matrices.size(); ++i) paint_matrix(painter, i);
  paint_legend_bar(painter);
  if (layout_.has_plot) return;
  painter.setFont(sized_font(theme_.font, kTickFont));
  painter.setPen(theme_.text);
  painter.drawText(layout_.x_title, Qt::AlignCenter, axis_words(chart_.x));
  painter.save();
  painter.translate(layout_.y_title.left(), layout_.y_title.bottom());
  painter.rotate(-90);
  painter.drawText(QRectF(0, 0, layout_.y_title.height(), layout_.y_title.width()), Qt::AlignCenter,
                   axis_words(chart_.y));
  painter.restore();
}

}  // namespace kvatlas::viewer
