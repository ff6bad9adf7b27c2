// SPDX-License-Identifier: Apache-2.0
// The attention map of one head as it is painted, in a window or in a picture: its cells, axes, the
// strips along its edges, overlays and legend.
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

/// The keys that a policy keeps, shown as a row of marks under the axis.
struct KeptLane {
  std::string label;
  std::vector<std::pair<std::int64_t, std::int64_t>> kept;  // ranges: first, and one past the last
};

struct MapScene {
  std::string title;
  std::vector<std::string> notes;  // shown under the legend
  std::int64_t n_tokens = 0, finest_block = 1;
  Reduction reduction = Reduction::mean;
  bool locked_range = false;
  bool bare = false;  // the cells alone are painted, without title, axes, strips and legend
  bool titled = true, noted = true, has_legend = true;  // what stands around the cells
  bool still = false;  // nothing can be dragged: the ends of the range have no handles
  Viewport viewport;   // in pixels of 96 dpi; as large as MapLayout::map
  std::shared_ptr<const QuantisedMap> map;
  std::shared_ptr<const QuantisedMap> swiped;  // shown right of `swipe`; may be null
  double swipe = 1;                            // where it begins, as a share of the width
  double swiped_scale = 1;                     // its tokens for each token of `map`
  TokenList tokens;                            // texts of the tokens; may be null

  // Overlays.
  std::optional<std::pair<std::int64_t, std::int64_t>> window;      // initial and recent
  std::optional<std::pair<std::int64_t, std::int64_t>> partitions;  // LagKV's sink and lag
  std::vector<KeptLane> lanes;
  bool token_texts = true;
  std::optional<TokenRectangle> focus;  // the cell in focus
  std::vector<TokenRectangle> added;    // cells whose sum is asked for
  std::optional<TokenRectangle> region;
  /// Tiles of the other reduction (mean or maximum), for the statistics of `region`; may be empty.
  std::vector<PlacedTile> other;
  bool several = false;  // the map is a mean of maps, of which no maxima are stored
};

/// How many tokens a block of the level in sight is wide.
std::int64_t block_in_sight(const MapScene& scene);
/// The tokens that the statistics of scene.region, which must be set, are of: all blocks in sight
/// that it touches.
TokenRectangle region_tokens(const MapScene& scene);
/// Statistics of scene.region, which must be set, from those tiles that have been read.
RegionStatistics region_statistics(const MapScene& scene);

/// The map under a key, which is the swiped one right of the line, and the place of a pair there.
struct MapUnder {
  const QuantisedMap* map = nullptr;
  std::int64_t query = 0, key = 0, n_tokens = 0;
  bool swiped = false;
};
MapUnder map_under(const MapScene& scene, std::int64_t query, std::int64_t key);

struct MapLayout {
  QRectF title, map, top_strip, right_strip, left_axis, bottom_axis, lanes, legend, legend_bar,
      legend_histogram, legend_notes;
};
/// Where the parts lie in `area`. The legend and the axes have fixed sizes, and the map takes the
/// rest; a bare scene is filled by its map.
MapLayout map_layout(const QRectF& area, const MapScene& scene);

/// The viewport that shows the same part of a map of `factor` times as many tokens.
Viewport scaled(Viewport viewport, double factor);

/// Whether tokens are wide enough for their texts to be shown.
bool shows_token_texts(const MapScene& scene);
/// The text of a token; empty if it is not known.
std::string token_text(const TokenList& tokens, std::int64_t token);

void paint_map(QPainter& painter, const QRectF& area, const Theme& theme, const MapScene& scene);
/// The cells alone, with `ratio` device pixels for each pixel of 96 dpi; missing cells are hatched.
QImage map_image(const QuantisedMap& map, const Viewport& viewport, const Theme& theme,
                 double ratio);

/// The scale of the legend, which reaches beyond the range of colours to all values in sight.
Scale legend_scale(const QuantisedMap& map);
/// Where a value lies on the legend, and which value lies at a place; for handles.
double legend_place(const QRectF& bar, const Scale& legend, double value);
double legend_value(const QRectF& bar, const Scale& legend, double y);

/// A picture of the scene at this size. Its CSV has the cells in sight.
PicturePtr map_picture(MapScene scene, QSizeF size);

}  // namespace kvatlas::viewer
