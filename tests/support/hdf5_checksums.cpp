// SPDX-License-Identifier: Apache-2.0
#include "tests/support/hdf5_checksums.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "analyzer/profile/lookup3_impl.hpp"

namespace kvatlas::testing_support {
namespace {

constexpr std::size_t kChecksumBytes = 4;

std::uint32_t checksum(std::span<const std::uint8_t> file, const ChecksummedBlock& block) {
  const auto bytes = file.subspan(block.begin, block.size);
  if (block.checksum_at == block.begin + block.size) return profile::lookup3(std::as_bytes(bytes));
  std::vector<std::uint8_t> zeroed(bytes.begin(), bytes.end());
  const auto at = static_cast<std::ptrdiff_t>(block.checksum_at - block.begin);
  std::fill_n(zeroed.begin() + at, kChecksumBytes, std::uint8_t{0});
  return profile::lookup3(std::as_bytes(std::span(zeroed)));
}

bool is_right(std::span<const std::uint8_t> file, const ChecksummedBlock& block) {
  if (std::max(block.begin + block.size, block.checksum_at + kChecksumBytes) > file.size())
    return false;
  std::uint32_t stored = 0;
  std::memcpy(&stored, file.data() + block.checksum_at, kChecksumBytes);
  return stored == checksum(file, block);
}

/// The sizes that a block of this signature could have are tried, for most do not tell them.
ChecksummedBlock block_at(std::span<const std::uint8_t> file, std::size_t begin) {
  const std::string_view signature(reinterpret_cast<const char*>(file.data()) + begin, 4);
  if (signature == "FHDB") {
    for (std::size_t size = 512; size <= 65536; size *= 2)
      for (const std::size_t at : {17, 18})  // behind an offset of 4 or 5 bytes
        if (const ChecksummedBlock block{begin, size, begin + at}; is_right(file, block))
          return block;
    return {};
  }
  constexpr std::size_t kLongest = 4096;
  for (std::size_t size = 8; size <= std::min(kLongest, file.size() - begin); ++size)
    if (const ChecksummedBlock block{begin, size, begin + size}; is_right(file, block))
      return block;
  return {};
}

}  // namespace

std::vector<ChecksummedBlock> checksummed_blocks(std::span<const std::uint8_t> file) {
  static constexpr std::array<std::string_view, 13> signatures = {
      "\x89HDF", "OHDR", "OCHK", "BTHD", "BTLF", "BTIN", "FRHP",
      "FHDB",    "FHIB", "FAHD", "FADB", "EAHD", "EAIB"};
  std::vector<ChecksummedBlock> blocks;
  for (std::size_t begin = 0; begin + 8 + kChecksumBytes <= file.size(); ++begin) {
    const std::string_view start(reinterpret_cast<const char*>(file.data()) + begin, 4);
    if (std::find(signatures.begin(), signatures.end(), start) == signatures.end()) continue;
    if (const ChecksummedBlock block = block_at(file, begin); block.size > 0)
      blocks.push_back(block);
  }
  return blocks;
}

void renew_checksum(std::span<std::uint8_t> file, const ChecksummedBlock& block) {
  const std::uint32_t sum = checksum(file, block);
  std::memcpy(file.data() + block.checksum_at, &sum, kChecksumBytes);
}

}  // namespace kvatlas::testing_support
