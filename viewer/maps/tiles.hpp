// SPDX-License-Identifier: Apache-2.0
// Attention maps as they are fetched: a pyramid of block means and of block maxima for each head
// of a sample, in tiles.
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

inline constexpr std::int64_t kTileSide = 256;  // as profiles store them: a tile is one chunk

enum class Reduction : std::uint8_t { mean, maximum };

/// One head's map.
struct MapKey {
  std::size_t sample = 0;  // the position in the profile
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
/// The tile of the next level that shows a tile's part of the map, in half the size.
TileKey coarser(TileKey key);

struct TileKeyHash {
  std::size_t operator()(const TileKey& key) const noexcept;
};

/// A level of a pyramid: a cell is a block of so many tokens a side, and so many are a side.
struct MapLevel {
  std::int64_t block_tokens = 1, side = 0;
  bool operator==(const MapLevel&) const = default;
};
/// The level of thumbnails: the finest of at most 64 cells a side, else the coarsest. `levels` is
/// not empty.
int thumbnail_level(std::span<const MapLevel> levels);

/// Shares of attention; NaN where they are not known.
struct Tile {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> values;  // [rows, columns]

  std::int64_t bytes() const {
    return static_cast<std::int64_t>(sizeof(Tile) + values.size() * sizeof(float));
  }
};
/// A tile's cells at their place in the map.
Cells cells_of(const Tile& tile, const TileKey& key);

/// Where tiles come from. read() is called by one thread (viewer/maps/tile_loader.hpp), levels() by
/// any.
class TileSource {
 public:
  virtual ~TileSource() = default;
  /// The levels of a sample's maps, the finest first; none if it has no maps. Error(unreadable) if
  /// they are damaged. Reads nothing.
  virtual std::vector<MapLevel> levels(std::size_t sample) const = 0;
  /// Error if there is no such tile, or if it cannot be read.
  virtual Tile read(const TileKey& key) = 0;
};

/// The maps of a profile. Reads no map yet.
std::unique_ptr<TileSource> profile_tiles(std::shared_ptr<const profile::Reader> profile);

}  // namespace kvatlas::viewer
