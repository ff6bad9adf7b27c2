// SPDX-License-Identifier: Apache-2.0
// HDF5's metadata have checksums, at which changed bytes would stop. These find the blocks of a
// whole file, and put their checksums right after a change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvatlas::testing_support {

/// A block of metadata, and where in the file its checksum lies.
struct ChecksummedBlock {
  std::size_t begin, size;  // without the checksum, if that lies behind
  std::size_t checksum_at;
};

/// The blocks whose checksums are right.
std::vector<ChecksummedBlock> checksummed_blocks(std::span<const std::uint8_t> file);
/// Writes the checksum of what the block holds now.
void renew_checksum(std::span<std::uint8_t> file, const ChecksummedBlock& block);

}  // namespace kvatlas::testing_support
