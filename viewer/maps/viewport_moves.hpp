// SPDX-License-Identifier: Apache-2.0
// Where a window onto a map can be, and how it moves.
#pragma once

#include <cstdint>

#include "viewer/maps/quantised_map.hpp"

namespace kvatlas::viewer {

/// The nearest window that does not reach beyond the map, is not larger than it, and has at most 48
/// pixels a token.
Viewport limited(Viewport viewport, std::int64_t n_tokens);
bool shows_all(const Viewport& viewport, std::int64_t n_tokens);
/// The window with this place, given in tokens, in its middle.
Viewport centred(Viewport viewport, double query, double key);
/// The window that shows a whole rectangle and a little around it.
Viewport fitted(Viewport viewport, const TokenRectangle& part, std::int64_t n_tokens);
/// The same window if the place is in sight; otherwise it is moved so that the place is in the
/// middle.
Viewport showing(Viewport viewport, std::int64_t query, std::int64_t key);

}  // namespace kvatlas::viewer
