// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/overlaid.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.hpp"

namespace kvatlas::viewer {

namespace {

/// The cell of `other_side` at the place of a cell's middle.
std::int64_t cell_over(std::int64_t cell, std::int64_t side, std::int64_t other_side) {
  return std::min((2 * cell + 1) * other_side / (2 * side), other_side - 1);
}

std::int64_t cells_in(std::int64_t tile, std::int64_t side) {
  return std::clamp<std::int64_t>(side - tile * kTileSide, 0, kTileSide);
}

}  // namespace

int level_like(std::int64_t side, std::span<const MapLevel> levels) {
  int best = -1;
  for (int level = 0; level < static_cast<int>(levels.size()); ++level) {
    const auto distance = [&](int at) { return std::abs(levels[at].side - side); };
    if (best < 0 || distance(level) < distance(best)) best = level;
  }
  return best;
}

std::vector<TileKey> tiles_over(const TileKey& key, std::int64_t side, const OtherMap& other) {
  if (other.side == side) return {{other.map, other.level, key.row, key.column}};
  const auto span = [&](std::int64_t tile) {
    const std::int64_t first = tile * kTileSide, count = cells_in(tile, side);
    return std::pair(
        cell_over(first, side, other.side) / kTileSide,
        cell_over(first + std::max<std::int64_t>(count, 1) - 1, side, other.side) / kTileSide);
  };
  const auto rows = span(key.row), columns = span(key.column);
  std::vector<TileKey> keys;
  for (std::int64_t row = rows.first; row <= rows.second; ++row)
    for (std::int64_t column = columns.first; column <= std::min(columns.second, row); ++column)
      keys.push_back({other.map, other.level, row, column});
  return keys;
}

std::shared_ptr<const Tile> tile_over(const TileKey& key, std::int64_t side, const OtherMap& other,
                                      const FindTile& find) {
  const auto keys = tiles_over(key, side, other);
  std::vector<std::shared_ptr<const Tile>> tiles;
  for (const TileKey& wanted : keys) {
    tiles.push_back(find(wanted));
    if (!tiles.back()) return nullptr;
  }
  if (other.side == side) return tiles.front();
  auto made = std::make_shared<Tile>();
  made->rows = cells_in(key.row, side);
  made->columns = cells_in(key.column, side);
  made->values.assign(static_cast<std::size_t>(made->rows * made->columns), 0.0F);
  for (std::int64_t row = 0; row < made->rows; ++row)
    for (std::int64_t column = 0; column < made->columns; ++column) {
      const std::int64_t r = cell_over(key.row * kTileSide + row, side, other.side);
      const std::int64_t c = cell_over(key.column * kTileSide + column, side, other.side);
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (keys[i].row != r / kTileSide || keys[i].column != c / kTileSide) continue;
        const std::int64_t tile_row = r % kTileSide, tile_column = c % kTileSide;
        if (tile_row < tiles[i]->rows && tile_column < tiles[i]->columns)
          made->values[row * made->columns + column] =
              tiles[i]->values[tile_row * tiles[i]->columns + tile_column];
      }
    }
  return made;
}

std::shared_ptr<const Tile> mean_tile(std::span<const std::shared_ptr<const Tile>> tiles) {
  if (tiles.empty()) fail(ErrorCode::internal, "the mean of no tiles");
  if (tiles.size() == 1) return tiles.front();
  auto made = std::make_shared<Tile>(*tiles.front());
  Eigen::Map<Eigen::ArrayXf> mean(made->values.data(), std::ssize(made->values));
  Eigen::ArrayXd sum = Eigen::ArrayXd::Zero(mean.size()), known = sum;
  for (const auto& tile : tiles) {
    if (std::ssize(tile->values) != mean.size())
      fail(ErrorCode::internal, "the mean of tiles of ", mean.size(), " and of ",
           tile->values.size(), " cells");
    const Eigen::Map<const Eigen::ArrayXf> values(tile->values.data(), mean.size());
    sum += values.isNaN().select(0.0F, values).cast<double>();
    known += (!values.isNaN()).cast<double>();
  }
  mean = (sum / known).cast<float>();  // NaN where no tile knows the cell
  return made;
}

std::shared_ptr<const Tile> difference_tile(const Tile& tile, const Tile& less) {
  if (tile.values.size() != less.values.size())
    fail(ErrorCode::internal, "a tile of ", tile.values.size(), " cells less one of ",
         less.values.size());
  auto made = std::make_shared<Tile>(tile);
  const auto cells = std::ssize(less.values);
  Eigen::Map<Eigen::ArrayXf>(made->values.data(), cells) -=
      Eigen::Map<const Eigen::ArrayXf>(less.values.data(), cells);
  return made;
}

}  // namespace kvatlas::viewer
