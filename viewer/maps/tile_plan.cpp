// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/tile_plan.hpp"

#include <algorithm>
#include <utility>

namespace kvatlas::viewer {

namespace {

/// Tiles first to last - 1 of one axis.
struct TileSpan {
  std::int64_t first = 0, last = 0;
  bool holds(std::int64_t tile) const { return tile >= first && tile < last; }
};

/// The tiles that the tokens first to last - 1 touch.
TileSpan touched(std::int64_t first, std::int64_t last, std::int64_t tile_tokens,
                 std::int64_t tiles) {
  first = std::max<std::int64_t>(first, 0);
  last = std::min(last, tiles * tile_tokens);
  if (first >= last) return {};
  return {first / tile_tokens, (last - 1) / tile_tokens + 1};
}

}  // namespace

int choose_level(std::span<const MapLevel> levels, double tokens_per_pixel) {
  int level = 0;
  while (level + 1 < static_cast<int>(levels.size()) &&
         static_cast<double>(levels[static_cast<std::size_t>(level) + 1].block_tokens) <=
             tokens_per_pixel)
    ++level;
  return level;
}

std::vector<TileRequest> plan_tiles(const MapKey& map, int level, const MapLevel& about,
                                    const TokenRectangle& part) {
  const std::int64_t tile_tokens = kTileSide * about.block_tokens;
  const std::int64_t tiles = (about.side + kTileSide - 1) / kTileSide;
  const TileSpan rows =
      touched(part.first_query, part.first_query + part.queries, tile_tokens, tiles);
  const TileSpan columns = touched(part.first_key, part.first_key + part.keys, tile_tokens, tiles);
  if (rows.first == rows.last || columns.first == columns.last) return {};

  // Twice the distances from the part's centre to the tiles' ones are whole numbers.
  const std::int64_t twice_query = 2 * part.first_query + part.queries;
  const std::int64_t twice_key = 2 * part.first_key + part.keys;
  const auto distance = [&](const TileKey& key) {
    const auto down = static_cast<double>((2 * key.row + 1) * tile_tokens - twice_query);
    const auto right = static_cast<double>((2 * key.column + 1) * tile_tokens - twice_key);
    return down * down + right * right;
  };
  std::vector<TileRequest> plan;
  for (std::int64_t row = std::max<std::int64_t>(rows.first - 1, 0);
       row < std::min(rows.last + 1, tiles); ++row)
    for (std::int64_t column = std::max<std::int64_t>(columns.first - 1, 0);
         column < std::min(columns.last + 1, tiles) && column <= row; ++column)
      plan.push_back(
          {{map, level, row, column},
           rows.holds(row) && columns.holds(column) ? Priority::visible : Priority::neighbour});
  std::stable_sort(plan.begin(), plan.end(), [&](const TileRequest& a, const TileRequest& b) {
    return std::pair(a.priority, distance(a.key)) < std::pair(b.priority, distance(b.key));
  });
  return plan;
}

}  // namespace kvatlas::viewer
