// SPDX-License-Identifier: Apache-2.0
#include "kernels/minicache_merge.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/error_of.hpp"
#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels::minicache_merge_tests {
namespace {

using namespace testing_support;

struct Merged {
  std::vector<float> lower, upper;
  bool operator==(const Merged&) const = default;
};

double norm(const float* x, std::int64_t dim) {
  double sum = 0;
  for (std::int64_t c = 0; c < dim; ++c)
    sum += static_cast<double>(x[c]) * static_cast<double>(x[c]);
  return std::sqrt(sum);
}

class MinicacheMergeTest : public KernelTest {
 protected:
  static Merged run(const AnyView<3>& lower, const AnyView<3>& upper, double t, const Exec& how,
                    Layout layout = Layout::dense) {
    const Output<float, 3> out_lower(lower.sizes, lower.memory, layout),
        out_upper(lower.sizes, lower.memory, layout);
    minicache_merge({lower, upper, t, out_lower.view, out_upper.view}, how);
    return {out_lower.values(), out_upper.values()};
  }
  /// One token.
  Merged run(const std::vector<float>& lower, const std::vector<float>& upper, double t = 0.6) {
    const auto dim = static_cast<std::int64_t>(lower.size());
    const Tensor<3> a(lower, {1, 1, dim}, memory()), b(upper, {1, 1, dim}, memory());
    return run(a.view, b.view, t, exec());
  }
};

TEST_P(MinicacheMergeTest, MatchesTheReference) {
  Random random(1);
  for (const std::int64_t dim : {1, 2, 7, 64, 80, 128}) {
    for (const double t : {0.0, 0.25, 0.6, 1.0}) {
      for (const Layout layout : {Layout::dense, Layout::swapped, Layout::strided}) {
        const DType type = layout == Layout::dense     ? DType::f32
                           : layout == Layout::swapped ? DType::f16
                                                       : DType::bf16;
        const std::int64_t heads = 3, tokens = 70;
        const auto lower = random.normals(heads * tokens * dim, 2);
        auto upper = random.normals(heads * tokens * dim);
        // Similar, equal and opposite tokens, as adjacent layers have them.
        for (std::size_t i = 0; i < upper.size(); ++i) {
          const auto token = static_cast<std::int64_t>(i) / dim % 7;
          if (token == 1) upper[i] = lower[i] + 0.1f * upper[i];
          if (token == 2) upper[i] = lower[i];
          if (token == 3) upper[i] = -4 * lower[i];
          if (token == 4) upper[i] = 0;
        }
        const Tensor<3> a(lower, {heads, tokens, dim}, memory(), type, layout);
        const Tensor<3> b(upper, {heads, tokens, dim}, memory(), type, layout);
        const Merged got = run(a.view, b.view, t, exec(), layout);
        const Merged want = run(a.host, b.host, t, kReference);
        for (std::int64_t i = 0; i < heads * tokens; ++i) {
          const double most = 1e-6 * norm(want.lower.data() + i * dim, dim);
          for (std::int64_t c = i * dim; c < (i + 1) * dim; ++c) {
            ASSERT_NEAR(got.lower[c], want.lower[c], most) << "token " << i;
            ASSERT_NEAR(got.upper[c], want.upper[c], 1e-6 * norm(want.upper.data() + i * dim, dim))
                << "token " << i;
          }
        }
      }
    }
  }
}

TEST_P(MinicacheMergeTest, KeepsBothNormsAndTurnsByTheShareOfTheAngle) {
  // A quarter turn, lower of norm 2 along x, upper of norm 3 along y.
  const Merged got = run({2, 0}, {0, 3}, 0.6);
  const double angle = 0.6 * std::acos(0.0);
  EXPECT_NEAR(got.lower[0], 2 * std::cos(angle), 1e-6);
  EXPECT_NEAR(got.lower[1], 2 * std::sin(angle), 1e-6);
  EXPECT_NEAR(got.upper[0], 3 * std::cos(angle), 1e-6);
  EXPECT_NEAR(got.upper[1], 3 * std::sin(angle), 1e-6);
  Random random(2);
  for (int i = 0; i < 20; ++i) {
    const auto a = random.normals(64), b = random.normals(64, 5);
    const Merged merged = run(a, b);
    EXPECT_NEAR(norm(merged.lower.data(), 64), norm(a.data(), 64), 1e-5);
    EXPECT_NEAR(norm(merged.upper.data(), 64), norm(b.data(), 64), 1e-4);
  }
}

TEST_P(MinicacheMergeTest, EqualOppositeAndZeroVectors) {
  const std::vector<float> a = {3, 4}, minus = {-6, -8}, zero = {0, 0};
  EXPECT_NEAR(run(a, a).lower[1], 4, 1e-6);
  EXPECT_NEAR(run(a, minus, 0.6).lower[1], -4, 1e-6);
  EXPECT_NEAR(run(a, minus, 0.4).upper[1], 8, 1e-6);
  EXPECT_NEAR(run(a, minus, 0.5).lower[1], -4, 1e-6);
  EXPECT_EQ(run(a, zero), (Merged{a, zero}));
  EXPECT_EQ(run(zero, a), (Merged{zero, a}));
  EXPECT_EQ(run(zero, zero), (Merged{zero, zero}));
}

TEST_P(MinicacheMergeTest, TinyHugeAndNonFiniteVectors) {
  for (const float size : {1e-44f, 1e-30f, 1e30f, 2e38f}) {
    const Merged got = run({size, 0}, {0, size}, 0.5);
    for (const float value : {got.lower[0], got.lower[1], got.upper[0], got.upper[1]})
      EXPECT_NEAR(static_cast<double>(value) / static_cast<double>(size), std::sqrt(0.5),
                  size < 1e-40f ? 0.1 : 1e-6);
  }
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (const Merged& got : {run({1, bad}, {1, 2}), run({1, 2}, {bad, 1}), run({0, 0}, {bad, 1})})
      for (const float value : {got.lower[0], got.lower[1], got.upper[0], got.upper[1]})
        EXPECT_TRUE(std::isnan(value));
  }
}

TEST_P(MinicacheMergeTest, InPlaceAndThreadsAndNothing) {
  Random random(3);
  const std::array<std::int64_t, 3> sizes = {2, 150, 33};
  const auto lower = random.normals(2 * 150 * 33), upper = random.normals(2 * 150 * 33);
  const Tensor<3> a(lower, sizes, memory()), b(upper, sizes, memory());
  const Merged want = run(a.view, b.view, 0.6, exec());
  expect_same_for_any_thread_count([&] { return run(a.view, b.view, 0.6, exec()); });
  const Guarded<float> x(lower, memory()), y(upper, memory());
  const View<float, 3> first(x.data(), sizes, memory()), second(y.data(), sizes, memory());
  minicache_merge({first, second, 0.6, first, second}, exec());
  EXPECT_EQ(x.values(), want.lower);
  EXPECT_EQ(y.values(), want.upper);
  const Tensor<3> none({}, {2, 0, 4}, memory());
  run(none.view, none.view, 0.6, exec());
}

TEST(MinicacheMergeArguments, WhatDoesNotFitIsRefused) {
  float data[16] = {};
  const View<float, 3> a(data, {1, 2, 4}), b(data, {1, 4, 2});
  EXPECT_EQ(error_of([&] { minicache_merge({a, a, 0.6, a, a}); }), "");
  EXPECT_EQ(error_of([&] {
              minicache_merge({a, b, 0.6, a, a});
            }),
            "upper has shape [1, 4, 2], expected [1, 2, 4]");
  EXPECT_EQ(error_of([&] {
              minicache_merge({a, a, 0.6, a, b});
            }),
            "an output has shape [1, 4, 2], expected [1, 2, 4]");
  EXPECT_EQ(error_of([&] { minicache_merge({a, a, 1.5, a, a}); }), "t is 1.5, expected 0 to 1");
  EXPECT_EQ(error_of([&] {
              minicache_merge({a, a, std::nan(""), a, a});
            }),
            "t is nan, expected 0 to 1");
}

KVATLAS_EVERY_BODY(MinicacheMergeTest);

}  // namespace
}  // namespace kvatlas::kernels::minicache_merge_tests
