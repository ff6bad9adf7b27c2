// SPDX-License-Identifier: Apache-2.0
// The tiles of a map that are in sight, as indices of a palette and on a grid of pixels.
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

/// A window of pixels onto a map; a pixel is so many tokens a side.
struct Viewport {
  double first_query = 0, first_key = 0, tokens_per_pixel = 1;
  int width = 0, height = 0;
  bool operator==(const Viewport&) const = default;

  /// The tokens that it touches.
  TokenRectangle tokens() const;
};

/// A tile in its place: `key` is `slot`, or the coarser tile that stands in for it.
struct PlacedTile {
  TileKey slot, key;
  std::int64_t slot_block = 1, block = 1;  // tokens a side of a cell
  std::shared_ptr<const Tile> tile;        // nullptr: not there yet, or failed
  bool failed = false;
};

struct ScaleSettings {
  ScaleKind kind = ScaleKind::log;
  bool per_row = false;          // each row by its own greatest value
  bool difference = false;       // linear, as far below 0 as above
  std::int64_t masked_keys = 0;  // the first so many do not take part in the range
  std::optional<Range> range;    // none: 1st to 99th percentile of what is in sight
  bool operator==(const ScaleSettings&) const = default;
};

class QuantisedMap {
 public:
  /// Other tiles in sight; what is quantised already stays so.
  void place(std::vector<PlacedTile> tiles);
  /// Chooses the scale anew; another one than before quantises all that is in sight.
  void rescale(const ScaleSettings& settings);

  const std::vector<PlacedTile>& tiles() const { return tiles_; }
  const Scale& scale() const { return scale_; }
  const ScaleSettings& settings() const { return settings_; }
  /// The values that the range was taken of, ascending: the legend's histogram.
  const std::vector<float>& sample() const { return sample_; }
  QuantiseCounts counts() const;
  /// The index of every pixel, rows of `stride` bytes. Where cells are smaller than pixels the
  /// highest one shows, so that a needle is never passed over.
  void draw(const Viewport& viewport, std::span<std::uint8_t> indices, std::size_t stride) const;

  /// Sums over the cells in sight (or the greatest of them): what each row's queries give to the
  /// keys in sight, what each key takes from the queries in sight. NaN where a tile lacks.
  struct Edges {
    std::int64_t block = 1, first_row = 0, first_column = 0;  // in cells of the level
    std::vector<double> rows, columns;
  };
  Edges edges(const Viewport& viewport, std::int64_t n_tokens, bool greatest) const;
  /// The value at a token pair, of the finest tile there; nothing if none is.
  struct Value {
    float value = 0;
    std::int64_t block = 1;
    std::int64_t first_query = 0, first_key = 0;  // of the block
    std::int64_t rank = 0,
                 stored = 0;  // of the row's cells in sight, the greatest is 1; of so many
  };
  std::optional<Value> value_at(std::int64_t query, std::int64_t key) const;

  /// How many tiles were quantised since the beginning.
  std::int64_t quantised() const { return quantised_; }

 private:
  struct Indices {
    std::vector<std::uint8_t> values;
    QuantiseCounts counts;
    std::shared_ptr<const Tile> of;
  };
  void quantise_new();
  std::vector<float> visible_sample() const;
  std::vector<float> row_maxima(const PlacedTile& placed) const;

  std::vector<PlacedTile> tiles_;
  ScaleSettings settings_;
  Scale scale_{ScaleKind::log, {1e-6, 1}};
  std::vector<float> sample_;
  std::unordered_map<TileKey, Indices, TileKeyHash> indices_;
  std::int64_t quantised_ = 0;
};

}  // namespace kvatlas::viewer
