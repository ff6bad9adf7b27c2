// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "analyzer/checkpoint/tensor.hpp"
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

std::vector<float> decoded(TensorType type, const std::vector<std::uint8_t>& bytes,
                           std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  dequantize(type, reinterpret_cast<const std::byte*>(bytes.data()), count, values.data());
  return values;
}

/// PyTorch's values of torch.float8_e4m3fn.
TEST(Dequantize, Float8IsPyTorchs) {
  std::vector<std::uint8_t> bytes(256);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i);
  const auto values = decoded(TensorType::f8_e4m3, bytes, 256);
  const std::pair<int, float> known[] = {
      {1, 0.001953125f}, {7, 0.013671875f},     {8, 0.015625f}, {0x38, 1},
      {0x7e, 448},       {0x81, -0.001953125f}, {0xc5, -3.25f}};
  for (const auto& [byte, value] : known) EXPECT_EQ(values[static_cast<std::size_t>(byte)], value);
  EXPECT_TRUE(std::isnan(values[0x7f]) && std::isnan(values[0xff]));
  EXPECT_EQ(std::accumulate(values.begin(), values.begin() + 127, 0.0), 5407.875);
  for (std::size_t i = 0; i < 127; ++i) EXPECT_EQ(values[i + 128], -values[i]);
}

/// What gguf's own dequantize gives of this block.
TEST(Dequantize, Mxfp4IsGgufs) {
  std::vector<std::uint8_t> block = {125};
  for (int i = 0; i < 16; ++i) block.push_back(static_cast<std::uint8_t>(i * 37 + 11));
  const std::vector<float> expected = {
      -0.375f, 0,    0.75f,  -0.25f, -1.5f, 0.5f,   -0.125f, -1,    0.375f, 0,       -0.75f,
      0.25f,   1.5f, -0.5f,  0.125f, 1,     0,      0.375f,  0.75f, 1.5f,   -0.125f, -0.5f,
      -1,      0,    0.375f, 0.75f,  1.5f,  -0.25f, -0.5f,   -1,    0.125f, 0.375f};
  EXPECT_EQ(decoded(TensorType::mxfp4, block, 32), expected);
}

/// What gguf's own dequantize gives of a block of these bytes whose scale is 1: the first values,
/// and the sum of all, each times its number from 1 on.
TEST(Dequantize, CodeWordsAndTernaryNumbersAreGgufs) {
  struct Known {
    TensorType type;
    std::size_t bytes;
    std::vector<float> first;
    double sum;
  };
  const Known known[] = {
      {TensorType::iq2_xxs, 66, {-59.125, 59.125, 34.375, -34.375}, 36793},
      {TensorType::iq2_xs, 74, {-11, 34.375, -11, -59.125}, 123198.125},
      {TensorType::iq2_s, 82, {-145.125, 84.375, -27, 27}, -62080.625},
      {TensorType::iq3_xxs, 98, {-13, 9, -7, 3}, 3023},
      {TensorType::iq3_s, 110, {-81, 243, -351, -189}, 202790},
      {TensorType::iq1_s, 50, {-2.625, 0.375, 3.375, 3.375}, -11829},
      {TensorType::iq1_m, 56, {-0.875, 6.125, -0.875, -0.875}, -2236},
      {TensorType::tq1_0, 54, {-1, -1, -1, 0}, -131},
      {TensorType::tq2_0, 66, {2, -1, 0, 1}, 17245},
  };
  for (const Known& of : known) {
    SCOPED_TRACE(tensor_type_name(of.type));
    ASSERT_EQ(block_shape(of.type).bytes, static_cast<std::int64_t>(of.bytes));
    std::vector<std::uint8_t> block;
    for (std::size_t i = 0; i < of.bytes; ++i)
      block.push_back(static_cast<std::uint8_t>(i * 37 + 11));
    if (of.type == TensorType::iq1_m) {  // the scale's bits lie apart
      constexpr std::uint8_t kNibbles[] = {0, 0, 0xc, 3};
      for (std::size_t i = 0; i < 4; ++i)
        block[49 + 2 * i] =
            static_cast<std::uint8_t>((block[49 + 2 * i] & 15) | (kNibbles[i] << 4));
    } else {
      const bool ternary = of.type == TensorType::tq1_0 || of.type == TensorType::tq2_0;
      const std::size_t at = ternary ? of.bytes - 2 : 0;
      block[at] = 0;
      block[at + 1] = 0x3c;
    }
    const auto values = decoded(of.type, block, 256);
    EXPECT_EQ(std::vector<float>(values.begin(), values.begin() + 4), of.first);
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      sum += static_cast<double>(i + 1) * static_cast<double>(values[i]);
    EXPECT_EQ(sum, of.sum);
  }
}

}  // namespace
}  // namespace kvatlas::model
