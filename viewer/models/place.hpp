// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace kvatlas::viewer {

/// What one looks at, in words that can be stored: samples are named by their index in the plan of
/// the profile.
struct Place {
  std::string screen = {};                                 // "lazy"; empty if it is not said
  std::int64_t sample = -1;                                // -1 if it is not said
  std::int64_t layer = 0, head = 0;                        // a query head
  std::int64_t query = -1, key = -1;                       // -1: none
  std::optional<std::array<std::int64_t, 4>> region = {};  // first query, first key, queries, keys
  bool maximum = false;                                    // block maxima instead of means
  std::optional<std::array<std::int64_t, 2>> tokens = {};  // all screens show: first, past the last
  std::string filter = {};                                 // a filter of heads that can be read
  bool operator==(const Place&) const = default;
};

}  // namespace kvatlas::viewer
