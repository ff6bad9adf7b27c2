// SPDX-License-Identifier: Apache-2.0
#include "viewer/draw/picture.hpp"

#include <QPainter>
#include <algorithm>
#include <cmath>
#include <iterator>
#include <sstream>
#include <utility>

#include "base/error.hpp"
#include "base/str.hpp"
#include "viewer/draw/chart_drawing_impl.hpp"
#include "viewer/draw/picture_impl.hpp"

namespace kvatlas::viewer {

namespace {

constexpr double kMostPixels = 32767;
constexpr double kDotsPerMeter = 96 / 0.0254;  // at scale 1

class ChartPicture : public Picture {
 public:
  explicit ChartPicture(Chart chart) : chart_(std::move(chart)) {
    // Nothing can be dragged here: a handle is a line with its value.
    for (auto& mark : chart_.marks) {
      if (!mark.can_be_dragged()) continue;
      handles_.push_back(mark);
      mark.handle = Handle::none;
      mark.emphasis = Emphasis::strong;
      mark.label += " " + plain_number(mark.at, 4).toStdString();
    }
  }
  std::string title() const override { return chart_.title; }
  QSizeF size() const override {
    if (has_plot(chart_)) return {960, chart_.matrices.empty() ? 540.0 : 720.0};
    const auto count = static_cast<double>(chart_.matrices.size());
    if (count == 1) return {960, 720};
    const double across = std::ceil(std::sqrt(1.4 * count));
    return {960, std::round(130 + std::ceil(count / across) * (840 / across + 20))};
  }
  void paint(QPainter& painter, const QRectF& area, const Theme& theme) const override {
    ChartDrawing drawing;
    drawing.set(chart_, theme, area);
    drawing.paint(painter);
  }
  std::string csv() const override { return chart_csv(chart_); }
  std::vector<const Chart*> charts() const override { return {&chart_}; }
  Readout readout(const QRectF& area, const Theme& theme) const override {
    ChartDrawing drawing;
    drawing.set(chart_, theme, area);
    Readout out;
    for (const Part& part : drawing.parts())
      out.spots.push_back({drawing.area_of(part), drawing.words(part).toStdString()});
    const ChartLayout& layout = drawing.layout();
    for (std::size_t i = 0; i < layout.places.size(); ++i) {
      Readout::Grid grid{layout.places[i].cells, &chart_.matrices[i], {}};
      for (const double value : grid.matrix->values)
        grid.values.push_back(drawing.cell_number(value).toStdString());
      out.grids.push_back(std::move(grid));
    }
    if (layout.has_plot)
      for (const Mark& mark : handles_) out.lines.push_back({mark});
    return out;
  }

 private:
  Chart chart_;
  std::vector<Mark> handles_;  // the marks that the window lets a user drag
};

class StackedPicture : public Picture {
 public:
  StackedPicture(std::string title, std::vector<PicturePtr> parts, bool side_by_side)
      : title_(std::move(title)), parts_(std::move(parts)), side_by_side_(side_by_side) {}
  std::string title() const override { return title_; }
  QSizeF size() const override {
    QSizeF size(0, 0);
    for (const auto& part : parts_) {
      const QSizeF own = part->size();
      size = side_by_side_
                 ? QSizeF(size.width() + own.width(), std::max(size.height(), own.height()))
                 : QSizeF(std::max(size.width(), own.width()), size.height() + own.height());
    }
    return size;
  }
  void paint(QPainter& painter, const QRectF& area, const Theme& theme) const override {
    for_each_part(
        area, [&](const Picture& part, const QRectF& room) { part.paint(painter, room, theme); });
  }
  /// One table. Of maps, which have the same columns, the first says which of them a row is of.
  std::string csv() const override {
    if (const auto all = charts(); !all.empty()) return chart_csv(joined(title_, all));
    std::string notes, rows;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      std::istringstream lines(parts_[i]->csv());
      bool is_header = true;
      for (std::string line; std::getline(lines, line);) {
        if (line.starts_with('#'))
          notes += line + '\n';
        else if (!std::exchange(is_header, false))
          rows += str(i + 1, ',', line, '\n');
        else if (i == 0)
          rows += "map," + line + '\n';
      }
    }
    return notes + rows;
  }
  std::vector<const Chart*> charts() const override {
    std::vector<const Chart*> out;
    for (const auto& part : parts_)
      for (const Chart* chart : part->charts()) out.push_back(chart);
    return out;
  }
  Readout readout(const QRectF& area, const Theme& theme) const override {
    Readout out;
    const auto add = [](auto& to, auto&& from) {
      to.insert(to.end(), std::make_move_iterator(from.begin()),
                std::make_move_iterator(from.end()));
    };
    for_each_part(area, [&](const Picture& part, const QRectF& room) {
      Readout own = part.readout(room, theme);
      add(out.spots, own.spots);
      add(out.grids, own.grids);
      add(out.lines, own.lines);
    });
    return out;
  }

 private:
  /// Calls `use(part, room)` for each part, with its share of the area.
  template <class Use>
  void for_each_part(const QRectF& area, Use use) const {
    const QSizeF whole = size();
    QRectF room = area;
    for (const auto& part : parts_) {
      if (side_by_side_)
        room.setWidth(area.width() * part->size().width() / whole.width());
      else
        room.setHeight(area.height() * part->size().height() / whole.height());
      use(*part, room);
      side_by_side_ ? room.moveLeft(room.right()) : room.moveTop(room.bottom());
    }
  }

  std::string title_;
  std::vector<PicturePtr> parts_;
  bool side_by_side_;
};

}  // namespace

PicturePtr chart_picture(Chart chart) { return std::make_shared<ChartPicture>(std::move(chart)); }

PicturePtr stacked_picture(std::string title, std::vector<PicturePtr> parts, bool side_by_side) {
  return std::make_shared<StackedPicture>(std::move(title), std::move(parts), side_by_side);
}

QSizeF picture_size(const Picture& picture, const ImageOptions& options, double scale) {
  const QSizeF size = options.size.isEmpty() ? picture.size() : options.size;
  const double width = std::ceil(size.width() * scale), height = std::ceil(size.height() * scale);
  if (!(width >= 1 && height >= 1 && width <= kMostPixels && height <= kMostPixels))
    fail(ErrorCode::usage, "a picture of ", width, " x ", height, " pixels: expected 1 to ",
         kMostPixels, " each way");
  return size;
}

QImage to_image(const Picture& picture, const Theme& theme, const ImageOptions& options) {
  const QSizeF size = picture_size(picture, options, options.scale);
  QImage image((size * options.scale).expandedTo({1, 1}).toSize(),
               QImage::Format_ARGB32_Premultiplied);
  if (image.isNull())
    fail(ErrorCode::resource, "there is no memory for a picture of ", size.width() * options.scale,
         " x ", size.height() * options.scale, " pixels");
  image.fill(options.transparent ? QColor(Qt::transparent) : theme.background);
  QPainter painter(&image);
  painter.scale(options.scale, options.scale);
  picture.paint(painter, QRectF({0, 0}, size), theme);
  painter.end();
  const int dots = static_cast<int>(std::lround(kDotsPerMeter * options.scale));
  image.setDotsPerMeterX(dots);
  image.setDotsPerMeterY(dots);
  return image;
}

}  // namespace kvatlas::viewer
