// SPDX-License-Identifier: Apache-2.0
// Numbers by which heads can be ordered, computed from their thumbnails.
#pragma once

#include <Eigen/Core>
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
  double sink = 0;     // share of a row on the first block of keys, in the mean over rows
  double recency = 0;  // share on the row's own block and the one before, likewise
  double entropy = 0;  // entropy of a row over blocks of keys in bits, likewise
  /// Square roots of the shares that the blocks of keys have of a row of blocks, which is a column.
  Eigen::ArrayXXf roots;
};
/// The measures of block means [row, key], as many rows as keys. The first row of blocks is left
/// out, for it has only one block of keys.
HeadMeasures measure_head(std::span<const float> means, std::int64_t side);
/// How alike two heads attend: the Bhattacharyya coefficient of their rows in the mean over rows, 1
/// if all rows are the same. Maps of different size are laid over each other by relative position.
double likeness(const HeadMeasures& a, const HeadMeasures& b);

/// The measures of all heads of a sample, [layer * heads + head], from the level that thumbnails
/// are made of.
std::vector<HeadMeasures> read_head_measures(const profile::Reader& profile, std::size_t sample,
                                             int level);

}  // namespace kvatlas::viewer
