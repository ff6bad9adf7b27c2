// SPDX-License-Identifier: Apache-2.0
// Where a window onto a map may be, and where it goes.
#pragma once

#include <cstdint>

#include "viewer/maps/quantised_map.hpp"

namespace kvatlas::viewer {

/// Not beyond the map's edges, not larger than the map, not closer than 48 pixels a token.
Viewport limited(Viewport viewport, std::int64_t n_tokens);
bool shows_all(const Viewport& viewport, std::int64_t n_tokens);
/// With this place (in tokens) in its middle.
Viewport centred(Viewport viewport, double query, double key);
/// With all of a rectangle in sight and a little around it.
Viewport fitted(Viewport viewport, const TokenRectangle& part, std::int64_t n_tokens);
/// Moved no further than it takes to have the place in sight: then it is in the middle.
Viewport showing(Viewport viewport, std::int64_t query, std::int64_t key);

}  // namespace kvatlas::viewer
