// SPDX-License-Identifier: Apache-2.0
// Which tiles a window onto a map needs, and in which order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "viewer/maps/tiles.hpp"

namespace kvatlas::viewer {

/// Tiles of the first of these are read first.
enum class Priority : std::uint8_t { visible, neighbour, prefetch };

struct TileRequest {
  TileKey key;
  Priority priority = Priority::visible;
  bool operator==(const TileRequest&) const = default;
};

/// A part of a map in tokens. It may reach beyond the map.
struct TokenRectangle {
  std::int64_t first_query = 0, first_key = 0, queries = 0, keys = 0;
  bool operator==(const TokenRectangle&) const = default;
};

/// The coarsest level that has at least one cell for each pixel; the finest if none has. There must
/// be a level.
int choose_level(std::span<const MapLevel> levels, double tokens_per_pixel);

/// The tiles that show `part`, from its centre outwards, and then the ring of tiles around them.
/// Tiles above the diagonal are left out, for they hold nothing.
std::vector<TileRequest> plan_tiles(const MapKey& map, int level, const MapLevel& about,
                                    const TokenRectangle& part);

}  // namespace kvatlas::viewer
