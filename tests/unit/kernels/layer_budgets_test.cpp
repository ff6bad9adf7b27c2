// SPDX-License-Identifier: Apache-2.0
#include "kernels/layer_budgets.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/top_counts.hpp"
#include "tests/support/dynamickv_paper.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::kernels::layer_budgets_tests {
namespace {

using testing::ElementsAre;

std::int64_t sum(const std::vector<std::int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0});
}

using Integers = std::vector<std::int64_t>;

/// Window scores of random layers, some of which score higher than others: [layer][score].
std::vector<std::vector<float>> random_scores(testing_support::Random& random, std::int64_t layers,
                                              std::int64_t of_layer) {
  std::vector<std::vector<float>> scores;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const auto height = static_cast<float>(random.integer(1, 40));
    auto& row = scores.emplace_back();
    for (std::int64_t i = 0; i < of_layer; ++i)
      row.push_back(height * static_cast<float>(random.integer(1, 1000)));
  }
  return scores;
}

TEST(LayerBudgets, FollowsTheDefinitionByHand) {
  // Two heads, three layers, base 4: 24 scores, of which 13, 7 and 4 lie in the layers.
  const Integers counts = {13, 7, 4};
  const auto budgets = layer_budgets(counts, 4, 100);
  EXPECT_THAT(budgets.raw, ElementsAre(40, 21, 12));  // 40 * C / 13
  EXPECT_THAT(budgets.scaled, ElementsAre(6, 3, 1));  // raw * 12 / 73
  EXPECT_THAT(budgets.exact, ElementsAre(7, 3, 2));   // 6, 3, 2 and one left: the lower of 1, 1
}

TEST(LayerBudgets, WhatTheCapCutsOffIsLostByThePaperAndGoesToOtherLayersInTheExactOnes) {
  // The cap is int(4 * 1.25) = 5 tokens.
  const Integers counts = {13, 7, 4};
  const auto budgets = layer_budgets(counts, 4, 100, 1.25);
  EXPECT_THAT(budgets.raw, ElementsAre(5, 2, 1));     // 5 * C / 13
  EXPECT_THAT(budgets.scaled, ElementsAre(5, 3, 1));  // raw * 12 / 8 is 7, 3, 1
  EXPECT_THAT(budgets.exact, ElementsAre(5, 4, 3));   // the other 7 as 7 to 4: 4.45 and 2.55
  // Two layers in turn: 5 of 12, then 5 of 7 for 11 of 12, and the last takes what is left.
  EXPECT_THAT(layer_budgets(Integers{12, 11, 1}, 4, 100, 1.25).exact, ElementsAre(5, 5, 2));
  // Layers without a score share alike what the only one that has them cannot take.
  EXPECT_THAT(layer_budgets(Integers{24, 0, 0}, 4, 100, 1.25).exact, ElementsAre(5, 4, 3));
  // The prompt is the cap where it is shorter.
  EXPECT_THAT(layer_budgets(Integers{12, 8, 4}, 4, 6).exact, ElementsAre(6, 4, 2));
  EXPECT_THAT(layer_budgets(Integers{13, 7, 4}, 4, 100, 1).exact, ElementsAre(4, 4, 4));
}

TEST(LayerBudgets, OfNothingAreNothingAndOneCountIsEnoughForAll) {
  for (const LayerBudgets& none : {layer_budgets({{0, 0}}, 0, 5), layer_budgets({{0, 0}}, 3, 0)}) {
    EXPECT_THAT(none.raw, ElementsAre(0, 0));
    EXPECT_THAT(none.scaled, ElementsAre(0, 0));
    EXPECT_THAT(none.exact, ElementsAre(0, 0));
  }
  // bs = 1, raw = (1, 0), scaled = 1 * 2 // 1, cut to bs; the other layer gets what is left.
  const LayerBudgets one = layer_budgets({{1, 0}}, 1, 9, 1);
  EXPECT_THAT(one.raw, ElementsAre(1, 0));
  EXPECT_THAT(one.scaled, ElementsAre(1, 0));
  EXPECT_THAT(one.exact, ElementsAre(1, 1));
}

TEST(LayerBudgets, GivesAllPositionsWhereTheBudgetCoversThem) {
  const Integers counts = {10, 10};
  EXPECT_THAT(layer_budgets(counts, 9, 5).exact, ElementsAre(5, 5));
  EXPECT_THAT(layer_budgets(counts, 9, 5).raw, ElementsAre(5, 5));
  EXPECT_THAT(layer_budgets(counts, 9, 5).scaled, ElementsAre(5, 5));  // of 9 and 9
}

TEST(LayerBudgets, KeepTheTotalAndTheCapAsAPlainReferenceHasThem) {
  testing_support::Random random(7);
  int capped = 0;
  for (int round = 0; round < 400; ++round) {
    const std::int64_t layers = random.integer(1, 9), heads = random.integer(1, 4);
    const std::int64_t positions = random.integer(2, 40), base = random.integer(1, positions - 1);
    const double r_max = 1 + 0.25 * static_cast<double>(random.integer(0, 12));
    const testing_support::DynamicKvInput in{
        random_scores(random, layers, heads * positions), heads, positions, base, r_max, 0};
    const Integers counts = paper_counts(in, layers);
    const auto budgets = layer_budgets(counts, base, positions, r_max);
    const std::int64_t cap = in.bs();
    SCOPED_TRACE(testing::Message() << "round " << round << ", cap " << cap);
    EXPECT_EQ(sum(budgets.exact), base * layers);
    EXPECT_EQ(budgets.exact, testing_support::plain_exact(in, counts));
    for (const auto* of : {&budgets.raw, &budgets.scaled, &budgets.exact})
      EXPECT_THAT(*of, testing::Each(testing::Le(cap)));
    const auto most = *std::max_element(counts.begin(), counts.end());
    capped += most > cap * heads ? 1 : 0;
    // Without a cap of its own it is the counts by heads, to a token.
    if (most <= cap * heads)
      for (std::size_t layer = 0; layer < counts.size(); ++layer) {
        EXPECT_GE(budgets.exact[layer], counts[layer] / heads);
        EXPECT_LE(budgets.exact[layer], counts[layer] / heads + 1);
      }
  }
  EXPECT_GT(capped, 50);
  EXPECT_LT(capped, 350);
}

TEST(LayerBudgets, ProgressiveUpdatesByHand) {
  // Base 2, one head, 100 positions. The scores' order is 0 0 0 1 2 2 2 2 3 3 by layer.
  const CountsOfLowest counts_of = [](std::int64_t layers) -> Integers {
    if (layers == 1) return {2};
    if (layers == 2) return {3, 1};
    if (layers == 3) return {3, 1, 2};
    return {3, 1, 4, 0};
  };
  EXPECT_THAT(progressive_budgets(counts_of, 4, 0, 2, 100).exact, ElementsAre(3, 1, 4, 0));
  EXPECT_THAT(progressive_budgets(counts_of, 4, 4, 2, 100).exact, ElementsAre(3, 1, 4, 0));
  // The first three layers share all eight tokens as 3 to 1 to 2: 4, 1 and 3.
  EXPECT_THAT(progressive_budgets(counts_of, 4, 3, 2, 100).exact, ElementsAre(3, 1, 3, 0));
  // The first two share them as 3 to 1: 6 and 2.
  EXPECT_THAT(progressive_budgets(counts_of, 4, 2, 2, 100).exact, ElementsAre(3, 1, 4, 0));
  EXPECT_THAT(progressive_budgets(counts_of, 4, 1, 2, 100).exact, ElementsAre(3, 1, 3, 0));
}

TEST(LayerBudgets, ProgressiveUpdatesAreThoseOfThePapersAlgorithm) {
  testing_support::Random random(11);
  int less = 0, generous = 0;
  for (int round = 0; round < 400; ++round) {
    const std::int64_t layers = random.integer(1, 12), heads = random.integer(1, 3);
    const std::int64_t positions = random.integer(2, 30), base = random.integer(1, positions + 2);
    const double r_max = 1 + 0.5 * static_cast<double>(random.integer(0, 18));
    testing_support::DynamicKvInput in{
        random_scores(random, layers, heads * positions), heads, positions, base, r_max, 0};
    std::vector<float> all;
    for (const auto& of_layer : in.scores) all.insert(all.end(), of_layer.begin(), of_layer.end());
    const CountsOfLowest counts_of = [&](std::int64_t lowest) {
      Integers counts(static_cast<std::size_t>(lowest));
      top_counts({View<const float, 3>(all.data(), {lowest, heads, positions}),
                  {std::min(base, positions) * heads * lowest},
                  {counts.data(), {1, lowest}}});
      return counts;
    };
    const auto once = layer_budgets(counts_of(layers), base, positions, r_max);
    for (in.update = 0; in.update <= layers + 1; ++in.update) {
      SCOPED_TRACE(testing::Message() << "round " << round << ", update " << in.update);
      const auto found = progressive_budgets(counts_of, layers, in.update, base, positions, r_max);
      EXPECT_EQ(found.scaled, paper_lengths(in));
      EXPECT_EQ(found.exact, paper_lengths(in, [&](const Integers& counts) {
                  return testing_support::plain_exact(in, counts);
                }));
      if (in.update == 0 || in.update >= layers) {
        EXPECT_EQ(found.raw, once.raw);
        EXPECT_EQ(found.scaled, once.scaled);
        EXPECT_EQ(found.exact, once.exact);
        continue;
      }
      less += sum(found.exact) < sum(once.exact) ? 1 : 0;
      // The layers so far may hold more than their share of all layers' tokens.
      const std::int64_t early = in.update;
      generous += std::accumulate(found.exact.begin(), found.exact.begin() + early,
                                  std::int64_t{0}) > base * early
                      ? 1
                      : 0;
      // Half as many updates drop no more.
      const auto rarer =
          progressive_budgets(counts_of, layers, 2 * in.update, base, positions, r_max);
      for (std::int64_t layer = 0; layer < layers; ++layer)
        EXPECT_LE(found.exact[layer], rarer.exact[layer]);
    }
  }
  EXPECT_GT(less, 100);
  EXPECT_GT(generous, 100);
}

TEST(LayerBudgets, RefusesWhatMakesNoSense) {
  EXPECT_THAT(testing_support::error_of([] { layer_budgets({}, 1, 1); }),
              testing::HasSubstr("layers"));
  const Integers counts = {std::int64_t{1} << 50, 0};
  EXPECT_THAT(testing_support::error_of([&] { layer_budgets(counts, 1 << 24, 1 << 30); }),
              testing::HasSubstr("too many"));
  EXPECT_THAT(testing_support::error_of([&] { layer_budgets(counts, 1, 1 << 30); }),
              testing::HasSubstr("too many"));
  EXPECT_THAT(testing_support::error_of([&] { layer_budgets(counts, 1 << 24, 1); }),
              testing::HasSubstr("too many"));
  for (const auto& numbers : {std::pair{-1, 1}, {1, -1}})
    EXPECT_THAT(
        testing_support::error_of([&] { layer_budgets(counts, numbers.first, numbers.second); }),
        testing::HasSubstr("need layers, a budget"));
  EXPECT_THAT(testing_support::error_of([] {
                progressive_budgets([](std::int64_t) { return Integers{1}; }, 1, -1, 1, 1);
              }),
              testing::HasSubstr("-1 layers"));
}

}  // namespace
}  // namespace kvatlas::kernels::layer_budgets_tests
