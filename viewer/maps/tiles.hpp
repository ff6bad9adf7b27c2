// SPDX-License-Identifier: Apache-2.0
// Attention maps as they are read from a profile. Each head of a sample has a pyramid of block
// means and one of block maxima, cut into tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "viewer/maps/cells.hpp"

namespace kvatlas::profile {
class Reader;
}

namespace kvatlas::viewer {

/// Cells; a tile is one chunk of the profile's file.
inline constexpr std::int64_t kTileSide = 256;

enum class Reduction : std::uint8_t { mean, maximum };

/// One head's map.
struct MapKey {
  std::size_t sample = 0;  // its position in the profile
  std::int64_t layer = 0, head = 0;
  Reduction reduction = Reduction::mean;
  bool operator==(const MapKey&) const = default;
};

/// A tile of a map: `row` and `column` count tiles, level 0 is the finest.
struct TileKey {
  MapKey map;
  int level = 0;
  std::int64_t row = 0, column = 0;
  bool operator==(const TileKey&) const = default;
};
/// The tile of the next level that shows the same part of the map at half the size.
TileKey coarser(TileKey key);

struct TileKeyHash {
  std::size_t operator()(const TileKey& key) const noexcept;
};

/// A level of a pyramid: how many tokens a cell is wide, and how many cells the map is wide.
struct MapLevel {
  std::int64_t block_tokens = 1, side = 0;
  bool operator==(const MapLevel&) const = default;
};
/// The level that thumbnails are made of: the finest with at most 64 cells a side, or else the
/// coarsest. There must be a level.
int thumbnail_level(std::span<const MapLevel> levels);

/// A tile's shares of attention; NaN where they are not known.
struct Tile {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> values;  // [rows, columns]

  std::int64_t bytes() const {
    return static_cast<std::int64_t>(sizeof(Tile) + values.size() * sizeof(float));
  }
};
/// The cells of a tile with their place in the map.
Cells cells_of(const Tile& tile, const TileKey& key);

/// Where tiles come from. One thread calls read() (viewer/maps/tile_loader.hpp); any thread may
/// call levels().
class TileSource {
 public:
  virtual ~TileSource() = default;
  /// The levels of a sample's maps, the finest first; none if the sample has no maps. It reads no
  /// file. Error(unreadable) if the maps are damaged.
  virtual std::vector<MapLevel> levels(std::size_t sample) const = 0;
  /// Reads a tile. Error if there is no such tile, or if it cannot be read.
  virtual Tile read(const TileKey& key) = 0;
};

/// The maps of a profile as a source of tiles. No map is read yet.
std::unique_ptr<TileSource> profile_tiles(std::shared_ptr<const profile::Reader> profile);

}  // namespace kvatlas::viewer
