// SPDX-License-Identifier: Apache-2.0
// One picture with the attention maps of all heads of a sample.
#pragma once

#include <memory>
#include <vector>

#include "viewer/draw/picture.hpp"
#include "viewer/maps/scale.hpp"
#include "viewer/maps/tiles.hpp"

namespace kvatlas::viewer {

struct GridScene {
  std::string title;
  std::int64_t layers = 0, heads = 0, kv_heads = 0;
  ScaleKind kind = ScaleKind::log;
  Reduction reduction = Reduction::mean;
  bool difference = false;  // the maps are differences: their scale is linear, with 0 in its middle
  /// At [layer * heads + head] the whole map of that head, at a coarse level; nullptr: not read.
  std::vector<std::shared_ptr<const Tile>> maps;
  std::vector<std::uint8_t> shown = {};  // by the same index, whether it is shown; empty: all are
};

/// A tile as a square image of palette indices. Where several cells share a pixel, the highest
/// value is shown.
QImage thumbnail_image(const Tile& tile, const Scale& scale, int pixels, const Theme& theme);
PicturePtr grid_picture(GridScene scene);

}  // namespace kvatlas::viewer
