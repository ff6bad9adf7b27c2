// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "analyzer/model/tensor.hpp"
#include "base/half.hpp"

namespace kvatlas::model {
namespace {

TEST(Dequantize, Float16IsExactForEveryBitPattern) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> values(halves.size());
  dequantize(TensorType::f16, reinterpret_cast<const std::byte*>(halves.data()), 65536,
             values.data());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const float expected = f16_to_float(halves[i]);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(expected)) << i;
  }
}

TEST(Dequantize, Bfloat16IsTheHighHalfOfAFloat) {
  const std::vector<float> expected{0.0f, -1.5f, 3.0e38f, INFINITY, 1.0e-40f};
  std::vector<std::uint16_t> stored;
  std::vector<float> cut;
  for (float value : expected) {
    stored.push_back(float_to_bf16(value));
    cut.push_back(bf16_to_float(stored.back()));
  }
  std::vector<float> values(expected.size());
  dequantize(TensorType::bf16, reinterpret_cast<const std::byte*>(stored.data()),
             static_cast<std::int64_t>(values.size()), values.data());
  EXPECT_EQ(values, cut);
  EXPECT_EQ(values[1], -1.5f);
}

TEST(Dequantize, Float32IsCopied) {
  const std::vector<float> stored{1.0f, -2.5f, 3.25f};
  std::vector<float> values(3);
  dequantize(TensorType::f32, reinterpret_cast<const std::byte*>(stored.data()), 3, values.data());
  EXPECT_EQ(values, stored);
}

}  // namespace
}  // namespace kvatlas::model
