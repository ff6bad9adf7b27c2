// SPDX-License-Identifier: Apache-2.0
// Several maps as one: their mean, or one less another. Maps of prompts of other lengths are laid
// over each other by relative position.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "viewer/maps/tiles.hpp"

namespace kvatlas::viewer {

/// The level whose side is nearest to `side`, the finer one of two; -1 if there is none.
int level_like(std::int64_t side, std::span<const MapLevel> levels);

/// A map that is laid over another one, at one level.
struct OtherMap {
  MapKey map;
  int level = 0;
  std::int64_t side = 0;  // cells
};
/// The tiles of `other` that lie over the tile `key` of a level of `side` cells.
std::vector<TileKey> tiles_over(const TileKey& key, std::int64_t side, const OtherMap& other);

using FindTile = std::function<std::shared_ptr<const Tile>(const TileKey&)>;
/// The other map's values at the cells of the tile `key`; nullptr if `find` lacks a tile of it.
std::shared_ptr<const Tile> tile_over(const TileKey& key, std::int64_t side, const OtherMap& other,
                                      const FindTile& find);

/// Cell by cell, of what is known; the tiles have one size.
std::shared_ptr<const Tile> mean_tile(std::span<const std::shared_ptr<const Tile>> tiles);
std::shared_ptr<const Tile> difference_tile(const Tile& tile, const Tile& less);

}  // namespace kvatlas::viewer
