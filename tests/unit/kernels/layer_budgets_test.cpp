// SPDX-License-Identifier: Apache-2.0
#include "kernels/layer_budgets.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

/// How many of the k largest lie in each of the lowest layers, by sorting all of them.
Integers plain_counts(const std::vector<std::vector<float>>& scores, std::int64_t layers,
                      std::int64_t k) {
  std::vector<std::pair<float, std::int64_t>> all;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    for (const float score : scores[layer]) all.emplace_back(-score, layer);
  std::stable_sort(all.begin(), all.end());
  Integers counts(static_cast<std::size_t>(layers), 0);
  for (std::int64_t i = 0; i < k; ++i) ++counts[all[i].second];
  return counts;
}

/// `exact` told another way: the layers with the largest counts are at the cap, and the fewest of
/// them that leave the others, in proportion to their counts, within it.
Integers plain_exact(const Integers& counts, std::int64_t base, std::int64_t cap) {
  std::vector<std::size_t> order(counts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return counts[a] > counts[b]; });
  Integers exact(counts.size(), cap);
  for (std::size_t at_cap = 0; at_cap < order.size(); ++at_cap) {
    const double left = static_cast<double>(base * std::ssize(counts)) -
                        static_cast<double>(cap) * static_cast<double>(at_cap);
    double weights = 0;
    for (std::size_t i = at_cap; i < order.size(); ++i)
      weights += static_cast<double>(counts[order[i]]);
    const auto share = [&](std::size_t layer) {
      return weights > 0 ? left * static_cast<double>(counts[layer]) / weights
                         : left / static_cast<double>(order.size() - at_cap);
    };
    if (share(order[at_cap]) > static_cast<double>(cap) + 1e-9) continue;
    std::vector<std::pair<double, std::size_t>> remainders;
    double given = 0;
    for (std::size_t i = at_cap; i < order.size(); ++i) {
      const double whole = std::floor(share(order[i]) + 1e-9);
      exact[order[i]] = static_cast<std::int64_t>(whole);
      given += whole;
      // Nine digits tell any two remainders of these small numbers apart, and no equal ones.
      remainders.emplace_back(-std::round((share(order[i]) - whole) * 1e9), order[i]);
    }
    std::sort(remainders.begin(), remainders.end());
    for (std::size_t i = 0; static_cast<double>(i) < left - given; ++i)
      ++exact[remainders[i].second];
    break;
  }
  return exact;
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
    const auto scores = random_scores(random, layers, heads * positions);
    const Integers counts = plain_counts(scores, layers, base * heads * layers);
    const auto budgets = layer_budgets(counts, base, positions, r_max);
    const std::int64_t cap =
        std::min(static_cast<std::int64_t>(static_cast<double>(base) * r_max), positions);
    SCOPED_TRACE(testing::Message() << "round " << round << ", cap " << cap);
    EXPECT_EQ(sum(budgets.exact), base * layers);
    EXPECT_EQ(budgets.exact, plain_exact(counts, base, cap));
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
  EXPECT_THAT(progressive_budgets(counts_of, 4, 3, 2, 100).exact, ElementsAre(3, 1, 2, 0));
  EXPECT_THAT(progressive_budgets(counts_of, 4, 2, 2, 100).exact, ElementsAre(3, 1, 4, 0));
  EXPECT_THAT(progressive_budgets(counts_of, 4, 1, 2, 100).exact, ElementsAre(2, 1, 2, 0));
}

TEST(LayerBudgets, ProgressiveUpdatesOnlyTakeAwayAndBoundTheLayersSoFar) {
  testing_support::Random random(11);
  int less = 0;
  for (int round = 0; round < 200; ++round) {
    const std::int64_t layers = random.integer(1, 12), heads = random.integer(1, 3);
    const std::int64_t positions = random.integer(2, 30), base = random.integer(1, positions + 2);
    const double r_max = 1 + 0.5 * static_cast<double>(random.integer(0, 6));
    const auto scores = random_scores(random, layers, heads * positions);
    const CountsOfLowest counts_of = [&](std::int64_t lowest) {
      return plain_counts(scores, lowest, std::min(base, positions) * heads * lowest);
    };
    const auto at = [&](std::int64_t update) {
      return progressive_budgets(counts_of, layers, update, base, positions, r_max);
    };
    const auto once = layer_budgets(counts_of(layers), base, positions, r_max);
    for (const std::int64_t update : {std::int64_t{0}, layers, layers + 3}) {
      EXPECT_EQ(at(update).raw, once.raw);
      EXPECT_EQ(at(update).scaled, once.scaled);
      EXPECT_EQ(at(update).exact, once.exact);
    }
    for (std::int64_t update = 1; update < layers; ++update) {
      SCOPED_TRACE(testing::Message() << "round " << round << ", update " << update);
      // The least of the budgets after update, 2 update, ... layers and after all, told plainly.
      const auto found = at(update);
      Integers expected = once.exact, raw = once.raw, scaled = once.scaled;
      for (std::int64_t lowest = 1; lowest < layers; ++lowest) {
        if (lowest % update != 0) continue;
        const auto early = layer_budgets(counts_of(lowest), base, positions, r_max);
        for (std::int64_t layer = 0; layer < lowest; ++layer) {
          expected[layer] = std::min(expected[layer], early.exact[layer]);
          raw[layer] = std::min(raw[layer], early.raw[layer]);
          scaled[layer] = std::min(scaled[layer], early.scaled[layer]);
        }
        // What the layers so far hold is within their budget, at this update and ever after.
        EXPECT_LE(
            std::accumulate(found.exact.begin(), found.exact.begin() + lowest, std::int64_t{0}),
            base * lowest);
      }
      EXPECT_EQ(found.exact, expected);
      EXPECT_EQ(found.raw, raw);
      EXPECT_EQ(found.scaled, scaled);
      less += sum(found.exact) < sum(once.exact) ? 1 : 0;
      // Half as many updates drop no more.
      const auto rarer = at(2 * update);
      for (std::int64_t layer = 0; layer < layers; ++layer)
        EXPECT_LE(found.exact[layer], rarer.exact[layer]);
    }
  }
  EXPECT_GT(less, 100);
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
