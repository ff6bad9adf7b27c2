// SPDX-License-Identifier: Apache-2.0
// Where the elements of a stored dataset lie.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/profile/stored_object_impl.hpp"

namespace kvatlas::profile {

struct StoredChunk {
  std::uint64_t address = kNowhere, bytes = 0;
  std::uint64_t skipped = 0;  // a bit for each filter in turn
};

/// How a dataset is stored.
struct StoredLayout {
  enum Kind : std::uint8_t { compact, contiguous, chunked, virtual_parts } kind = compact;
  Span data;             // of a compact one
  StoredChunk all;       // of a contiguous one
  Sizes chunk;           // sizes of a chunk, the last one of which is an element's bytes
  unsigned index = 0;    // how chunks are found, as HDF5 numbers it
  StoredChunk index_at;  // the index, or the only chunk
};
StoredLayout parse_layout(Span body);

/// The chunks of the grid in turn. `plain_bytes` is what a chunk has without filters. All lie
/// within the file; those that were never written are nowhere.
std::vector<StoredChunk> read_chunk_index(const StoredFile& file, const StoredLayout& layout,
                                          std::int64_t count, std::int64_t plain_bytes,
                                          bool filtered);

/// The filters' numbers, in the order in which they were applied.
std::vector<std::uint64_t> parse_filters(Span body);

}  // namespace kvatlas::profile
