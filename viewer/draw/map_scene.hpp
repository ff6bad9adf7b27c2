// SPDX-License-Identifier: Apache-2.0
// One head's map as it is painted, in a window or in a picture: cells, axes, edge strips, overlays
// and legend.
#pragma once

#include <QImage>
#include <QRectF>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "viewer/draw/picture.hpp"
#include "viewer/maps/quantised_map.hpp"
#include "viewer/maps/region.hpp"

namespace kvatlas::viewer {

using TokenList = std::shared_ptr<const std::vector<std::string>>;

/// Keys that a policy keeps: a row of marks under the axis.
struct KeptLane {
  std::string label;
  std::vector<std::pair<std::int64_t, std::int64_t>> kept;  // first to last - 1
};

struct MapScene {
  std::string title;
  std::vector<std::string> notes;  // under the legend
  std::int64_t n_tokens = 0, finest_block = 1;
  Reduction reduction = Reduction::mean;
  bool locked_range = false;
  bool bare = false;  // cells alone: no title, axes, strips or legend
  Viewport viewport;  // in units of a 96-dpi pixel; its size is that of the layout's map
  std::shared_ptr<const QuantisedMap> map;
  std::shared_ptr<const QuantisedMap> swiped;  // right of `swipe`, if there
  double swipe = 1;                            // 0 to 1 of the width
  double swiped_scale = 1;                     // its length, as a multiple of the other's
  TokenList tokens;                            // texts; may be null

  // Overlays.
  std::optional<std::pair<std::int64_t, std::int64_t>> window;      // initial and recent
  std::optional<std::pair<std::int64_t, std::int64_t>> partitions;  // LagKV's sink and lag
  std::vector<KeptLane> lanes;
  bool token_texts = true;
  std::optional<TokenRectangle> focus;  // the cell in focus
  std::vector<TokenRectangle> added;    // those whose sum is asked for
  std::optional<TokenRectangle> region;
  /// Of the other reduction, for the rectangle's statistics; may be empty.
  std::vector<PlacedTile> other;
  bool several = false;  // a mean of maps: its maxima are not stored
};

/// Of the scene's rectangle, which it has, as far as its tiles are there.
RegionStatistics region_statistics(const MapScene& scene, std::int64_t block_tokens);

struct MapLayout {
  QRectF title, map, top_strip, right_strip, left_axis, bottom_axis, lanes, legend, legend_bar,
      legend_histogram, legend_notes;
};
/// Where the parts lie; the legend and the axes have fixed sizes, the map takes the rest. Of a bare
/// scene the map is all.
MapLayout map_layout(const QRectF& area, const MapScene& scene);

/// The same part of a map `factor` times as long.
Viewport scaled(Viewport viewport, double factor);

/// Whether a token is wide enough for its text.
bool shows_token_texts(const MapScene& scene);
/// The text of a token as it is; empty where none is known.
std::string token_text(const TokenList& tokens, std::int64_t token);

void paint_map(QPainter& painter, const QRectF& area, const Theme& theme, const MapScene& scene);
/// The cells alone, `ratio` device pixels a unit; missing ones are hatched.
QImage map_image(const QuantisedMap& map, const Viewport& viewport, const Theme& theme,
                 double ratio);

/// The legend's own scale, which reaches beyond the range to all values in sight.
Scale legend_scale(const QuantisedMap& map);
/// Where a value lies on the legend, from its top; for handles.
double legend_place(const QRectF& bar, const Scale& legend, double value);
double legend_value(const QRectF& bar, const Scale& legend, double y);

/// The scene at a size; its CSV has the cells in sight.
PicturePtr map_picture(MapScene scene, QSizeF size);

}  // namespace kvatlas::viewer
