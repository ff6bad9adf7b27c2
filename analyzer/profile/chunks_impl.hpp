// SPDX-License-Identifier: Apache-2.0
// How arrays are cut into chunks, and a chunk's bytes: shuffled, then deflated, as HDF5's own
// filters of these names do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "analyzer/profile/profile.hpp"

namespace kvatlas::profile {

using Sizes = std::vector<std::int64_t>;
using Bytes = std::vector<std::byte>;

inline constexpr int kDeflateLevel = 1;  // 2 and 3 save 1 % of a map, and take a third longer
/// The most bytes that one deflated byte can stand for.
inline constexpr std::int64_t kMostExpansion = 1032;

/// The product of sizes. Error(unreadable) if a size is negative or the product exceeds 2^62.
std::int64_t element_count(const Sizes& sizes);
/// The product of sizes times the bytes of an element.
std::int64_t byte_count(Type type, const Sizes& shape);

/// How an array is divided into chunks. Chunks are counted along the last axis first.
struct Grid {
  Sizes shape, chunk;

  std::int64_t size() const;
  /// Where chunk number k begins.
  Sizes start(std::int64_t k) const;
  /// The number of the chunk that holds the element at `place`.
  std::int64_t number(const Sizes& place) const;
};

/// The chunks of a captured array. A chunk holds one index of each of the leading `single_axes`,
/// and a tile of 256 x 256 of the two axes behind them. Small maps share a chunk.
Sizes chunk_sizes(const Sizes& shape, int single_axes);

/// Copies the block of `extent` elements at `from_start` of an array of `from_shape` to `to_start`
/// of one of `to_shape`.
void copy_block(const std::byte* from, const Sizes& from_shape, const Sizes& from_start,
                std::byte* to, const Sizes& to_shape, const Sizes& to_start, const Sizes& extent,
                std::int64_t element_bytes);

/// Chunk number k of an array, deflated. Elements beyond the end of the array are zero.
Bytes encode_chunk(const Array& array, const Grid& grid, std::int64_t k);
/// All chunks of an array, deflated on all threads.
std::vector<Bytes> encode_chunks(const Array& array, const Grid& grid);

/// The chunk's elements, exactly `out` bytes of them. False if the bytes are damaged.
bool decode_chunk(std::span<const std::byte> stored, bool shuffled, bool deflated,
                  std::int64_t element_bytes, std::span<std::byte> out);

}  // namespace kvatlas::profile
