// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/tiles.hpp"

namespace kvatlas::viewer {

TileKey coarser(TileKey key) {
  ++key.level;
  key.row /= 2;
  key.column /= 2;
  return key;
}

std::size_t TileKeyHash::operator()(const TileKey& key) const noexcept {
  std::uint64_t hash = 0;
  const auto add = [&](auto part) {
    hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  };
  add(key.map.sample);
  add(key.map.layer);
  add(key.map.head);
  add(key.map.reduction);
  add(key.level);
  add(key.row);
  add(key.column);
  return hash;
}

int thumbnail_level(std::span<const MapLevel> levels) {
  constexpr std::int64_t kThumbnailSide = 64;
  int level = 0;
  while (level + 1 < static_cast<int>(levels.size()) && levels[level].side > kThumbnailSide)
    ++level;
  return level;
}

Cells cells_of(const Tile& tile, const TileKey& key) {
  return {tile.values, tile.rows, tile.columns, key.row * kTileSide, key.column * kTileSide};
}

}  // namespace kvatlas::viewer
