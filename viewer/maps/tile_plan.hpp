// SPDX-License-Identifier: Apache-2.0
// Which tiles a window onto a map needs, and in which order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "viewer/maps/tiles.hpp"

namespace kvatlas::viewer {

/// The first ones are read first.
enum class Priority : std::uint8_t { visible, neighbour, prefetch };

struct TileRequest {
  TileKey key;
  Priority priority = Priority::visible;
  bool operator==(const TileRequest&) const = default;
};

/// A part of a map, in tokens; it may reach beyond the map.
struct TokenRectangle {
  std::int64_t first_query = 0, first_key = 0, queries = 0, keys = 0;
  bool operator==(const TokenRectangle&) const = default;
};

/// The coarsest level with at least one cell a pixel; the finest if none has. `levels` is not
/// empty.
int choose_level(std::span<const MapLevel> levels, double tokens_per_pixel);

/// The tiles that show `part`, from its centre outwards, then the ring of tiles around them. Tiles
/// above the diagonal hold nothing and are left out.
std::vector<TileRequest> plan_tiles(const MapKey& map, int level, const MapLevel& about,
                                    const TokenRectangle& part);

}  // namespace kvatlas::viewer
