// SPDX-License-Identifier: Apache-2.0
// The number formats that keys and values can be stored in (docs/precision.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvatlas::calibrate {

enum class KvFormat : std::uint8_t { f16, fp8, q8_0, q4_0, int4, int2 };

/// What is known of a format.
struct KvFormatFacts {
  /// In policies and documents.
  std::string_view word;
  const char* title;
  double bytes_per_value;
  /// Whether each token is rounded by itself, as soon as it is there. The other formats round 32
  /// tokens together.
  bool by_token;
};

/// In the order of KvFormat. In q8_0 and q4_0, 32 channels share a 16-bit scale; in int4 and int2,
/// 32 values share a 16-bit scale and a 16-bit minimum.
inline constexpr std::array<KvFormatFacts, 6> kKvFormats = {
    {{"16", "16 bits", 2, true},
     {"fp8", "8-bit floating point (E4M3)", 1, true},
     {"q8_0", "8 bits, blocks of 32 channels", 1 + 2.0 / 32, true},
     {"q4_0", "4 bits, blocks of 32 channels", 0.5 + 2.0 / 32, true},
     {"int4", "4 bits, groups of 32", 0.5 + 4.0 / 32, false},
     {"int2", "2 bits, groups of 32", 0.25 + 4.0 / 32, false}}};

constexpr const KvFormatFacts& facts_of(KvFormat format) {
  return kKvFormats[static_cast<std::size_t>(format)];
}

/// The formats of one layer.
struct KvFormats {
  KvFormat keys = KvFormat::f16, values = KvFormat::f16;
  bool operator==(const KvFormats&) const = default;
  bool plain() const { return *this == KvFormats{}; }
};

}  // namespace kvatlas::calibrate
