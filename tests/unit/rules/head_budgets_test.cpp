// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibrate/rules/rules.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::ElementsAre;

std::int64_t sum_of(const std::vector<std::vector<std::int64_t>>& budgets) {
  std::int64_t sum = 0;
  for (const auto& row : budgets) sum = std::accumulate(row.begin(), row.end(), sum);
  return sum;
}

TEST(BudgetsByScore, ShareWhatIsLeftOfTheLeast) {
  // 4 heads of 20 tokens; 5 each are given, and 60 are shared as 3 : 1 : 0 : 2.
  EXPECT_THAT(budgets_by_score({{0.6, 0.2}, {0, 0.4}}, {20, 5, 1000}),
              ElementsAre(ElementsAre(35, 15), ElementsAre(5, 25)));
  // Nothing is known of the heads.
  EXPECT_THAT(budgets_by_score({{0, 0}}, {20, 5, 1000}), ElementsAre(ElementsAre(20, 20)));
}

TEST(BudgetsByScore, WhatAHeadCannotUseGoesToOthers) {
  // The first head is full at 30: 5 and 25 more. The other 35 are shared as 1 : 0 : 2.
  EXPECT_THAT(budgets_by_score({{0.6, 0.1}, {0, 0.2}}, {20, 5, 30}),
              ElementsAre(ElementsAre(30, 17), ElementsAre(5, 28)));
  EXPECT_THAT(budgets_by_score({{1, 0}}, {20, 0, 30}), ElementsAre(ElementsAre(30, 10)));
  // All are full.
  EXPECT_THAT(budgets_by_score({{0.9, 0.1}}, {20, 25, 15}), ElementsAre(ElementsAre(15, 15)));
}

TEST(BudgetsByScore, KeepTheSum) {
  testing_support::Random random(3);
  for (int repeat = 0; repeat < 300; ++repeat) {
    Masses scores(static_cast<std::size_t>(random.integer(1, 9)),
                  std::vector<double>(static_cast<std::size_t>(random.integer(1, 4))));
    for (auto& row : scores)
      for (double& score : row) score = random.integer(0, 3) == 0 ? 0 : random.uniform();
    const SharedTokens tokens{random.integer(0, 100), random.integer(0, 60),
                              random.integer(1, 150)};
    const auto budgets = budgets_by_score(scores, tokens);
    const auto heads = std::ssize(scores) * std::ssize(scores.front());
    EXPECT_EQ(sum_of(budgets), heads * std::min(tokens.mean, tokens.most));
    for (const auto& row : budgets)
      for (const auto budget : row) {
        EXPECT_GE(budget, std::min({tokens.least, tokens.mean, tokens.most}));
        EXPECT_LE(budget, tokens.most);
      }
  }
}

TEST(BudgetsByGain, GoWhereMostAttentionIsKept) {
  // Head 0 keeps 0.1 a token of its first 8 and nothing after; head 1 0.05 of 16.
  const KeptCurve local{{8, 16}, {0.8, 0.8}}, far{{8, 16}, {0.4, 0.8}};
  EXPECT_THAT(budgets_by_gain({{local, far}}, {8, 0, 100}), ElementsAre(ElementsAre(8, 8)));
  EXPECT_THAT(budgets_by_gain({{local, far}}, {4, 0, 100}), ElementsAre(ElementsAre(8, 0)));
  EXPECT_THAT(budgets_by_gain({{local, far}}, {12, 0, 100}), ElementsAre(ElementsAre(8, 16)));
  EXPECT_THAT(budgets_by_gain({{local, far}}, {12, 9, 100}), ElementsAre(ElementsAre(9, 15)));
  EXPECT_THAT(budgets_by_gain({{local, far}}, {12, 0, 10}), ElementsAre(ElementsAre(10, 10)));
  // Of equal gains the lower layer's.
  EXPECT_THAT(budgets_by_gain({{far}, {far}}, {8, 0, 100}),
              ElementsAre(ElementsAre(16), ElementsAre(0)));
}

TEST(BudgetsByGain, ADentIsBridged) {
  // 8 tokens keep little, 16 keep much: a token of the 16 keeps 0.05, more than the other's 0.04.
  const KeptCurve late{{8, 16}, {0.1, 0.8}}, even{{8, 16}, {0.32, 0.64}};
  EXPECT_THAT(budgets_by_gain({{late, even}}, {8, 0, 100}), ElementsAre(ElementsAre(16, 0)));
}

/// The most attention that so many steps of 8 tokens can keep, of all ways to give them.
double best_of_all(const std::vector<KeptCurve>& curves, std::size_t head, std::int64_t steps) {
  if (head == curves.size()) return steps == 0 ? 0 : -1e300;
  double best = -1e300;
  for (std::int64_t mine = 0; mine <= std::min<std::int64_t>(steps, 4); ++mine)
    best = std::max(best, curves[head].at(8 * mine) + best_of_all(curves, head + 1, steps - mine));
  return best;
}

TEST(BudgetsByGain, OfConcaveCurvesNoOtherBudgetsKeepMore) {
  testing_support::Random random(5);
  for (int repeat = 0; repeat < 200; ++repeat) {
    std::vector<KeptCurve> curves(4);
    for (auto& curve : curves) {
      std::vector<double> gains(4);
      for (double& gain : gains) gain = random.uniform() / 4;
      std::sort(gains.rbegin(), gains.rend());
      double kept = 0;
      for (int i = 0; i < 4; ++i) {
        curve.tokens.push_back(8 * (i + 1));
        curve.kept.push_back(kept += gains[static_cast<std::size_t>(i)]);
      }
    }
    for (const std::int64_t mean : {8, 16, 24}) {
      const auto budgets = budgets_by_gain({curves}, {mean, 0, 1000});
      EXPECT_EQ(sum_of(budgets), 4 * mean);
      double kept = 0;
      for (std::size_t head = 0; head < curves.size(); ++head)
        kept += curves[head].at(budgets[0][head]);
      EXPECT_NEAR(kept, best_of_all(curves, 0, 4 * mean / 8), 1e-9);
    }
  }
}

TEST(KeptCurve, BetweenWhatIsKnown) {
  const KeptCurve curve{{10, 30}, {0.5, 0.7}};
  EXPECT_DOUBLE_EQ(curve.at(0), 0);
  EXPECT_DOUBLE_EQ(curve.at(5), 0.25);
  EXPECT_DOUBLE_EQ(curve.at(20), 0.6);
  EXPECT_DOUBLE_EQ(curve.at(99), 0.7);
}

}  // namespace
}  // namespace kvatlas::calibrate
