// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace kvatlas {

/// The hash FNV-1a with 64 bits. It tells files and settings apart; it does not protect against
/// forgery.
class Fnv1a {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes)
      value_ = (value_ ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
  }
  void add(std::string_view text) { add(std::as_bytes(std::span(text.data(), text.size()))); }
  /// Adds the number's eight bytes, the lowest first.
  void add(std::uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) {
      const auto byte = static_cast<std::byte>(number >> shift);
      add(std::span(&byte, 1));
    }
  }
  /// The hash so far, as 16 hexadecimal digits.
  std::string hex() const {
    std::string digits(16, '0');
    for (std::size_t i = 0; i < 16; ++i)
      digits[i] = "0123456789abcdef"[value_ >> (60 - 4 * i) & 15];
    return digits;
  }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace kvatlas
