// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "calibrate/rules/rules.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::ElementsAre;
using testing::Eq;
using testing::Optional;

TEST(BudgetSummary, MeansRoundedToTheirSum) {
  const BudgetSummary summary = summarise_budgets({{10, 20, 30}, {11, 21, 28}, {12, 20, 28}});
  EXPECT_THAT(summary.budgets, ElementsAre(11, 20, 29));
  EXPECT_DOUBLE_EQ(summary.mean[0], 11);
  EXPECT_DOUBLE_EQ(summary.deviation[0], 1);
  EXPECT_THAT(summary.least, ElementsAre(10, 20, 28));
  EXPECT_THAT(summary.most, ElementsAre(12, 21, 30));
  EXPECT_THROW(summarise_budgets({}), Error);
}

TEST(PyramidBudgets, FallLinearlyToTheSameTotal) {
  const auto budgets = pyramid_budgets(100, 5);
  EXPECT_THAT(budgets, ElementsAre(195, 148, 100, 52, 5));  // 195, 147.5, 100, 52.5, 5
  EXPECT_THAT(pyramid_budgets(1000, 2), ElementsAre(1950, 50));
  EXPECT_THAT(pyramid_budgets(0, 2), ElementsAre(0, 0));
  EXPECT_THROW(pyramid_budgets(-1, 2), Error);
  EXPECT_THROW(pyramid_budgets(1, 0), Error);
  for (const std::int64_t mean : {1, 48, 112, 1008})
    for (const std::int64_t layers : {1, 2, 30, 80}) {
      const auto some = pyramid_budgets(mean, layers);
      EXPECT_EQ(std::accumulate(some.begin(), some.end(), std::int64_t{0}), mean * layers);
      EXPECT_TRUE(std::is_sorted(some.rbegin(), some.rend()));
    }
}

TEST(ShrinkingWindows, HoldAsManyTokensAsTrimmedLayers) {
  // Layers of 100, 100, 20 and 20 tokens are 240: 20 + s (3 - l) for s = 26.67.
  const auto of = [](const std::vector<kernels::Proximity>& windows) {
    std::vector<std::int64_t> sizes;
    for (const auto& window : windows) sizes.push_back(window.initial + window.recent);
    return sizes;
  };
  EXPECT_THAT(of(shrinking_windows(4, 2, 100, {4, 16})), ElementsAre(100, 73, 47, 20));
  // One layer less trimmed: the lowest has no more than all tokens, and the others get the rest.
  EXPECT_THAT(of(shrinking_windows(4, 1, 100, {4, 16})), ElementsAre(100, 100, 100, 20));
  EXPECT_THAT(of(shrinking_windows(4, 0, 100, {4, 16})), ElementsAre(100, 100, 100, 100));
  EXPECT_THAT(of(shrinking_windows(4, 9, 100, {4, 16})), ElementsAre(20, 20, 20, 20));
  EXPECT_THAT(of(shrinking_windows(4, 2, 15, {4, 16})), ElementsAre(15, 15, 15, 15));
  for (const std::int64_t trimmed : {0, 1, 7, 19, 30}) {
    const auto windows = shrinking_windows(30, trimmed, 1024, {4, 256});
    const auto sizes = of(windows);
    EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}),
              (30 - trimmed) * 1024 + trimmed * 260);
    EXPECT_TRUE(std::is_sorted(sizes.rbegin(), sizes.rend()));
    for (const auto& window : windows) EXPECT_EQ(window.initial, 4);
  }
}

TEST(Retention, SharesOfEachSampleCountAlike) {
  const auto shares = retention_shares({{1, 3}, {200, 200}});
  EXPECT_THAT(shares, ElementsAre(0.375, 0.625));
  // A sample of which nothing is retained adds nothing.
  EXPECT_THAT(retention_shares({{1, 0}, {0, 0}}), ElementsAre(0.5, 0));
  EXPECT_TRUE(retention_shares({}).empty());
}

TEST(LagLength, FollowsTheFormula) {
  for (std::int64_t n = 1; n < 1200; n += 13)
    for (const LagShape& shape : {LagShape{16, 128, 32}, LagShape{4, 64, 10}}) {
      const std::int64_t behind = n - shape.sink;
      const std::int64_t expected =
          n < shape.sink + 2 * shape.lag
              ? n
              : shape.sink + shape.keep * (behind / shape.lag - 1) + shape.lag + behind % shape.lag;
      EXPECT_EQ(lag_kept_tokens(n, shape), expected);
      EXPECT_DOUBLE_EQ(lag_compression(n, shape),
                       1 - static_cast<double>(expected) / static_cast<double>(n));
    }
}

TEST(LagLength, OfNoTokensIsNothingCompressed) { EXPECT_EQ(lag_compression(0, {16, 128, 32}), 0); }

TEST(RecommendLag, BestScoreThatCompressesEnough) {
  const std::vector<double> compression = {0.3, 0.5, 0.6, 0.7}, score = {1, 0.8, 0.8, 0.4};
  EXPECT_THAT(recommend_lag(compression, score, 0.2), Optional(Eq(0u)));
  EXPECT_THAT(recommend_lag(compression, score, 0.5), Optional(Eq(2u)));
  EXPECT_THAT(recommend_lag(compression, score, 0.65), Optional(Eq(3u)));
  EXPECT_THAT(recommend_lag(compression, score, 0.7), Optional(Eq(3u)));
  EXPECT_EQ(recommend_lag(compression, score, 0.8), std::nullopt);
  // Of equal scores the greater compression's, of equal ones of these the first.
  const std::vector<double> falling = {0.9, 0.9, 0.8}, same = {1, 1, 1};
  EXPECT_THAT(recommend_lag(falling, same, 0.5), Optional(Eq(0u)));
}

}  // namespace
}  // namespace kvatlas::calibrate
