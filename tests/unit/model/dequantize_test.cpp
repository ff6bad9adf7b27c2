// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "analyzer/model/tensor.hpp"
#include "kernels/base/half.hpp"
#include "tests/support/golden.hpp"

namespace kvatlas::model {
namespace {

using testing_support::golden_members;
using testing_support::golden_path;
using testing_support::read_golden;

TEST(Dequantize, EqualsTheGoldenBlocksBitForBit) {
  const auto file = golden_path("tiny/expected.h5");
  std::map<std::string, TensorType> types;
  for (int i = 0; i <= static_cast<int>(TensorType::iq4_xs); ++i)
    types[tensor_type_name(static_cast<TensorType>(i))] = static_cast<TensorType>(i);
  const auto names = golden_members(file, "gguf_blocks");
  ASSERT_EQ(names.size(), 12u);
  for (const auto& name : names) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(types.contains(name));
    const BlockShape block = block_shape(types[name]);
    const auto stored = read_golden(file, "gguf_blocks/" + name + "/bytes");
    const auto expected = read_golden(file, "gguf_blocks/" + name + "/values").floats();
    ASSERT_EQ(stored.shape.back(), block.bytes);
    ASSERT_EQ(expected.size(), static_cast<std::size_t>(stored.shape.front() * block.values));
    // One byte off any alignment, as a mapped tensor may lie.
    std::vector<std::byte> bytes(1);
    for (double value : stored.values) bytes.push_back(static_cast<std::byte>(value));
    std::vector<float> values(expected.size());
    dequantize(types[name], bytes.data() + 1, static_cast<std::int64_t>(values.size()),
               values.data());
    EXPECT_EQ(std::memcmp(values.data(), expected.data(), values.size() * sizeof(float)), 0);
  }
}

TEST(Dequantize, Float16IsExactForEveryBitPattern) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<float> values(halves.size());
  dequantize(TensorType::f16, reinterpret_cast<const std::byte*>(halves.data()), 65536,
             values.data());
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const float expected = f16_to_float(halves[i]);
    ASSERT_EQ(std::memcmp(&values[i], &expected, sizeof(float)), 0) << i;
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
