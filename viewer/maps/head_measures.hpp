// SPDX-License-Identifier: Apache-2.0
// Numbers that heads are ordered by, from their thumbnails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "viewer/maps/tiles.hpp"

namespace kvatlas::profile {
class Reader;
}

namespace kvatlas::viewer {

struct HeadMeasures {
  double sink = 0;     // share of a row that goes to the first block of keys, mean over rows
  double recency = 0;  // that goes to the row's own block and the one before
  double entropy = 0;  // of a row over blocks of keys, bits, mean over rows
  /// Square roots of the share that each block of keys has of each row of blocks.
  std::vector<float> roots;
};
/// Of block means, [side, side] with blocks of so many tokens. The first row of blocks, which has
/// but one block of keys, is left out.
HeadMeasures measure_head(std::span<const float> means, std::int64_t side,
                          std::int64_t block_tokens);
/// 0 to 1, the same rows: the rows' Bhattacharyya coefficient, mean over rows. Maps of other sides
/// are laid over each other by relative position.
double likeness(const HeadMeasures& a, const HeadMeasures& b);

/// Of all heads of a sample, [layer * heads + head], at the level of thumbnails.
std::vector<HeadMeasures> read_head_measures(const profile::Reader& profile, std::size_t sample,
                                             int level, std::int64_t block_tokens);

}  // namespace kvatlas::viewer
