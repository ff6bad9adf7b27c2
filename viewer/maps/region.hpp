// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "viewer/maps/cells.hpp"
#include "viewer/maps/quantised_map.hpp"

namespace kvatlas::viewer {

/// A rectangle of whole blocks in one level of one head's map. Rows of single tokens have
/// block_tokens 1 and their place in the prompt.
struct Region {
  Cells means;                    // block means
  std::span<const float> maxima;  // block maxima, [rows, columns]; may be empty
  std::int64_t block_tokens = 1;
  std::int64_t n_tokens = 0;  // tokens of the prompt; the last block may be a part of one
};

/// What a rectangle holds. Missing cells count nowhere else.
struct RegionStatistics {
  std::int64_t pairs = 0;    // pairs of a query and a key that it can see
  std::int64_t missing = 0;  // cells
  double sum = 0;            // attention of these pairs together
  double mean = 0;           // attention of a pair in the mean
  double maximum = 0;        // greatest attention of a pair, or greatest mean of a block
  /// The maximum is that of a pair, for the maxima of all known blocks are known.
  bool of_pairs = false;
  double entropy = 0;  // entropy in bits of how the sum is spread over the cells
  /// The share that the rectangle's keys have of all attention of its queries, where each query has
  /// 1 to give.
  double share_of_rows = 0;
};

/// Error(internal) for sizes that do not fit together. Sums are added in double precision, so the
/// result is as exact as the stored blocks.
RegionStatistics region_statistics(const Region& region);

/// The blocks of a map of `n_tokens` that a part of it touches, as tokens.
TokenRectangle blocks_touched(const TokenRectangle& part, std::int64_t block_tokens,
                              std::int64_t n_tokens);

/// The statistics of all blocks that a part of a map touches, from the tiles of one level that are
/// here. `maxima` may be empty.
RegionStatistics region_statistics(std::span<const PlacedTile> means,
                                   std::span<const PlacedTile> maxima, const TokenRectangle& part,
                                   std::int64_t block_tokens, std::int64_t n_tokens);

}  // namespace kvatlas::viewer
