// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/last_rows.hpp"

namespace kvatlas::kernels {

constexpr double kNoSink = -std::numeric_limits<double>::infinity();

/// The distant keys of row `i` are [begin, end).
struct DistantRange {
  std::int64_t begin, end;
};
inline DistantRange distant_range(const Proximity& proximity, std::int64_t i) {
  const std::int64_t begin = std::min(proximity.initial, i + 1);
  return {begin, std::max(begin, i + 1 - proximity.recent)};
}

/// Writes the three statistics of one row and proximity from sums of exp(score - shift).
inline void write_proximity(const LastRows& io, std::int64_t entry, std::int64_t head,
                            std::int64_t row, double proximal, double distant, double shift) {
  if (!(proximal + distant > 0)) proximal = distant = std::numeric_limits<double>::quiet_NaN();
  if (io.mass.data) io.mass(entry, head, row) = static_cast<float>(proximal / (proximal + distant));
  if (io.proximal_lse.data)
    io.proximal_lse(entry, head, row) = static_cast<float>(std::log(proximal) + shift);
  if (io.distant_lse.data)
    io.distant_lse(entry, head, row) = static_cast<float>(std::log(distant) + shift);
}

namespace reference {
void last_rows(const LastRows& io);
}
namespace cuda {
void last_rows(const LastRows& io, void* stream);
}
}  // namespace kvatlas::kernels
