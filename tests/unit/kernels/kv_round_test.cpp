// SPDX-License-Identifier: Apache-2.0
#include "kernels/kv_round.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/error_of.hpp"
#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels::kv_round_tests {
namespace {

using namespace testing_support;

class KvRoundTest : public KernelTest {
 protected:
  static std::vector<float> run(RowFormat format, const AnyView<3>& from, const Exec& how,
                                Layout layout = Layout::dense, float scale = 1) {
    const Output<float, 3> to(from.sizes, from.memory, layout);
    kv_round({format, from, to.view, scale}, how);
    return to.values();
  }
  std::vector<float> run(RowFormat format, const std::vector<float>& values, std::int64_t dim,
                         float scale = 1) {
    const Tensor<3> from(values, {1, std::ssize(values) / dim, dim}, memory());
    return run(format, from.view, exec(), Layout::dense, scale);
  }
};
KVATLAS_EVERY_BODY(KvRoundTest);

/// Sizes of heads that the format has.
std::vector<std::int64_t> sizes_of(RowFormat format) {
  std::vector<std::int64_t> out;
  for (const std::int64_t dim : {16, 64, 80, 96, 128, 256})
    if (lacking_head_size(format, dim).empty()) out.push_back(dim);
  return out;
}

TEST_P(KvRoundTest, EveryBodyGivesTheSameBits) {
  Random random(1);
  for (const RowFormatName& row : kRowFormats)
    for (const std::int64_t dim : sizes_of(row.format))
      for (const Layout layout : {Layout::dense, Layout::swapped, Layout::strided}) {
        const DType type = layout == Layout::dense     ? DType::f32
                           : layout == Layout::swapped ? DType::f16
                                                       : DType::bf16;
        const std::array<std::int64_t, 3> sizes{2, 19, dim};
        auto values = random.normals(2 * 19 * dim, 2);
        const float odd[] = {std::nanf(""), kInf, -kInf, 3e38f, -1e6f, 1e-42f, -0.0f, 70000.0f};
        for (std::size_t i = 0; i < std::size(odd); ++i)
          values[(i * 997 + 13) % values.size()] = odd[i];
        for (std::int64_t c = 0; c < dim; ++c) {  // rows of zeros, alike, tiny and large numbers
          values[static_cast<std::size_t>(10 * dim + c)] = 0;
          values[static_cast<std::size_t>(11 * dim + c)] = -0.25f;
          values[static_cast<std::size_t>(12 * dim + c)] *= 1e-30f;
          values[static_cast<std::size_t>(13 * dim + c)] *= 1e4f;
        }
        const Tensor<3> from(values, sizes, memory(), type, layout);
        const float scale = layout == Layout::dense ? 1 : 0.0371f;
        const auto got = run(row.format, from.view, exec(), layout, scale);
        const auto want = run(row.format, from.host, kReference, Layout::dense, scale);
        for (std::size_t i = 0; i < want.size(); ++i) {
          if (std::isnan(want[i]))
            ASSERT_TRUE(std::isnan(got[i])) << row.word << ", " << dim << ", " << i;
          else
            ASSERT_EQ(got[i], want[i]) << row.word << ", " << dim << ", " << i;
        }
      }
}

/// The most that a number of a row may move, as a share of the row's greatest magnitude.
double bound_of(RowFormat format) {
  switch (format) {
    case RowFormat::int8_row:
    case RowFormat::q8_0:
      return 0.005;
    case RowFormat::e4m3:
    case RowFormat::e4m3_row:
    case RowFormat::q5_0:  // the code of the greatest magnitude has no partner of the other sign
    case RowFormat::q5_1:
      return 0.07;
    case RowFormat::e4m3_cut:
    case RowFormat::e5m2:
    case RowFormat::q4_0:
    case RowFormat::q4_1:
    case RowFormat::range4_row:
      return 0.13;
    case RowFormat::e5m2_cut:
      return 0.25;
    case RowFormat::iq4_nl:
    case RowFormat::range3_row:
    case RowFormat::nvfp4:
      return 0.17;
    default:
      return 0.8;  // rotated: what is lost of one number is spread over all
  }
}

TEST_P(KvRoundTest, FiniteNumbersStayFiniteAndNear) {
  Random random(2);
  for (const RowFormatName& row : kRowFormats)
    for (const std::int64_t dim : sizes_of(row.format))
      for (const float size : {1e-3f, 1.0f, 40.0f}) {
        const auto values = random.normals(12 * dim, size);
        const auto got =
            run(row.format, values, dim, row.format == RowFormat::nvfp4 ? size / 8 : 1);
        double most = 0, square = 0, error = 0;
        for (const float x : values) most = std::max(most, std::abs(static_cast<double>(x)));
        for (std::size_t i = 0; i < values.size(); ++i) {
          const double x = values[i], moved = static_cast<double>(got[i]) - x;
          ASSERT_TRUE(std::isfinite(got[i])) << row.word;
          // E4M3's least step is 2^-9; scales of 1e-6 hold for rows below 1e-4.
          EXPECT_LE(std::abs(moved), bound_of(row.format) * most + 0x1p-9)
              << row.word << ", " << dim << ", " << size;
          square += x * x;
          error += moved * moved;
        }
        if (size >= 1) {
          EXPECT_LE(error, 0.06 * square) << row.word << ", " << dim;
        }
      }
}

TEST_P(KvRoundTest, LargeNumbersOfSixteenBitsStayFinite) {
  for (const RowFormatName& row : kRowFormats)
    for (const std::int64_t dim : sizes_of(row.format)) {
      std::vector<float> values(static_cast<std::size_t>(3 * dim));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = i < static_cast<std::size_t>(dim)       ? 4000.0f
                    : i < static_cast<std::size_t>(2 * dim) ? (i % 3 == 0 ? -3000.0f : 2e-8f)
                                                            : -0.0f;
      for (const float x : run(row.format, values, dim)) ASSERT_TRUE(std::isfinite(x)) << row.word;
    }
}

TEST_P(KvRoundTest, WhatWasRoundedStaysAsItIs) {
  constexpr RowFormat kStay[] = {RowFormat::e4m3,     RowFormat::e4m3_cut, RowFormat::e5m2,
                                 RowFormat::e5m2_cut, RowFormat::q8_0,     RowFormat::q4_0,
                                 RowFormat::q5_0};
  Random random(3);
  for (const RowFormat format : kStay)
    for (const std::int64_t dim : {64, 80, 128}) {
      const auto once = run(format, random.normals(10 * dim, 3), dim);
      EXPECT_EQ(run(format, once, dim), once) << word_of(format);
    }
}

TEST_P(KvRoundTest, NumbersPastTheGreatestAreCutToIt) {
  EXPECT_EQ(run(RowFormat::e4m3, {448, 449, 1e9f, -kInf}, 4),
            (std::vector<float>{448, 448, 448, -448}));
  EXPECT_EQ(run(RowFormat::e5m2, {57344, 6e4f, 1e9f, -kInf}, 4),
            (std::vector<float>{57344, 57344, 57344, -57344}));
  // Nearest, ties to even, and toward zero, where the step is 2^-9 as well.
  EXPECT_EQ(run(RowFormat::e4m3, {17, 19, 0x1p-10f, 0x3p-10f}, 4),
            (std::vector<float>{16, 20, 0, 0x1p-8f}));
  EXPECT_EQ(run(RowFormat::e4m3_cut, {17.9f, -19.9f, 0x1p-10f, 0x3p-10f}, 4),
            (std::vector<float>{16, -18, 0, 0x1p-9f}));
}

TEST_P(KvRoundTest, ThreadsChangeNothing) {
  const auto values = Random(4).normals(200 * 64);
  for (const RowFormatName& row : kRowFormats)
    expect_same_for_any_thread_count([&] { return run(row.format, values, 64); });
}

TEST_P(KvRoundTest, NothingToDo) {
  for (const RowFormatName& row : kRowFormats)
    for (const auto& sizes : {std::array<std::int64_t, 3>{0, 4, 64}, {2, 0, 64}, {2, 4, 0}}) {
      const Tensor<3> from({}, sizes, memory());
      EXPECT_TRUE(run(row.format, from.view, exec()).empty());
    }
}

TEST(KvRoundArguments, WhatDoesNotFitIsRefused) {
  float values[1024] = {};
  const auto error = [&](RowFormat format, std::int64_t dim, float scale = 1) {
    return error_of([&] {
      kv_round({format, View<const float, 3>(values, {1, 1, dim}), {values, {1, 1, dim}}, scale});
    });
  };
  EXPECT_EQ(error(RowFormat::lloyd4_row, 64), "");
  EXPECT_EQ(error(RowFormat::lloyd4_row, 80),
            "lloyd4_row: heads have 80 numbers, and it takes a power of two from 16 on");
  EXPECT_EQ(error(RowFormat::nvfp4, 40),
            "nvfp4: heads have 40 numbers, and it takes multiples of 16");
  EXPECT_EQ(error(RowFormat::int4_row, 512),
            "int4_row: heads have 512 numbers, and it takes even numbers that no power of two "
            "beyond 256 divides");
  EXPECT_EQ(error(RowFormat::e4m3, 64, 0), "scale is 0, expected a positive number");
  EXPECT_EQ(
      error_of([&] {
        kv_round({RowFormat::e4m3, View<const float, 3>(values, {1, 2, 16}), {values, {1, 1, 16}}});
      }),
      "to has shape [1, 1, 16], expected [1, 2, 16]");
}

}  // namespace
}  // namespace kvatlas::kernels::kv_round_tests
