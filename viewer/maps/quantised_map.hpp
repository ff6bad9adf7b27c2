// SPDX-License-Identifier: Apache-2.0
// The tiles of a map that are in sight, as indices of a palette on a grid of pixels.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "viewer/maps/scale.hpp"
#include "viewer/maps/tile_plan.hpp"
#include "viewer/maps/tiles.hpp"

namespace kvatlas::viewer {

/// A window of pixels onto a map, and how many tokens a pixel is wide and high.
struct Viewport {
  double first_query = 0, first_key = 0, tokens_per_pixel = 1;
  int width = 0, height = 0;
  bool operator==(const Viewport&) const = default;

  /// The part of the map that it shows at least a piece of.
  TokenRectangle tokens() const;
};

/// A tile at its place in the map. `slot` is the tile that belongs there; `key` is the same, or a
/// coarser one that stands in for it.
struct PlacedTile {
  TileKey slot, key;
  /// Tokens that a cell of the slot, and of the tile, is wide.
  std::int64_t slot_block = 1, block = 1;
  std::shared_ptr<const Tile> tile;  // nullptr if it is not there yet or could not be read
  bool failed = false;
};

struct ScaleSettings {
  ScaleKind kind = ScaleKind::log;
  bool per_row = false;          // each row is divided by its own greatest value
  bool difference = false;       // the scale is linear and reaches equally far below and above 0
  std::int64_t masked_keys = 0;  // number of first keys that do not count for the range
  /// If none, from the 1st to the 99th percentile of what is in sight.
  std::optional<Range> range;
  bool operator==(const ScaleSettings&) const = default;
};

/// Cells of a tile: rows first_row to last_row - 1, and columns likewise.
struct CellPart {
  std::int64_t first_row = 0, last_row = 0, first_column = 0, last_column = 0;
};
/// The cells that a part of the map touches, of a tile that is there.
CellPart cells_touched(const PlacedTile& placed, const TokenRectangle& part);

/// Counts that a legend names beside its ticks.
struct QuantiseCounts {
  std::int64_t shown = 0;        // cells that are neither masked nor missing
  std::int64_t under_floor = 0;  // those of them below the range, zeros included
  std::int64_t missing = 0;
};

/// What is more than any map.
inline constexpr TokenRectangle kWholeMap{0, 0, std::int64_t{1} << 40, std::int64_t{1} << 40};

class QuantisedMap {
 public:
  /// Takes other tiles as those of which a part is in sight, and that part. Tiles that are
  /// quantised already are kept.
  void place(std::vector<PlacedTile> tiles, const TokenRectangle& sight = kWholeMap);
  /// Chooses the scale anew. If it differs from the last one, everything in sight is quantised
  /// again.
  void rescale(const ScaleSettings& settings);

  const std::vector<PlacedTile>& tiles() const { return tiles_; }
  const TokenRectangle& sight() const { return sight_; }
  const Scale& scale() const { return scale_; }
  const ScaleSettings& settings() const { return settings_; }
  /// The values from which the range was taken, ascending; the legend draws their histogram.
  const std::vector<float>& sample() const { return sample_; }
  /// Of the cells in sight.
  QuantiseCounts counts() const;
  /// The index of every pixel, in rows of `stride` bytes. Where cells are smaller than pixels the
  /// highest one shows, so that a single high cell is always seen.
  void draw(const Viewport& viewport, std::span<std::uint8_t> indices, std::size_t stride) const;

  /// Sums over the cells in sight, or the greatest of them, by size if they are differences: what
  /// the queries of each row give to the keys in sight, and what each key takes from the queries in
  /// sight. NaN where a tile is missing.
  struct Edges {
    std::int64_t block = 1, first_row = 0, first_column = 0;  // in cells of the level
    std::vector<double> rows, columns;
  };
  Edges edges(const Viewport& viewport, std::int64_t n_tokens, bool greatest) const;
  /// The value of a pair of tokens in the finest tile there; none if there is no tile.
  struct Value {
    float value = 0;
    std::int64_t block = 1;
    std::int64_t first_query = 0, first_key = 0;  // first tokens of the block
    std::int64_t rank = 0,
                 stored = 0;  // of the row's cells in sight, the greatest is 1; of so many
  };
  std::optional<Value> value_at(std::int64_t query, std::int64_t key) const;

  /// How many tiles were quantised so far; tests look at it.
  std::int64_t quantised() const { return quantised_; }

 private:
  struct Indices {
    std::vector<std::uint8_t> values;
    std::shared_ptr<const Tile> of;
  };
  void quantise_new();
  std::vector<float> visible_sample() const;
  /// The greatest of each row of the tile, of the cells in sight.
  std::vector<float> row_maxima(const PlacedTile& placed) const;
  /// Calls `use(placed)` for each tile that is there once, though it may stand in several slots.
  template <class Use>
  void for_each_tile(Use use) const;

  std::vector<PlacedTile> tiles_;
  TokenRectangle sight_ = kWholeMap;
  ScaleSettings settings_;
  Scale scale_{ScaleKind::log, {1e-6, 1}};
  std::vector<float> sample_;
  std::unordered_map<TileKey, Indices, TileKeyHash> indices_;
  std::int64_t quantised_ = 0;
};

}  // namespace kvatlas::viewer
