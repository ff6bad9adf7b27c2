// SPDX-License-Identifier: Apache-2.0
#include "base/half.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace kvatlas {
namespace {

TEST(Half, EveryFloat16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = f16_to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(value))));
    } else {
      EXPECT_EQ(float_to_f16(value), half) << value;
    }
  }
}

TEST(Half, EveryBfloat16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = bf16_to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(value))));
    } else {
      EXPECT_EQ(float_to_bf16(value), half) << value;
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(f16_to_float(float_to_f16(1.0f + 0x1p-11f)), 1.0f);
  EXPECT_EQ(f16_to_float(float_to_f16(1.0f + 0x1.8p-10f)), 1.0f + 0x1p-9f);
  EXPECT_EQ(f16_to_float(float_to_f16(65519.0f)), 65504.0f);
  EXPECT_TRUE(std::isinf(f16_to_float(float_to_f16(65520.0f))));
  EXPECT_EQ(f16_to_float(float_to_f16(0x1p-25f)), 0.0f);
  EXPECT_EQ(f16_to_float(float_to_f16(0x1.8p-25f)), 0x1p-24f);
  EXPECT_EQ(bf16_to_float(float_to_bf16(1.0f + 0x1p-8f)), 1.0f);
  EXPECT_TRUE(std::isinf(bf16_to_float(float_to_bf16(std::numeric_limits<float>::max()))));
}

}  // namespace
}  // namespace kvatlas
