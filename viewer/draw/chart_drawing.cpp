// SPDX-License-Identifier: Apache-2.0
#include <QPainter>
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "viewer/draw/chart_drawing_impl.hpp"
#include "viewer/maps/scale.hpp"

namespace kvatlas::viewer {

namespace {

constexpr double kReach = 12;  // pixels from which a point can be hit

QString number(double value) { return plain_number(value, 5); }

QString prefixed(const std::string& label) {
  return label.empty() ? QString() : QString::fromStdString(label) + ": ";
}

/// "task 3" or the label of a given tick there.
QString place_words(const Axis& axis, double at) {
  for (const auto& tick : axis.ticks)
    if (tick.at == at) return QString::fromStdString(tick.label);
  return axis.title.empty() ? number(at) : QString::fromStdString(axis.title) + " " + number(at);
}

QImage image_of(const Matrix& matrix, const Theme& theme) {
  const auto rows = static_cast<int>(matrix.row_labels.size());
  const auto columns = static_cast<int>(matrix.column_labels.size());
  if (rows < 1 || columns < 1) return {};
  const Scale scale = legend_scale(matrix);
  const bool difference = scale.range().low == -scale.range().high;
  QImage image(columns, rows, QImage::Format_Indexed8);
  const auto colour = [](const QColor& of) {
    return Colour{static_cast<std::uint8_t>(of.red()), static_cast<std::uint8_t>(of.green()),
                  static_cast<std::uint8_t>(of.blue())};
  };
  const auto palette = make_palette(difference ? ColourMap::blue_white_brown : theme.colours,
                                    colour(theme.missing), colour(theme.background));
  QList<QRgb> table;
  for (const auto& entry : palette) table.push_back(qRgb(entry.red, entry.green, entry.blue));
  image.setColorTable(table);
  for (int row = 0; row < rows; ++row) {
    auto* line = image.scanLine(row);
    for (int column = 0; column < columns; ++column)
      line[column] = scale.index(static_cast<float>(
          matrix.at(static_cast<std::size_t>(row), static_cast<std::size_t>(column))));
  }
  return image;
}

bool same_cells(const Matrix& a, const Matrix& b) {
  // NaN is equal to NaN here: the bits count.
  return a.range == b.range && a.row_labels.size() == b.row_labels.size() &&
         a.values.size() == b.values.size() &&
         std::equal(a.values.begin(), a.values.end(), b.values.begin(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

bool same_look(const Theme& a, const Theme& b) {
  return a.dark == b.dark && a.colours == b.colours && a.font == b.font &&
         a.background == b.background;
}

}  // namespace

void ChartDrawing::set(Chart chart, const Theme& theme, const QRectF& area) {
  const bool new_look = !same_look(theme, theme_);
  std::vector<QImage> images(chart.matrices.size());
  for (std::size_t i = 0; i < chart.matrices.size(); ++i) {
    // A matrix without its values would be read beyond its end.
    const auto& matrix = chart.matrices[i];
    if (matrix.values.size() != matrix.row_labels.size() * matrix.column_labels.size())
      fail(ErrorCode::internal, "a matrix of ", matrix.row_labels.size(), " x ",
           matrix.column_labels.size(), " with ", matrix.values.size(), " values");
    if (!matrix.column_texts.empty() && matrix.column_texts.size() != matrix.column_labels.size())
      fail(ErrorCode::internal, matrix.column_texts.size(), " texts of ",
           matrix.column_labels.size(), " columns");
    const bool kept = !new_look && i < images_.size() && i < chart_.matrices.size() &&
                      same_cells(chart.matrices[i], chart_.matrices[i]);
    images[i] = kept ? images_[i] : image_of(chart.matrices[i], theme);
  }
  images_ = std::move(images);
  chart_ = std::move(chart);
  theme_ = theme;
  place(area);
}

void ChartDrawing::place(const QRectF& area) {
  layout_ = layout_of(chart_, theme_, area, least_);
  if (layout_.has_plot) {
    if (!curves_) curves_ = std::make_unique<Curves>();
    curves_->set(chart_, layout_, theme_);
  }
}

void ChartDrawing::set_frame(const ChartFrame& least) {
  least_ = least;
  place(layout_.area);
}

QPointF ChartDrawing::place_of(const Point& point, bool right) const {
  const QPointF at(layout_.x.pixel(point.x), (right ? layout_.right : layout_.y).pixel(point.y));
  if (!std::isfinite(at.x()) || !std::isfinite(at.y()) ||
      !layout_.plot.adjusted(-1, -1, 1, 1).contains(at))
    return {kNoNumber, kNoNumber};
  return at;
}

QRectF ChartDrawing::area_of(const Part& part) const {
  const auto series = static_cast<std::size_t>(part.series);
  const auto index = static_cast<std::size_t>(part.index);
  const auto around = [](const QPointF& at) {
    return std::isnan(at.x()) ? QRectF() : QRectF(at.x() - 6, at.y() - 6, 12, 12);
  };
  switch (part.kind) {
    case Part::Kind::none:
      break;
    case Part::Kind::point:
      if (series < chart_.points.size() && index < chart_.points[series].points.size())
        return around(place_of(chart_.points[series].points[index], false));
      break;
    case Part::Kind::line_point:
      if (series < chart_.lines.size() && index < chart_.lines[series].points.size())
        return around(place_of(chart_.lines[series].points[index],
                               chart_.lines[series].right && layout_.has_right));
      break;
    case Part::Kind::bar:
      if (series < chart_.bars.size() && index < chart_.bars[series].bars.size()) {
        const auto [left, right] = bar_sides(chart_, series, index);
        const auto [bottom, top] = bar_ends(chart_, series, index);
        if (!std::isfinite(top)) break;
        return QRectF(QPointF(layout_.x.pixel(left), layout_.y.pixel(top)),
                      QPointF(layout_.x.pixel(right), layout_.y.pixel(bottom)))
            .normalized()
            .intersected(layout_.plot);
      }
      break;
    case Part::Kind::box:
      if (index < chart_.boxes.size()) {
        const auto& box = chart_.boxes[index];
        if (!std::isfinite(box.median)) break;
        return QRectF(QPointF(layout_.x.pixel(box.x - 0.3), layout_.y.pixel(box.most)),
                      QPointF(layout_.x.pixel(box.x + 0.3), layout_.y.pixel(box.least)))
            .normalized()
            .adjusted(0, -2, 0, 2);
      }
      break;
    case Part::Kind::cell:
      if (index < chart_.matrices.size() && index < layout_.places.size()) {
        const auto& matrix = chart_.matrices[index];
        if (part.row < 0 || static_cast<std::size_t>(part.row) >= matrix.row_labels.size() ||
            part.column < 0 || static_cast<std::size_t>(part.column) >= matrix.column_labels.size())
          break;
        const QRectF cells = layout_.places[index].cells;
        const double width = cells.width() / static_cast<double>(matrix.column_labels.size());
        const double height = cells.height() / static_cast<double>(matrix.row_labels.size());
        return {cells.left() + part.column * width, cells.top() + part.row * height, width, height};
      }
      break;
  }
  return {};
}

Part ChartDrawing::part_at(const QPointF& at) const {
  for (std::size_t m = 0; m < layout_.places.size(); ++m) {
    const QRectF cells = layout_.places[m].cells;
    const auto& matrix = chart_.matrices[m];
    if (!cells.contains(at) || images_[m].isNull()) continue;
    const auto rows = static_cast<int>(matrix.row_labels.size());
    const auto columns = static_cast<int>(matrix.column_labels.size());
    Part part{Part::Kind::cell, 0, static_cast<int>(m)};
    part.row =
        std::clamp(static_cast<int>((at.y() - cells.top()) / cells.height() * rows), 0, rows - 1);
    part.column = std::clamp(static_cast<int>((at.x() - cells.left()) / cells.width() * columns), 0,
                             columns - 1);
    return part;
  }
  if (!layout_.has_plot || !layout_.plot.adjusted(-4, -4, 4, 4).contains(at)) return {};
  Part best;
  double nearest = kReach;
  const auto offer = [&](Part::Kind kind, std::size_t series, std::size_t index,
                         const QPointF& place) {
    const double distance = std::hypot(place.x() - at.x(), place.y() - at.y());
    if (distance < nearest) {
      nearest = distance;
      best = {kind, static_cast<int>(series), static_cast<int>(index)};
    }
  };
  for (std::size_t s = 0; s < chart_.points.size(); ++s)
    for (std::size_t i = 0; i < chart_.points[s].points.size(); ++i)
      offer(Part::Kind::point, s, i, place_of(chart_.points[s].points[i], false));
  if (best.kind != Part::Kind::none) return best;
  for (std::size_t s = 0; s < chart_.lines.size(); ++s)
    for (std::size_t i = 0; i < chart_.lines[s].points.size(); ++i)
      offer(Part::Kind::line_point, s, i,
            place_of(chart_.lines[s].points[i], chart_.lines[s].right && layout_.has_right));
  if (best.kind != Part::Kind::none) return best;
  for (const auto kind : {Part::Kind::box, Part::Kind::bar}) {
    const auto last = kind == Part::Kind::box ? std::size_t{1} : chart_.bars.size();
    for (std::size_t s = last; s-- > 0;) {
      const auto count = kind == Part::Kind::box ? chart_.boxes.size() : chart_.bars[s].bars.size();
      for (std::size_t i = 0; i < count; ++i) {
        const Part part{kind, static_cast<int>(s), static_cast<int>(i)};
        if (area_of(part).contains(at)) return part;
      }
    }
  }
  return {};
}

QString ChartDrawing::whole_text_at(const QPointF& at) const {
  for (const auto& cut : layout_.cut_texts)
    if (cut.area.contains(at)) return cut.whole;
  const QFontMetricsF metrics(sized_font(theme_.font, kTickFont));
  for (std::size_t m = 0; m < layout_.places.size(); ++m) {
    const auto& place = layout_.places[m];
    const auto& labels = chart_.matrices[m].row_labels;
    const QRectF names(place.cells.left() - 5 - place.row_label_width, place.cells.top(),
                       place.row_label_width, place.cells.height());
    if (!place.row_labels || labels.empty() || !names.contains(at)) continue;
    const double part = (at.y() - names.top()) / names.height();
    const auto row = std::min(static_cast<std::size_t>(part * static_cast<double>(labels.size())),
                              labels.size() - 1);
    const QString label = QString::fromStdString(labels[row]);
    return metrics.horizontalAdvance(label) > place.row_label_width ? label : QString();
  }
  return {};
}

double ChartDrawing::mark_pixel(const Mark& mark) const {
  if (!layout_.has_plot) {  // on the legend of the matrices
    if (chart_.matrices.empty() || layout_.legend_bar.isEmpty()) return kNoNumber;
    const auto [low, high] = chart_.matrices.front().range;
    const double part = (mark.at - low) / (high - low);
    if (!(part >= 0 && part <= 1)) return kNoNumber;
    return layout_.legend_bar.bottom() - part * layout_.legend_bar.height();
  }
  const PlotAxis& axis = mark.vertical ? layout_.x : layout_.y;
  return axis.holds(mark.at) ? axis.pixel(mark.at) : kNoNumber;
}

double ChartDrawing::mark_value(const Mark& mark, const QPointF& at) const {
  if (!layout_.has_plot) {
    const auto [low, high] = chart_.matrices.front().range;
    const double part = (layout_.legend_bar.bottom() - at.y()) / layout_.legend_bar.height();
    return low + std::clamp(part, 0.0, 1.0) * (high - low);
  }
  const PlotAxis& axis = mark.vertical ? layout_.x : layout_.y;
  return std::clamp(axis.value(mark.vertical ? at.x() : at.y()), axis.low, axis.high);
}

const Mark* ChartDrawing::handle_at(const QPointF& at) const {
  const Mark* best = nullptr;
  double nearest = 8;
  const QRectF room = layout_.has_plot ? layout_.plot.adjusted(-16, -16, 16, 16)
                                       : layout_.legend_bar.adjusted(-16, -8, 80, 8);
  if (!room.contains(at)) return nullptr;
  for (const Mark& mark : chart_.marks) {
    if (!mark.can_be_dragged()) continue;
    const bool across = layout_.has_plot && mark.vertical;
    const double distance = std::abs(mark_pixel(mark) - (across ? at.x() : at.y()));
    if (distance <= nearest) {
      nearest = distance;
      best = &mark;
    }
  }
  return best;
}

QString ChartDrawing::cell_number(double value) {
  return std::isnan(value) ? QString("missing") : number(value);
}

QString ChartDrawing::words(const Part& part) const {
  const auto series = static_cast<std::size_t>(part.series);
  const auto index = static_cast<std::size_t>(part.index);
  const auto of_point = [&](const std::string& name, const Point& point, const Axis& y) {
    QString out = prefixed(name);
    if (!point.label.empty()) out += QString::fromStdString(point.label) + ", ";
    out += place_words(chart_.x, point.x) + ", " + place_words(y, point.y);
    if (std::isfinite(point.low) && std::isfinite(point.high))
      out += " (" + number(point.low) + " to " + number(point.high) + ")";
    return out;
  };
  switch (part.kind) {
    case Part::Kind::none:
      return {};
    case Part::Kind::point:
      return of_point(chart_.points[series].label, chart_.points[series].points[index], chart_.y);
    case Part::Kind::line_point: {
      const auto& line = chart_.lines[series];
      return of_point(line.label, line.points[index],
                      line.right && chart_.right ? *chart_.right : chart_.y);
    }
    case Part::Kind::bar: {
      const auto& bar = chart_.bars[series].bars[index];
      return prefixed(chart_.bars[series].label) + place_words(chart_.x, bar.x) + ", " +
             (bar.label.empty() ? number(bar.height) : QString::fromStdString(bar.label));
    }
    case Part::Kind::box: {
      const auto& box = chart_.boxes[index];
      return place_words(chart_.x, box.x) + ": median " + number(box.median) + ", quartiles " +
             number(box.lower) + " to " + number(box.upper) + ", " + number(box.least) + " to " +
             number(box.most) + (box.emphasis == Emphasis::strong ? ", marked" : "") +
             (box.flagged ? ", undecided" : "");
    }
    case Part::Kind::cell: {
      const auto& matrix = chart_.matrices[index];
      const auto row = static_cast<std::size_t>(part.row);
      const auto column = static_cast<std::size_t>(part.column);
      const double value = matrix.at(row, column);
      return prefixed(matrix.label) + QString::fromStdString(matrix.row_labels[row]) + " / " +
             QString::fromStdString(matrix.column_texts.empty() ? matrix.column_labels[column]
                                                                : matrix.column_texts[column]) +
             ", " + cell_number(value) +
             (matrix.unit.empty() ? QString() : " " + QString::fromStdString(matrix.unit));
    }
  }
  return {};
}

std::vector<Part> ChartDrawing::parts() const {
  std::vector<Part> out;
  std::vector<std::pair<double, Part>> series_parts;
  const auto add = [&](Part::Kind kind, std::size_t series, std::size_t count) {
    series_parts.clear();
    for (std::size_t i = 0; i < count; ++i) {
      const Part part{kind, static_cast<int>(series), static_cast<int>(i)};
      const QRectF area = area_of(part);
      if (!area.isEmpty()) series_parts.emplace_back(area.center().x(), part);
    }
    std::stable_sort(series_parts.begin(), series_parts.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [x, part] : series_parts) out.push_back(part);
  };
  for (std::size_t s = 0; s < chart_.points.size(); ++s)
    add(Part::Kind::point, s, chart_.points[s].points.size());
  for (std::size_t s = 0; s < chart_.lines.size(); ++s)
    add(Part::Kind::line_point, s, chart_.lines[s].points.size());
  add(Part::Kind::box, 0, chart_.boxes.size());
  for (std::size_t s = 0; s < chart_.bars.size(); ++s)
    add(Part::Kind::bar, s, chart_.bars[s].bars.size());
  return out;
}

}  // namespace kvatlas::viewer
