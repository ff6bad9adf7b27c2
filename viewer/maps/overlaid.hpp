// SPDX-License-Identifier: Apache-2.0
// Several maps as one: their mean, or the difference of two. Maps of prompts of different length
// are laid over each other by relative position.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "viewer/maps/tiles.hpp"

namespace kvatlas::viewer {

/// The level whose side is nearest to `side`, the finer one if two are equally near; -1 if there
/// are no levels.
int level_like(std::int64_t side, std::span<const MapLevel> levels);

/// One level of a map that is laid over another map.
struct OtherMap {
  MapKey map;
  int level = 0;
  std::int64_t side = 0;  // cells a side
};
/// The tiles of `other` that lie over the tile `key` of a level with `side` cells a side.
std::vector<TileKey> tiles_over(const TileKey& key, std::int64_t side, const OtherMap& other);

using FindTile = std::function<std::shared_ptr<const Tile>(const TileKey&)>;
/// The other map's values at the cells of the tile `key`; nullptr if `find` does not have all tiles
/// for it.
std::shared_ptr<const Tile> tile_over(const TileKey& key, std::int64_t side, const OtherMap& other,
                                      const FindTile& find);

/// The mean of the known values of each cell. All tiles have the same size.
std::shared_ptr<const Tile> mean_tile(std::span<const std::shared_ptr<const Tile>> tiles);
std::shared_ptr<const Tile> difference_tile(const Tile& tile, const Tile& less);

}  // namespace kvatlas::viewer
