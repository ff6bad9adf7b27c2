// SPDX-License-Identifier: Apache-2.0
// A share of attention in one byte, for maps that are looked at: the logarithm in steps of an
// eighth of a doubling (docs/profile-format.md says why).
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

namespace kvatlas::share_code {

/// Code c from 1 to kOne stands for the share 2^(c * kScale + kOffset): 1 for 2^-31.625, kOne
/// for 1. Code 0 is less than that, and counts as nothing.
inline constexpr int kOne = 254;
inline constexpr double kScale = 0.125, kOffset = -kOne * kScale;
inline constexpr std::uint8_t kUnknown = 255;

/// The share; NaN for kUnknown.
inline float share_of(std::uint8_t code) {
  if (code == 0) return 0;
  if (code > kOne) return std::numeric_limits<float>::quiet_NaN();
  return static_cast<float>(std::exp2(code * kScale + kOffset));
}

}  // namespace kvatlas::share_code
