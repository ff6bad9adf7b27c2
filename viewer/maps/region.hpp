// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "viewer/maps/cells.hpp"
#include "viewer/maps/quantised_map.hpp"

namespace kvatlas::viewer {

/// A rectangle of one head's map at one level, whole blocks. Rows of single tokens have
/// block_tokens 1 and their place in the prompt.
struct Region {
  Cells means;                    // block means
  std::span<const float> maxima;  // block maxima, [rows, columns]; may be empty
  std::int64_t block_tokens = 1;
  std::int64_t n_tokens = 0;  // of the prompt: the last block may be partial
};

/// What a rectangle holds. Missing cells are left out of everything.
struct RegionStatistics {
  std::int64_t pairs = 0;    // of a query and a key that it may see
  std::int64_t missing = 0;  // cells
  double sum = 0;            // of the attention of these pairs
  double mean = 0;           // a pair
  double maximum = 0;        // of a pair, or of a block's mean
  bool of_pairs = false;     // the maximum is of a pair: the maxima of all known blocks are known
  double entropy = 0;        // bits, of the sum's distribution over the cells
  /// Of the attention that the rectangle's queries give, how much they give to its keys. A row's
  /// whole attention is 1.
  double share_of_rows = 0;
};

/// Error(internal) for sizes that do not fit together. Error from the blocks' rounding is that of
/// what is stored; sums are added in double.
RegionStatistics region_statistics(const Region& region);

/// Of the blocks that a part of a map touches, from the tiles of one level that are here: `means`,
/// and `maxima`, which may be empty.
RegionStatistics region_statistics(std::span<const PlacedTile> means,
                                   std::span<const PlacedTile> maxima, const TokenRectangle& part,
                                   std::int64_t block_tokens, std::int64_t n_tokens);

}  // namespace kvatlas::viewer
