// SPDX-License-Identifier: Apache-2.0
#include "kernels/layer_budgets.hpp"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::kernels {
namespace {

using testing::ElementsAre;

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

TEST(LayerBudgets, FollowsTheDefinitionByHand) {
  // Two heads, three layers, base 4: 24 scores, of which 13, 7 and 4 lie in the layers.
  const std::vector<std::int64_t> counts = {13, 7, 4};
  const auto budgets = layer_budgets(counts, 2, 4, 100);
  EXPECT_THAT(budgets.raw, ElementsAre(40, 21, 12));  // 40 * C / 13
  EXPECT_THAT(budgets.scaled, ElementsAre(6, 3, 1));  // raw * 12 / 73
  EXPECT_THAT(budgets.exact, ElementsAre(7, 3, 2));   // 6, 3, 2 and one left: the lower of 1, 1
}

TEST(LayerBudgets, GivesAllPositionsWhereTheBudgetCoversThem) {
  const std::vector<std::int64_t> counts = {10, 10};
  EXPECT_THAT(layer_budgets(counts, 2, 9, 5).exact, ElementsAre(5, 5));
  EXPECT_THAT(layer_budgets(counts, 2, 9, 5).raw, ElementsAre(5, 5));
}

TEST(LayerBudgets, ExactSumsToTheTotalAndStaysWithinThePositions) {
  testing_support::Random random(7);
  for (int round = 0; round < 200; ++round) {
    const std::int64_t layers = random.integer(1, 12), heads = random.integer(1, 8);
    const std::int64_t positions = random.integer(2, 50), base = random.integer(1, positions - 1);
    // Each of the base * heads * layers largest goes to a layer that still has room.
    std::vector<std::int64_t> counts(static_cast<std::size_t>(layers), 0);
    for (std::int64_t left = base * heads * layers; left > 0;) {
      auto& count = counts[random.integer(0, layers - 1)];
      if (count < positions * heads) ++count, --left;
    }
    const auto exact = layer_budgets(counts, heads, base, positions).exact;
    EXPECT_EQ(sum(exact), base * layers);
    for (const auto budget : exact) EXPECT_LE(budget, positions);
  }
}

TEST(LayerBudgets, RefusesWhatMakesNoSense) {
  EXPECT_THAT(testing_support::error_of([] { layer_budgets({}, 1, 1, 1); }),
              testing::HasSubstr("layers"));
}

}  // namespace
}  // namespace kvatlas::kernels
