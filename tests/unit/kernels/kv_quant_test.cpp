// SPDX-License-Identifier: Apache-2.0
#include "kernels/kv_quant.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/error_of.hpp"
#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels::kv_quant_tests {
namespace {

using namespace testing_support;

struct Quantised {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint16_t> scales, minima;
  std::vector<float> restored;
  bool operator==(const Quantised&) const = default;
};

class KvQuantTest : public KernelTest {
 protected:
  static Quantised run(const AnyView<3>& from, int bits, QuantAxis axis, const Exec& how,
                       Layout layout = Layout::dense) {
    const Memory where = from.memory;
    const auto [heads, tokens, dim] = from.sizes;
    const std::int64_t bytes = quant_code_bytes(dim, bits);
    const auto scale_sizes = axis == QuantAxis::per_token
                                 ? std::array<std::int64_t, 3>{heads, tokens, quant_groups(dim)}
                                 : std::array<std::int64_t, 3>{heads, quant_groups(tokens), dim};
    const Output<std::uint8_t, 3> codes({heads, tokens, bytes}, where, layout);
    const Output<std::uint16_t, 3> scales(scale_sizes, where, layout),
        minima(scale_sizes, where, layout);
    const Output<float, 3> restored({heads, tokens, dim}, where, layout);
    const QuantisedCache cache{bits, axis, codes.view, scales.view, minima.view};
    kv_quantise({from, cache}, how);
    kv_dequantise({cache, restored.view}, how);
    return {codes.values(), scales.values(), minima.values(), restored.values()};
  }
  Quantised run(const std::vector<float>& values, const std::array<std::int64_t, 3>& sizes,
                int bits, QuantAxis axis) {
    const Tensor<3> from(values, sizes, memory());
    return run(from.view, bits, axis, exec());
  }
};

/// Equal, or both NaN.
void expect_same(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]))
      ASSERT_TRUE(std::isnan(got[i])) << i;
    else
      ASSERT_EQ(got[i], want[i]) << i;
  }
}

TEST_P(KvQuantTest, EveryBodyGivesTheSameBits) {
  Random random(1);
  for (const auto& [heads, tokens, dim] : {std::array<std::int64_t, 3>{1, 1, 1},
                                           {2, 31, 33},
                                           {3, 32, 64},
                                           {2, 65, 80},
                                           {1, 100, 7},
                                           {2, 33, 128}}) {
    for (const int bits : {4, 2}) {
      for (const QuantAxis axis : {QuantAxis::per_channel, QuantAxis::per_token}) {
        for (const Layout layout : {Layout::dense, Layout::swapped, Layout::strided}) {
          const DType type = layout == Layout::dense     ? DType::f32
                             : layout == Layout::swapped ? DType::f16
                                                         : DType::bf16;
          auto values = random.normals(heads * tokens * dim, 2);
          // Some groups with odd inputs: NaN, infinities, ranges that float16 cannot hold,
          // denormals, equal values.
          const float odd[] = {std::nanf(""), kInf, -kInf, 3e38f, -1e6f, 1e-42f, -0.0f, 70000.0f};
          for (std::size_t i = 0; i < std::size(odd); ++i)
            if (values.size() > 300) values[(i * 997 + 13) % values.size()] = odd[i];
          const Tensor<3> from(values, {heads, tokens, dim}, memory(), type, layout);
          const Quantised got = run(from.view, bits, axis, exec(), layout);
          const Quantised want = run(from.host, bits, axis, kReference);
          EXPECT_EQ(got.codes, want.codes);
          EXPECT_EQ(got.scales, want.scales);
          EXPECT_EQ(got.minima, want.minima);
          expect_same(got.restored, want.restored);
        }
      }
    }
  }
}

TEST_P(KvQuantTest, RestoredValuesAreWithinTheStatedBound) {
  Random random(2);
  const std::array<std::int64_t, 3> sizes = {2, 70, 50};
  for (const float size : {1e-6f, 0.1f, 1.0f, 100.0f}) {
    auto values = random.normals(2 * 70 * 50, size);
    for (auto& value : values) value += 3 * size;
    for (const int bits : {4, 2}) {
      for (const QuantAxis axis : {QuantAxis::per_channel, QuantAxis::per_token}) {
        const Quantised got = run(values, sizes, bits, axis);
        const auto in_group = [&](std::int64_t h, std::int64_t i, std::int64_t c) {
          std::pair<float, float> range{kInf, -kInf};
          const bool token = axis == QuantAxis::per_token;
          const std::int64_t at = (token ? c : i) / kQuantGroup * kQuantGroup;
          for (std::int64_t k = at; k < std::min(at + kQuantGroup, token ? sizes[2] : sizes[1]);
               ++k) {
            const float x = values[(h * sizes[1] + (token ? i : k)) * sizes[2] + (token ? k : c)];
            range = {std::min(range.first, x), std::max(range.second, x)};
          }
          return range;
        };
        for (std::int64_t h = 0; h < sizes[0]; ++h) {
          for (std::int64_t i = 0; i < sizes[1]; ++i) {
            for (std::int64_t c = 0; c < sizes[2]; ++c) {
              const auto at = static_cast<std::size_t>((h * sizes[1] + i) * sizes[2] + c);
              const auto [low, high] = in_group(h, i, c);
              const double spread = static_cast<double>(high) - static_cast<double>(low);
              const double bound = spread / ((1 << bits) - 1) / 2 +
                                   (spread + std::abs(static_cast<double>(low))) * 0x1p-11 +
                                   0x1p-20;
              ASSERT_NEAR(got.restored[at], values[at], bound);
            }
          }
        }
      }
    }
  }
}

TEST_P(KvQuantTest, BitLayoutAndTies) {
  // Minimum 0 and scale 1: codes are the values, 2.5 rounds to 2 and 3.5 to 4.
  const Quantised four = run({0, 15, 2.5f, 3.5f, 9}, {1, 1, 5}, 4, QuantAxis::per_token);
  EXPECT_EQ(four.codes, (std::vector<std::uint8_t>{0xf0, 0x42, 0x09}));
  EXPECT_EQ(four.scales, (std::vector<std::uint16_t>{0x3c00}));
  EXPECT_EQ(four.minima, (std::vector<std::uint16_t>{0}));
  const Quantised two = run({0, 3, 1, 2, 3}, {1, 5, 1}, 2, QuantAxis::per_channel);
  EXPECT_EQ(two.codes, (std::vector<std::uint8_t>{0, 3, 1, 2, 3}));
  EXPECT_EQ(two.restored, (std::vector<float>{0, 3, 1, 2, 3}));
  EXPECT_EQ(run({0, 3, 1, 2, 3}, {1, 1, 5}, 2, QuantAxis::per_token).codes,
            (std::vector<std::uint8_t>{0x9c, 0x03}));
}

TEST_P(KvQuantTest, ConstantGroupsAreRestoredExactlyAndSpoiltOnesStayApart) {
  for (const QuantAxis axis : {QuantAxis::per_channel, QuantAxis::per_token})
    for (const float value : run(std::vector<float>(40 * 40, 0.5f), {1, 40, 40}, 4, axis).restored)
      EXPECT_EQ(value, 0.5f);
  for (const float bad : {std::nanf(""), kInf, -kInf, 1e30f}) {
    std::vector<float> values(2 * 64, 1.0f);
    values[3] = bad;
    const Quantised got = run(values, {1, 2, 64}, 4, QuantAxis::per_token);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(std::isnan(got.restored[i]), i < 32) << i;
  }
}

TEST_P(KvQuantTest, QuantisingTwiceChangesLittleAndThreadsNothing) {
  const std::array<std::int64_t, 3> sizes = {3, 200, 48};
  const auto values = Random(3).normals(3 * 200 * 48);
  for (const QuantAxis axis : {QuantAxis::per_token, QuantAxis::per_channel})
    expect_same_for_any_thread_count([&] { return run(values, sizes, 2, axis); });
  const Quantised want = run(values, sizes, 4, QuantAxis::per_channel);
  EXPECT_EQ(run(want.restored, sizes, 4, QuantAxis::per_channel).codes, want.codes);
}

TEST_P(KvQuantTest, NothingToDo) {
  EXPECT_TRUE(run({}, {0, 4, 8}, 4, QuantAxis::per_token).codes.empty());
  EXPECT_TRUE(run({}, {2, 0, 8}, 2, QuantAxis::per_channel).codes.empty());
  EXPECT_TRUE(run({}, {2, 4, 0}, 2, QuantAxis::per_token).codes.empty());
}

TEST(KvQuantArguments, WhatDoesNotFitIsRefused) {
  float values[64] = {};
  std::uint8_t codes[64];
  std::uint16_t halves[64];
  const View<const float, 3> from(values, {1, 2, 16});
  QuantisedCache cache{
      4, QuantAxis::per_token, {codes, {1, 2, 8}}, {halves, {1, 2, 1}}, {halves + 8, {1, 2, 1}}};
  const auto error = [&] { return error_of([&] { kv_quantise({from, cache}); }); };
  EXPECT_EQ(error(), "");
  cache.bits = 3;
  EXPECT_EQ(error(), "bits is 3, expected 4 or 2");
  cache.bits = 2;
  EXPECT_EQ(error(), "codes has shape [1, 2, 8], expected [1, 2, 4]");
  cache.bits = 4;
  cache.axis = QuantAxis::per_channel;
  EXPECT_EQ(error_of([&] {
              kv_dequantise({cache, {values, {1, 2, 16}}});
            }),
            "scales has shape [1, 2, 1], expected [1, 1, 16]");
}

KVATLAS_EVERY_BODY(KvQuantTest);

}  // namespace
}  // namespace kvatlas::kernels::kv_quant_tests
