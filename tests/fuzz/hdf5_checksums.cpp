// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/hdf5_checksums.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string_view>

namespace kvatlas {
namespace {

constexpr std::size_t kChecksumBytes = 4;

/// Bob Jenkins' lookup3, as HDF5 uses it, of whole blocks.
std::uint32_t lookup3(std::span<const std::uint8_t> bytes) {
  std::array<std::uint32_t, 3> sum;
  sum.fill(0xdeadbeef + static_cast<std::uint32_t>(bytes.size()));
  auto& [a, b, c] = sum;
  const auto add = [&](std::span<const std::uint8_t> part) {
    std::array<std::uint32_t, 3> words{};
    std::memcpy(words.data(), part.data(), part.size());
    for (std::size_t i = 0; i < 3; ++i) sum[i] += words[i];
  };
  while (bytes.size() > 12) {
    add(bytes.first(12));
    bytes = bytes.subspan(12);
    a -= c, a ^= std::rotl(c, 4), c += b;
    b -= a, b ^= std::rotl(a, 6), a += c;
    c -= b, c ^= std::rotl(b, 8), b += a;
    a -= c, a ^= std::rotl(c, 16), c += b;
    b -= a, b ^= std::rotl(a, 19), a += c;
    c -= b, c ^= std::rotl(b, 4), b += a;
  }
  if (bytes.empty()) return c;
  add(bytes);
  c ^= b, c -= std::rotl(b, 14);
  a ^= c, a -= std::rotl(c, 11);
  b ^= a, b -= std::rotl(a, 25);
  c ^= b, c -= std::rotl(b, 16);
  a ^= c, a -= std::rotl(c, 4);
  b ^= a, b -= std::rotl(a, 14);
  c ^= b, c -= std::rotl(b, 24);
  return c;
}

bool is_right(std::span<const std::uint8_t> file, ChecksummedBlock block) {
  std::uint32_t stored = 0;
  std::memcpy(&stored, file.data() + block.begin + block.size, kChecksumBytes);
  return stored == lookup3(file.subspan(block.begin, block.size));
}

std::size_t little_endian(std::span<const std::uint8_t> bytes, std::size_t at, std::size_t size) {
  std::size_t value = 0;
  for (std::size_t i = 0; i < size; ++i) value |= std::size_t{bytes[at + i]} << (8 * i);
  return value;
}

/// The bytes before the first message of an object's header, or of a part of one; 0: neither.
std::size_t messages_begin(std::span<const std::uint8_t> block) {
  const std::string_view start(reinterpret_cast<const char*>(block.data()), 4);
  if (start == "OCHK") return 4;
  if (start != "OHDR") return 0;
  const unsigned flags = block[5];
  return 6 + ((flags & 0x20) != 0 ? 16 : 0) + ((flags & 0x10) != 0 ? 4 : 0) +
         (std::size_t{1} << (flags & 3));
}

/// Where the value begins in a message; its size if it has none.
std::size_t value_begin(unsigned type, std::span<const std::uint8_t> message) {
  constexpr unsigned kDataspace = 1, kAttribute = 12;
  if (type == kDataspace && message.size() > 4) return 4;
  if (type != kAttribute || message.size() < 9) return message.size();
  std::size_t begin = 9;  // then its name, type and sizes
  for (const std::size_t at : {2, 4, 6}) begin += little_endian(message, at, 2);
  return std::min(begin, message.size());
}

bool begins_block(std::span<const std::uint8_t> bytes) {
  static constexpr std::array<std::string_view, 13> signatures = {
      "\x89HDF", "OHDR", "OCHK", "BTHD", "BTLF", "BTIN", "FRHP",
      "FHDB",    "FHIB", "FAHD", "FADB", "EAHD", "EAIB"};
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()), 4);
  return std::find(signatures.begin(), signatures.end(), start) != signatures.end();
}

}  // namespace

std::vector<ChecksummedBlock> checksummed_blocks(std::span<const std::uint8_t> file) {
  constexpr std::size_t kLongest = 2048;  // the size is not read, but tried
  std::vector<ChecksummedBlock> blocks;
  for (std::size_t begin = 0; begin + 8 + kChecksumBytes <= file.size(); ++begin) {
    if (!begins_block(file.subspan(begin))) continue;
    const std::size_t most = std::min(kLongest, file.size() - begin - kChecksumBytes);
    for (std::size_t size = 8; size <= most; ++size)
      if (is_right(file, {begin, size})) {
        blocks.push_back({begin, size});
        break;
      }
  }
  return blocks;
}

std::vector<std::span<std::uint8_t>> values_in(std::span<std::uint8_t> file,
                                               ChecksummedBlock block) {
  constexpr std::size_t kHead = 4;  // of a message: type, size, flags
  const auto bytes = file.subspan(block.begin, block.size);
  std::vector<std::span<std::uint8_t>> values;
  std::size_t at = messages_begin(bytes);
  while (at > 0 && at + kHead < bytes.size()) {
    const std::size_t size = std::min(little_endian(bytes, at + 1, 2), bytes.size() - at - kHead);
    const auto message = bytes.subspan(at + kHead, size);
    const std::size_t begin = value_begin(bytes[at], message);
    if (begin < message.size()) values.push_back(message.subspan(begin));
    at += kHead + size;
  }
  return values;
}

void renew_checksum(std::span<std::uint8_t> file, ChecksummedBlock block) {
  const std::uint32_t sum = lookup3(file.subspan(block.begin, block.size));
  std::memcpy(file.data() + block.begin + block.size, &sum, kChecksumBytes);
}

}  // namespace kvatlas
