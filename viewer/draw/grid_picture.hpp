// SPDX-License-Identifier: Apache-2.0
// All heads of a sample on one picture.
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
  bool difference = false;  // centred on 0; its scale is linear
  /// [layer * heads + head], whole maps of a coarse level; nullptr: not read.
  std::vector<std::shared_ptr<const Tile>> maps;
  std::vector<std::uint8_t> shown = {};  // likewise; empty: all
};

/// A tile on a square of pixels as palette indices; of cells under one pixel the highest shows.
QImage thumbnail_image(const Tile& tile, const Scale& scale, int pixels, const Theme& theme);
PicturePtr grid_picture(GridScene scene);

}  // namespace kvatlas::viewer
