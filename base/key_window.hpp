// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvatlas {

/// Which keys up to its own a query sees: all; or the last `size`, its own included; or those of
/// its chunk, where positions are cut into chunks of `size` from 0 on.
struct KeyWindow {
  std::int64_t size = 0;  // 0: all
  bool chunks = false;

  /// The first key that the query at position i sees.
  constexpr std::int64_t first_key(std::int64_t i) const {
    if (size == 0) return 0;
    if (chunks) return i / size * size;
    return i < size ? 0 : i - size + 1;
  }
  /// One past the last of n queries that sees key j.
  constexpr std::int64_t end_query(std::int64_t j, std::int64_t n) const {
    if (size == 0) return n;
    const std::int64_t begin = chunks ? j / size * size : j;
    return size < n - begin ? begin + size : n;
  }
};

}  // namespace kvatlas
