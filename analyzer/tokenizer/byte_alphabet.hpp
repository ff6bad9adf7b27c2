// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvatlas::model {

/// The alphabet of byte-level BPE: each of the 256 bytes is written as one visible character. Bytes
/// that are visible in Latin-1 stand for themselves, the others for U+0100 and on, in order.
class ByteAlphabet {
 public:
  static const ByteAlphabet& get();

  /// The character of a byte, in UTF-8 (one or two bytes).
  std::string_view character(unsigned char byte) const { return written_[byte]; }
  std::string spelled(std::string_view bytes) const;
  /// The bytes that a token spells; a token with any other character stands for itself.
  std::string bytes_of(std::string_view token) const;

 private:
  ByteAlphabet();
  std::array<std::string, 256> written_;
  std::array<std::int16_t, 0x144> byte_of_;  // by code point; -1 if it stands for no byte
};

}  // namespace kvatlas::model
