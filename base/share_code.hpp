// SPDX-License-Identifier: Apache-2.0
// A share of attention in one byte, for maps that are looked at: the logarithm in steps of an
// eighth of a doubling (docs/profile-format.md says why).
#pragma once

#include <algorithm>
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

/// The nearest code of a share from 0 to 1; kUnknown for NaN. What writes maps
/// (analyzer/capture/prefill_capture.cpp) makes the same codes from logarithms.
inline std::uint8_t code_of(float share) {
  if (std::isnan(share)) return kUnknown;
  if (share <= 0) return 0;
  const double place = std::log2(static_cast<double>(share)) / kScale + kOne;
  return static_cast<std::uint8_t>(std::clamp(std::lround(place), 0L, static_cast<long>(kOne)));
}

}  // namespace kvatlas::share_code
