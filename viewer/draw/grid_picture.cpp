// SPDX-License-Identifier: Apache-2.0
#include "viewer/draw/grid_picture.hpp"

#include <QFontMetricsF>
#include <QPainter>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/str.hpp"

namespace kvatlas::viewer {

namespace {

constexpr double kThumbnail = 48, kThumbnailGap = 4, kLeft = 40, kGridTitle = 20, kTop = 36,
                 kBottom = 40, kGridRight = 16;
constexpr double kGridPoints = 10;  // the size of text that these lengths suit

Colour colour_of(const QColor& colour) {
  return {static_cast<std::uint8_t>(colour.red()), static_cast<std::uint8_t>(colour.green()),
          static_cast<std::uint8_t>(colour.blue())};
}

class GridPicture : public Picture {
 public:
  explicit GridPicture(GridScene scene) : scene_(std::move(scene)) {
    std::vector<Cells> cells;
    for (std::size_t i = 0; i < scene_.maps.size(); ++i) {
      if (!is_shown(i)) continue;
      const auto layer = static_cast<std::int64_t>(i) / scene_.heads;
      if (layers_.empty() || layers_.back() != layer) layers_.push_back(layer);
      if (scene_.maps[i]) cells.push_back(cells_of(*scene_.maps[i], {}));
    }
    if (const auto sample = sample_visible(cells, 16384); !sample.empty())
      range_ = scene_.difference ? symmetric_range(sample) : robust_range(sample, scene_.kind);
    else
      range_ = {1e-6, 1};
  }
  std::string title() const override { return scene_.title; }
  QSizeF size() const override {
    return {
        std::max(620.0, kLeft + double(scene_.heads) * (kThumbnail + kThumbnailGap) + kGridRight),
        kGridTitle + kTop + double(layers_.size()) * (kThumbnail + kThumbnailGap) + kBottom};
  }
  void paint(QPainter& painter, const QRectF& area, const Theme& theme) const override;
  std::string csv() const override;

 private:
  bool is_shown(std::size_t at) const { return scene_.shown.empty() || scene_.shown[at] != 0; }

  GridScene scene_;
  std::vector<std::int64_t> layers_;  // that have a head shown
  Range range_;
};

void GridPicture::paint(QPainter& painter, const QRectF& area, const Theme& wanted) const {
  Theme theme = wanted;
  if (scene_.difference) theme.colours = ColourMap::blue_white_brown;
  painter.save();
  painter.fillRect(area, theme.background);
  painter.translate(area.topLeft());
  // Text has the size of the font, and thumbnails take what it leaves.
  const double factor = theme.font.pointSizeF() > 0 ? theme.font.pointSizeF() / kGridPoints : 1;
  painter.scale(factor, factor);
  theme.font.setPointSizeF(kGridPoints);
  const QSizeF own = area.size() / factor;
  const double top = kTop + (theme.titles ? kGridTitle : 0), bottom = theme.legends ? kBottom : 4;
  const double across = (own.width() - kLeft - kGridRight) / double(scene_.heads) - kThumbnailGap;
  const double down =
      (own.height() - top - bottom) / std::max<double>(1, double(layers_.size())) - kThumbnailGap;
  const double side = std::max(2.0, std::floor(std::min(across, down)));
  QFont bold = theme.font;
  bold.setBold(true);
  painter.setFont(bold);
  painter.setPen(theme.text);
  if (theme.titles)
    painter.drawText(QRectF(8, 0, own.width() - 16, 22), Qt::AlignLeft | Qt::AlignVCenter,
                     QString::fromStdString(scene_.title));
  QFont small = theme.font;
  small.setPointSizeF(small.pointSizeF() * 0.8);
  painter.setFont(small);
  const Scale scale(scene_.kind, range_);
  const int pixels = std::clamp(static_cast<int>(side * painter.deviceTransform().m11()), 48, 192);
  // Names that have no room are left out.
  const QFontMetricsF metrics(painter.font());
  const auto every = [&](double room) {
    return static_cast<std::int64_t>(std::ceil(room / (side + kThumbnailGap)));
  };
  const std::int64_t heads_step =
      every(metrics.horizontalAdvance(QString("H%1 ").arg(scene_.heads)));
  const std::int64_t layers_step = every(metrics.height());
  const std::int64_t group = scene_.kv_heads > 0 ? scene_.heads / scene_.kv_heads : scene_.heads;
  for (std::int64_t head = 0; head < scene_.heads; ++head) {
    const double x = kLeft + double(head) * (side + kThumbnailGap);
    painter.setPen(theme.text);
    if (head % heads_step == 0)
      painter.drawText(QRectF(x - 20, top - 16, side + 40, 14), Qt::AlignCenter,
                       QString("H%1").arg(head));
    if (group > 0 && head % group == 0) {
      const double right = x + double(group) * (side + kThumbnailGap) - kThumbnailGap - 1;
      painter.setPen(theme.faint_text);
      painter.drawLine(QPointF(x, top - 18), QPointF(right, top - 18));
      const QString name = QString("KV %1").arg(head / group);
      if (metrics.horizontalAdvance(name) <= right - x)
        painter.drawText(QRectF(x, top - 33, right - x, 14), Qt::AlignCenter, name);
    }
  }
  double y = top - side - kThumbnailGap;
  for (const std::int64_t layer : layers_) {
    y += side + kThumbnailGap;
    painter.setPen(theme.text);
    if (layer % layers_step == 0)
      painter.drawText(QRectF(0, y - 8, kLeft - 6, side + 16), Qt::AlignRight | Qt::AlignVCenter,
                       QString("L%1").arg(layer));
    for (std::int64_t head = 0; head < scene_.heads; ++head) {
      const auto at = static_cast<std::size_t>(layer * scene_.heads + head);
      if (!is_shown(at)) continue;
      const QRectF box(kLeft + double(head) * (side + kThumbnailGap), y, side, side);
      const auto& map = scene_.maps[at];
      if (map)
        painter.drawImage(box, thumbnail_image(*map, scale, pixels, theme));
      else
        painter.fillRect(box, QBrush(theme.missing, Qt::BDiagPattern));
      painter.setPen(theme.grid);
      painter.drawRect(box);
    }
  }
  if (!theme.legends) return painter.restore();
  const QRectF bar(kLeft, own.height() - 30, std::min(220.0, own.width() - kLeft - 60), 9);
  for (int x = 0; x < static_cast<int>(bar.width()); ++x)
    painter.fillRect(QRectF(bar.left() + x, bar.top(), 1.2, bar.height()),
                     to_qcolor(colour_at(theme.colours, (x + 0.5) / bar.width())));
  painter.setPen(theme.text);
  double last = bar.left() - 30;  // where the label before ends: one that has no room is left out
  for (const Tick& tick : ticks(scale, 5)) {
    const QString label = QString::fromStdString(tick.label);
    const double x = bar.left() + tick.position * bar.width(),
                 half = painter.fontMetrics().horizontalAdvance(label) / 2.0;
    if (x - half < last + 6) continue;
    painter.drawText(QRectF(x - 30, bar.bottom() + 1, 60, 14), Qt::AlignCenter, label);
    last = x + half;
  }
  painter.drawText(QRectF(bar.right() + 12, bar.top() - 4, 400, 16),
                   Qt::AlignLeft | Qt::AlignVCenter,
                   scene_.reduction == Reduction::mean ? "attention, mean of blocks"
                                                       : "attention, greatest of blocks");
  painter.restore();
}

std::string GridPicture::csv() const {
  std::string out = str("# ", scene_.title, "\n# attention, ",
                        scene_.difference ? "difference of shares" : "share",
                        "; rows and columns are blocks\n", "layer,head,row,column,attention\n");
  for (std::size_t i = 0; i < scene_.maps.size(); ++i) {
    if (!scene_.maps[i] || !is_shown(i)) continue;
    const Cells cells = cells_of(*scene_.maps[i], {});
    for (std::int64_t row = 0; row < cells.rows; ++row)
      for (std::int64_t column = 0; column < cells.columns && !cells.is_masked(row, column);
           ++column) {
        std::array<char, 32> text{};  // empty where nothing was stored
        const auto value = static_cast<double>(cells.at(row, column));
        if (!std::isnan(value)) std::snprintf(text.data(), text.size(), "%.6g", value);
        out += str(static_cast<std::int64_t>(i) / scene_.heads, ",",
                   static_cast<std::int64_t>(i) % scene_.heads, ",", row, ",", column, ",",
                   text.data(), "\n");
      }
  }
  return out;
}

}  // namespace

QImage thumbnail_image(const Tile& tile, const Scale& scale, int pixels, const Theme& theme) {
  std::vector<std::uint8_t> indices(tile.values.size());
  quantise(cells_of(tile, {}), scale, {}, indices);
  QImage image(pixels, pixels, QImage::Format_Indexed8);
  QList<QRgb> table;
  for (const Colour& colour :
       make_palette(theme.colours, colour_of(theme.missing), colour_of(theme.background)))
    table.append(qRgb(colour.red, colour.green, colour.blue));
  image.setColorTable(table);
  const auto span = [&](int pixel, std::int64_t cells) {
    const std::int64_t first = pixel * cells / pixels;
    return std::pair(first, std::max(first + 1, (pixel + 1) * cells / pixels));
  };
  for (int y = 0; y < pixels; ++y) {
    const auto rows = span(y, tile.rows);
    std::uint8_t* line = image.scanLine(y);
    for (int x = 0; x < pixels; ++x) {
      const auto columns = span(x, tile.columns);
      std::uint8_t greatest = 0;  // an index more one: masked counts as lowest
      for (std::int64_t row = rows.first; row < rows.second; ++row)
        for (std::int64_t column = columns.first; column < columns.second; ++column)
          greatest = std::max(greatest,
                              static_cast<std::uint8_t>(indices[row * tile.columns + column] + 1));
      line[x] = static_cast<std::uint8_t>(greatest - 1);
    }
  }
  return image;
}

PicturePtr grid_picture(GridScene scene) { return std::make_shared<GridPicture>(std::move(scene)); }

}  // namespace kvatlas::viewer
