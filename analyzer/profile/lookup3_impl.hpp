// SPDX-License-Identifier: Apache-2.0
// The checksum of HDF5's metadata: lookup3 of Bob Jenkins, of a whole block.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace kvatlas::profile {

/// Inlined always, so that the fuzz targets' mutator has one that no sanitizer slows down.
[[gnu::always_inline]] inline std::uint32_t lookup3(std::span<const std::byte> bytes) {
  std::array<std::uint32_t, 3> sum;
  sum.fill(0xdeadbeef + static_cast<std::uint32_t>(bytes.size()));
  auto& [a, b, c] = sum;
  const auto add = [&](std::span<const std::byte> part) {
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

}  // namespace kvatlas::profile
