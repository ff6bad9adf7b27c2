// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_compare.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/error_of.hpp"
#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels::row_compare_tests {
namespace {

using namespace testing_support;

struct Compared {
  std::vector<float> kl, distance;
  std::vector<std::uint8_t> same;
  bool operator==(const Compared&) const = default;
};

class RowCompareTest : public KernelTest {
 protected:
  static Compared run(const AnyView<2>& full, const AnyView<2>& other, const Exec& how,
                      Layout layout = Layout::dense) {
    const std::array<std::int64_t, 1> rows = {full.sizes[0]};
    const Output<float, 1> kl(rows, full.memory, layout), distance(rows, full.memory, layout);
    const Output<std::uint8_t, 1> same(rows, full.memory, layout);
    row_compare({full, other, kl.view, distance.view, same.view}, how);
    return {kl.values(), distance.values(), same.values()};
  }
  /// One pair of rows through the body under test.
  Compared rows(const std::vector<float>& full, const std::vector<float>& other) {
    const auto size = static_cast<std::int64_t>(full.size());
    const Tensor<2> a(full, {1, size}, memory()), b(other, {1, size}, memory());
    return run(a.view, b.view, exec());
  }
};

void expect_near(const std::vector<float>& got, const std::vector<float>& want, const char* what) {
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 2e-6 + 1e-5 * static_cast<double>(want[i]))
        << what << " of row " << i;
}

TEST_P(RowCompareTest, MatchesTheReference) {
  Random random(3);
  for (const std::int64_t vocab : {1, 2, 15, 16, 17, 511, 512, 513, 4000}) {
    for (const float difference : {0.001f, 1.0f, 10.0f}) {
      for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
        for (const Layout layout : {Layout::dense, Layout::swapped, Layout::strided}) {
          SCOPED_TRACE(testing::PrintToString(vocab) + " tokens, " + dtype_name(type));
          auto full = random.normals(3 * vocab, 4), other = full;
          for (auto& value : other) value += difference * random.normal();
          const Tensor<2> a(full, {3, vocab}, memory(), type, layout);
          const Tensor<2> b(other, {3, vocab}, memory(), type, layout);
          const Compared got = run(a.view, b.view, exec(), layout);
          const Compared want = run(a.host, b.host, kReference);
          expect_near(got.kl, want.kl, "KL");
          expect_near(got.distance, want.distance, "total variation");
          EXPECT_EQ(got.same, want.same);
        }
      }
    }
  }
}

TEST_P(RowCompareTest, EqualRowsDoNotDifferAndDisjointOnesDifferByAll) {
  const auto row = Random(4).normals(777, 5);
  const Compared equal = rows(row, row);
  EXPECT_EQ(equal.kl[0], 0);
  EXPECT_EQ(equal.distance[0], 0);
  EXPECT_EQ(equal.same[0], 1);
  std::vector<float> shifted = row;  // a softmax does not see a shift
  for (auto& value : shifted) value += 8;
  EXPECT_NEAR(rows(row, shifted).kl[0], 0, 2e-6);
  const Compared apart = rows({0, 60}, {60, 0});
  EXPECT_NEAR(apart.kl[0], 60, 1e-3);
  EXPECT_NEAR(apart.distance[0], 1, 2e-6);
  EXPECT_EQ(apart.same[0], 0);
}

TEST_P(RowCompareTest, RoundingMakesNoDivergenceNegative) {
  Random random(5);
  for (int round = 0; round < 100; ++round) {
    auto row = random.normals(30), near = row;
    for (auto& value : near) value = std::nextafter(value, random.integer(0, 1) ? 9.0f : -9.0f);
    const float divergence = rows(row, near).kl[0];
    EXPECT_GE(divergence, 0);
    EXPECT_LE(divergence, 2e-6f);
  }
}

TEST_P(RowCompareTest, KnownValueAndTies) {
  // P = (1/2, 1/2), Q = (1/4, 3/4)
  const Compared got = rows({1, 1}, {0, std::log(3.0f)});
  EXPECT_NEAR(got.kl[0], 0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3.0), 1e-6);
  EXPECT_NEAR(got.distance[0], 0.25, 1e-6);
  EXPECT_EQ(got.same[0], 0);  // the first of equals is token 0
  EXPECT_EQ(rows({1, 1, 0}, {2, 1, 2}).same[0], 1);
}

TEST_P(RowCompareTest, MaskedTokensCountAsZero) {
  const Compared both = rows({1, 2, -kInf}, {1, 2, -kInf});
  EXPECT_EQ(both.kl[0], 0);
  EXPECT_EQ(both.distance[0], 0);
  const Compared only_other = rows({1, 2, 3}, {1, 2, -kInf});
  EXPECT_EQ(only_other.kl[0], kInf);
  EXPECT_NEAR(only_other.distance[0],
              std::exp(3.0) / (std::exp(1.0) + std::exp(2.0) + std::exp(3.0)), 2e-6);
  const Compared only_full = rows({1, 2, -kInf}, {1, 2, 3});
  EXPECT_NEAR(
      only_full.kl[0],
      std::log((std::exp(1.0) + std::exp(2.0) + std::exp(3.0)) / (std::exp(1.0) + std::exp(2.0))),
      2e-6);
}

TEST_P(RowCompareTest, RowsWithoutDistributionAreNaN) {
  std::vector<float> good(100, 1.0f);
  for (const float bad : {std::nanf(""), kInf}) {
    for (const std::size_t where : {0, 50, 99}) {
      auto spoilt = good;
      spoilt[where] = bad;
      for (const Compared& got : {rows(good, spoilt), rows(spoilt, good), rows(spoilt, spoilt)}) {
        EXPECT_TRUE(std::isnan(got.kl[0]));
        EXPECT_TRUE(std::isnan(got.distance[0]));
        EXPECT_EQ(got.same[0], 0);
      }
    }
  }
  const std::vector<float> nothing(100, -kInf);
  EXPECT_TRUE(std::isnan(rows(nothing, good).kl[0]));
  EXPECT_TRUE(std::isnan(rows(good, nothing).distance[0]));
  const Tensor<2> no_tokens({}, {2, 0}, memory());
  const Compared got = run(no_tokens.view, no_tokens.view, exec());
  EXPECT_TRUE(std::isnan(got.kl[1]) && std::isnan(got.distance[1]) && got.same[1] == 0);
  const Tensor<2> no_rows({}, {0, 5}, memory());
  run(no_rows.view, no_rows.view, exec());
}

TEST_P(RowCompareTest, HugeAndDenormalLogits) {
  EXPECT_NEAR(rows({3e38f, 0, -3e38f}, {3e38f, 0, 0}).kl[0], 0, 1e-6);
  EXPECT_NEAR(rows({1e-42f, 0}, {0, 1e-42f}).kl[0], 0, 1e-6);
  EXPECT_NEAR(rows({1000, 999}, {-1000, -1001}).kl[0], 0, 1e-6);
}

TEST_P(RowCompareTest, ThreadsDoNotChangeABit) {
  Random random(11);
  const Tensor<2> a(random.normals(7 * 1000, 3), {7, 1000}, memory());
  const Tensor<2> b(random.normals(7 * 1000, 3), {7, 1000}, memory());
  expect_same_for_any_thread_count([&] { return run(a.view, b.view, exec()); });
}

TEST(RowCompareArguments, ShapesThatDoNotFitAreNamed) {
  float data[12] = {};
  const View<const float, 2> a(data, {2, 3}), b(data, {3, 2});
  EXPECT_EQ(error_of([&] {
              row_compare({a, b, {}, {}, {}});
            }),
            "other has shape [3, 2], expected [2, 3]");
  EXPECT_EQ(error_of([&] {
              row_compare({a, a, {data, {3}}, {}, {}});
            }),
            "kl has shape [3], expected [2]");
  EXPECT_EQ(error_of([&] { row_compare({a, a, {}, {}, {}}); }), "");
}

KVATLAS_EVERY_BODY(RowCompareTest);

}  // namespace
}  // namespace kvatlas::kernels::row_compare_tests
