// SPDX-License-Identifier: Apache-2.0
// HDF5's metadata end in checksums, at which changed bytes would stop. These find the blocks of a
// whole file, what in them is a value of ours, and put their checksums right after a change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvatlas {

/// A block of metadata: its bytes, and behind them their checksum.
struct ChecksummedBlock {
  std::size_t begin, size;
};

/// The blocks whose checksums are right.
std::vector<ChecksummedBlock> checksummed_blocks(std::span<const std::uint8_t> file);
/// Where the values of attributes and the sizes of datasets lie in an object's header.
std::vector<std::span<std::uint8_t>> values_in(std::span<std::uint8_t> file,
                                               ChecksummedBlock block);
/// Writes the checksum of what the block holds now.
void renew_checksum(std::span<std::uint8_t> file, ChecksummedBlock block);

}  // namespace kvatlas
