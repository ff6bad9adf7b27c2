// SPDX-License-Identifier: Apache-2.0
#include "viewer/draw/map_scene.hpp"

#include <QFontMetricsF>
#include <QPaintEngine>
#include <QPainter>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/str.hpp"
#include "viewer/draw/map_parts.hpp"

namespace kvatlas::viewer {

namespace {

constexpr double kTitleHeight = 22, kStrip = 26, kPartGap = 4, kLeftAxis = 104, kLegendWidth = 158;
// Where neither texts of tokens nor notes need the room.
constexpr double kLeftNumbers = 74, kLegendBarAlone = 84, kRightAlone = 20;
constexpr double kMapPoints = 10;  // the size of text that these lengths suit
constexpr double kBottomAxis = 36, kBottomTexts = 100, kLane = 15;
constexpr double kLeastTokenPixels = 12;

void paint_title(QPainter& painter, const MapLayout& layout, const Theme& theme,
                 const MapScene& scene) {
  painter.save();
  QFont bold = theme.font;
  bold.setBold(true);
  painter.setFont(bold);
  painter.setPen(theme.text);
  painter.drawText(layout.title, Qt::AlignLeft | Qt::AlignVCenter,
                   QFontMetricsF(bold).elidedText(QString::fromStdString(scene.title),
                                                  Qt::ElideRight, layout.title.width()));
  painter.restore();
}

class MapPicture : public Picture {
 public:
  MapPicture(MapScene scene, QSizeF size) : scene_(std::move(scene)), size_(size) {}
  std::string title() const override { return scene_.title; }
  QSizeF size() const override { return size_; }
  void paint(QPainter& painter, const QRectF& area, const Theme& theme) const override {
    MapScene scene = scene_;
    scene.titled = theme.titles;
    scene.noted = theme.notes;
    scene.has_legend = theme.legends;
    scene.still = true;
    // Larger text has a larger frame around it.
    const double zoom = theme.font.pointSizeF() > 0 ? theme.font.pointSizeF() / kMapPoints : 1;
    Theme own = theme;
    own.font.setPointSizeF(kMapPoints);
    const QRectF room({0, 0}, area.size() / zoom);
    painter.save();
    painter.translate(area.topLeft());
    painter.scale(zoom, zoom);
    const QRectF map = map_layout(room, scene).map;
    // As many tokens a side as before, in the pixels that there are.
    const double width = scene.viewport.width, height = scene.viewport.height;
    if (width > 0 && height > 0)
      scene.viewport.tokens_per_pixel *= std::max(width / map.width(), height / map.height());
    scene.viewport.width = static_cast<int>(map.width());
    scene.viewport.height = static_cast<int>(map.height());
    paint_map(painter, room, own, scene);
    painter.restore();
  }
  std::string csv() const override;

 private:
  MapScene scene_;
  QSizeF size_;
};

std::string MapPicture::csv() const {
  std::string out = str("# ", scene_.title, "\n# attention, share; ",
                        scene_.reduction == Reduction::mean ? "mean" : "greatest",
                        " of a block, zeros above the diagonal counted in means\n");
  for (const auto& note : scene_.notes) out += "# " + note + "\n";
  if (scene_.region) out += "# the cells of the rectangle\n";
  out += "first_query,first_key,block_tokens,attention\n";
  if (!scene_.map) return out;
  const TokenRectangle part = scene_.region.value_or(scene_.viewport.tokens());
  for (const PlacedTile& placed : scene_.map->tiles()) {
    if (!placed.tile || placed.key != placed.slot) continue;
    const Cells cells = cells_of(*placed.tile, placed.key);
    for (std::int64_t row = 0; row < cells.rows; ++row)
      for (std::int64_t column = 0; column < cells.columns; ++column) {
        const std::int64_t query = (cells.first_row + row) * placed.block;
        const std::int64_t key = (cells.first_column + column) * placed.block;
        if (cells.is_masked(row, column) || query + placed.block <= part.first_query ||
            query >= part.first_query + part.queries || key + placed.block <= part.first_key ||
            key >= part.first_key + part.keys)
          continue;
        const float value = cells.at(row, column);
        out += str(query, ",", key, ",", placed.block, ",");
        if (!std::isnan(value)) {
          std::array<char, 32> text{};
          std::snprintf(text.data(), text.size(), "%.6g", static_cast<double>(value));
          out += text.data();
        }
        out += "\n";
      }
  }
  return out;
}

}  // namespace

bool shows_token_texts(const MapScene& scene) {
  return scene.token_texts && !scene.bare &&
         scene.viewport.tokens_per_pixel <= 1 / kLeastTokenPixels;
}

std::string token_text(const TokenList& tokens, std::int64_t token) {
  if (!tokens || token < 0 || token >= static_cast<std::int64_t>(tokens->size())) return {};
  return (*tokens)[token];
}

std::int64_t block_in_sight(const MapScene& scene) {
  const bool known = scene.map && !scene.map->tiles().empty();
  return known ? scene.map->tiles().front().slot_block : scene.finest_block;
}

TokenRectangle region_tokens(const MapScene& scene) {
  return blocks_touched(*scene.region, block_in_sight(scene), scene.n_tokens);
}

MapUnder map_under(const MapScene& scene, std::int64_t query, std::int64_t key) {
  const Viewport& viewport = scene.viewport;
  const double line = viewport.first_key + scene.swipe * viewport.width * viewport.tokens_per_pixel;
  if (!scene.swiped || static_cast<double>(key) + 0.5 < line)
    return {scene.map.get(), query, key, scene.n_tokens, false};
  const auto there = [&](std::int64_t token) {
    return static_cast<std::int64_t>((static_cast<double>(token) + 0.5) * scene.swiped_scale);
  };
  const auto n_tokens = std::llround(double(scene.n_tokens) * scene.swiped_scale);
  return {scene.swiped.get(), there(query), there(key), n_tokens, true};
}

RegionStatistics region_statistics(const MapScene& scene) {
  const std::span<const PlacedTile> shown = scene.map->tiles();
  const bool means = scene.reduction == Reduction::mean;
  const auto maxima = means ? std::span<const PlacedTile>(scene.other) : shown;
  return region_statistics(means ? shown : scene.other,
                           scene.several ? std::span<const PlacedTile>() : maxima, *scene.region,
                           block_in_sight(scene), scene.n_tokens);
}

MapLayout map_layout(const QRectF& area, const MapScene& scene) {
  MapLayout layout;
  if (scene.bare) {
    layout.map = area.toAlignedRect().adjusted(1, 1, -1, -1);
    return layout;
  }
  const double lanes = scene.lanes.empty() ? 0 : kPartGap + kLane * double(scene.lanes.size());
  const double bottom = shows_token_texts(scene) ? kBottomTexts : kBottomAxis;
  const bool numbers = scene.still && !shows_token_texts(scene) && scene.lanes.empty();
  const double axis = numbers ? kLeftNumbers : kLeftAxis;
  const double title = scene.titled ? kTitleHeight : 0;
  const double legend = !scene.has_legend ? kRightAlone
                        : scene.noted     ? kLegendWidth
                                          : kLegendBarAlone;
  const double left = area.left() + axis;
  const double top = area.top() + title + kStrip + kPartGap;
  const double width = std::max(16.0, area.width() - axis - kStrip - kPartGap - legend);
  const double height = std::max(16.0, area.height() - title - kStrip - kPartGap - bottom - lanes);
  layout.title = {area.left() + 8, area.top(), area.width() - 16, title};
  layout.map = {left, top, std::floor(width), std::floor(height)};
  const QRectF& map = layout.map;
  layout.top_strip = {map.left(), map.top() - kPartGap - kStrip, map.width(), kStrip};
  layout.right_strip = {map.right() + kPartGap, map.top(), kStrip, map.height()};
  layout.left_axis = {area.left(), map.top(), axis, map.height()};
  layout.bottom_axis = {map.left(), map.bottom(), map.width(), bottom};
  layout.lanes = {map.left(), map.bottom() + bottom, map.width(), lanes};
  if (!scene.has_legend) return layout;
  layout.legend = {layout.right_strip.right() + 12, map.top() - kStrip, legend - 16,
                   map.height() + kStrip};
  const double notes = !scene.noted          ? 40
                       : scene.notes.empty() ? std::min(170.0, layout.legend.height() * 0.45)
                                             : std::min(230.0, layout.legend.height() * 0.66);
  const double bar = std::max(24.0, layout.legend.height() - 20 - notes);
  const double histogram = scene.noted ? 36 : 4;
  layout.legend_bar = {layout.legend.left() + histogram, layout.legend.top() + 20, 14, bar};
  layout.legend_histogram = {layout.legend.left(), layout.legend_bar.top(), histogram - 2, bar};
  layout.legend_notes = {layout.legend.left(), layout.legend_bar.bottom() + 14,
                         layout.legend.width(), notes - 14};
  return layout;
}

Viewport scaled(Viewport viewport, double factor) {
  viewport.first_query *= factor;
  viewport.first_key *= factor;
  viewport.tokens_per_pixel *= factor;
  return viewport;
}

QImage map_image(const QuantisedMap& map, const Viewport& viewport, const Theme& theme,
                 double ratio) {
  Viewport device = viewport;
  device.width = std::max(1, static_cast<int>(std::lround(viewport.width * ratio)));
  device.height = std::max(1, static_cast<int>(std::lround(viewport.height * ratio)));
  device.tokens_per_pixel = viewport.tokens_per_pixel / ratio;
  QImage image(device.width, device.height, QImage::Format_Indexed8);
  const auto stride = static_cast<std::size_t>(image.bytesPerLine());
  const std::span<std::uint8_t> indices(image.bits(),
                                        stride * static_cast<std::size_t>(device.height));
  map.draw(device, indices, stride);
  for (int y = 0; y < device.height; ++y)
    for (int x = 0; x < device.width; ++x) {
      auto& index = indices[static_cast<std::size_t>(y) * stride + static_cast<std::size_t>(x)];
      if (index == kMissingIndex && (x + y) % 8 >= 4) index = kMaskedIndex;
    }
  const auto to_colour = [](const QColor& colour) {
    return Colour{static_cast<std::uint8_t>(colour.red()),
                  static_cast<std::uint8_t>(colour.green()),
                  static_cast<std::uint8_t>(colour.blue())};
  };
  const ColourMap colours = map.settings().difference ? ColourMap::blue_white_brown : theme.colours;
  const Palette palette =
      make_palette(colours, to_colour(theme.missing), to_colour(theme.background));
  QList<QRgb> table;
  for (const Colour& colour : palette) table.append(qRgb(colour.red, colour.green, colour.blue));
  image.setColorTable(table);
  image.setDevicePixelRatio(ratio);
  return image;
}

void paint_map(QPainter& painter, const QRectF& area, const Theme& theme, const MapScene& scene) {
  painter.save();
  painter.fillRect(area, theme.background);
  painter.setFont(theme.font);
  const MapLayout layout = map_layout(area, scene);
  if (!scene.bare && scene.titled) paint_title(painter, layout, theme, scene);
  if (scene.map) {
    // What is drawn for paper, small or as a page, is printed with more pixels than 96 an inch.
    const auto engine = painter.paintEngine()->type();
    const double own = painter.deviceTransform().m11();
    const bool paper = engine == QPaintEngine::Pdf || (engine == QPaintEngine::SVG && own < 1);
    const double ratio = paper ? 4 : std::clamp(own, 0.5, 4.0);
    painter.drawImage(layout.map.topLeft(), map_image(*scene.map, scene.viewport, theme, ratio));
    if (scene.swiped && scene.swipe < 1) {
      painter.save();
      QRectF right = layout.map;
      right.setLeft(layout.map.left() + scene.swipe * layout.map.width());
      painter.setClipRect(right);
      painter.drawImage(
          layout.map.topLeft(),
          map_image(*scene.swiped, scaled(scene.viewport, scene.swiped_scale), theme, ratio));
      painter.setPen(QPen(theme.accent, 2));
      painter.drawLine(right.topLeft(), right.bottomLeft());
      painter.restore();
    }
    // Under a swipe the sums would be of one of the maps alone.
    const bool two_maps = scene.swiped && scene.swipe < 1;
    if (!scene.bare) {
      if (!two_maps) paint_edges(painter, layout, theme, scene);
      if (scene.has_legend) paint_legend(painter, layout, theme, scene);
    }
  }
  paint_overlays(painter, layout, theme, scene);
  if (!scene.bare) paint_axes(painter, layout, theme, scene);
  painter.setPen(theme.grid);
  painter.setBrush(Qt::NoBrush);
  painter.drawRect(layout.map);
  painter.restore();
}

PicturePtr map_picture(MapScene scene, QSizeF size) {
  return std::make_shared<MapPicture>(std::move(scene), size);
}

Scale legend_scale(const QuantisedMap& map) {
  const Scale& scale = map.scale();
  const auto& sample = map.sample();
  if (scale.kind() == ScaleKind::rank || sample.empty()) return scale;
  Range all = scale.range();
  all.high = std::max(all.high, static_cast<double>(sample.back()));
  if (scale.kind() == ScaleKind::log) {
    const auto positive = std::upper_bound(sample.begin(), sample.end(), 0.0F);
    if (positive != sample.end())
      all.low = std::min(all.low, std::max(static_cast<double>(*positive), all.high * 1e-9));
  } else {
    all.low = std::min(all.low, static_cast<double>(sample.front()));
  }
  return {scale.kind(), all, {}};
}

double legend_place(const QRectF& bar, const Scale& legend, double value) {
  return bar.bottom() - legend.position(value) * bar.height();
}

double legend_value(const QRectF& bar, const Scale& legend, double y) {
  return legend.value_at(std::clamp((bar.bottom() - y) / bar.height(), 0.0, 1.0));
}

}  // namespace kvatlas::viewer
