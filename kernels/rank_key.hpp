// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace kvatlas::kernels {

/// An integer that orders as the floats do: NaN lowest, -0 and 0 the same.
constexpr std::uint32_t rank_key(float value) {
  if (value != value) return 0;
  const auto bits = std::bit_cast<std::uint32_t>(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

}  // namespace kvatlas::kernels
