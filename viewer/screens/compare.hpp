// SPDX-License-Identifier: Apache-2.0
// How a map is compared with that of the baseline.
#pragma once

#include <cstdint>

#include "viewer/screens/screen.hpp"

namespace kvatlas::viewer {

enum class Compare : std::uint8_t { off, side_by_side, difference, swipe };

/// What that key asks for; off: something else.
constexpr Compare compare_of(Act act) {
  switch (act) {
    case Act::beside:
      return Compare::side_by_side;
    case Act::difference:
      return Compare::difference;
    case Act::swipe:
      return Compare::swipe;
    default:
      return Compare::off;
  }
}

}  // namespace kvatlas::viewer
