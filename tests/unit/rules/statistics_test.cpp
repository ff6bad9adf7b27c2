// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/random.hpp"
#include "calibrate/rules/rules.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<double> random_values(std::size_t count, std::uint64_t seed) {
  Random random(seed, "test");
  std::vector<double> values(count);
  for (double& value : values) value = random.share();
  return values;
}

TEST(Mean, AndDeviationOfFewValues) {
  const std::vector<double> none, one = {3}, two = {1, 4};
  EXPECT_TRUE(std::isnan(mean_of(none)));
  EXPECT_EQ(mean_of(one), 3);
  EXPECT_EQ(deviation_of(none), 0);
  EXPECT_EQ(deviation_of(one), 0);
  EXPECT_DOUBLE_EQ(deviation_of(two), 3 / std::sqrt(2));
}

TEST(NearestRank, QuantilesOfShortAndLongLists) {
  EXPECT_THAT(nearest_rank_quantiles({3, 1, 2}, 40), ElementsAre(1, 2, 3));
  std::vector<double> hundred(100);
  std::iota(hundred.begin(), hundred.end(), 1.0);
  EXPECT_THAT(nearest_rank_quantiles(hundred, 4), ElementsAre(25, 50, 75, 100));
  EXPECT_THAT(nearest_rank_quantiles({std::nan(""), 5}, 4), ElementsAre(5));
  EXPECT_THAT(nearest_rank_quantiles({}, 4), IsEmpty());
  EXPECT_THAT(nearest_rank_quantiles(hundred, 1), ElementsAre(100));
  EXPECT_THAT(nearest_rank_quantiles(hundred, 0), IsEmpty());
}

TEST(LargestRemainder, KeepsTheTotal) {
  const std::vector<double> values = {1.5, 1.5, 1.0};
  EXPECT_THAT(round_to_total(values, 4), ElementsAre(2, 1, 1));
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    auto random = random_values(1 + seed % 40, seed);
    const auto total = static_cast<std::int64_t>(seed * 37 % 5000);
    const auto whole = round_to_total(random, total);
    EXPECT_EQ(std::accumulate(whole.begin(), whole.end(), std::int64_t{0}), total);
    const double sum = std::accumulate(random.begin(), random.end(), 0.0);
    for (std::size_t i = 0; i < whole.size(); ++i)
      EXPECT_LE(
          std::abs(static_cast<double>(whole[i]) - random[i] * static_cast<double>(total) / sum),
          1 + 1e-9);
  }
}

TEST(LargestRemainder, WholeNumbersStay) {
  const std::vector<double> values = {0.1 * 30, 7, 0};
  EXPECT_THAT(round_to_total(values, 10), ElementsAre(3, 7, 0));
  EXPECT_THROW(round_to_total(std::vector<double>{0, 0}, 3), Error);
  EXPECT_THROW(round_to_total(std::vector<double>{-1, 2}, 3), Error);
  EXPECT_THROW(round_to_total(std::vector<double>{1, 2}, -1), Error);
  EXPECT_THROW(round_to_total(std::vector<double>{}, 0), Error);
  const double endless = std::numeric_limits<double>::infinity();
  EXPECT_THROW(round_to_total(std::vector<double>{1, endless}, 3), Error);
  EXPECT_THAT(round_to_total(std::vector<double>{0, 0}, 0), ElementsAre(0, 0));
}

TEST(LargestRemainder, KeepsATotalThatADoubleCannotHold) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::int64_t total = (std::int64_t{1} << 54) + static_cast<std::int64_t>(seed);
    const auto whole = round_to_total(random_values(8, seed), total);
    EXPECT_EQ(std::accumulate(whole.begin(), whole.end(), std::int64_t{0}), total);
  }
}

TEST(Pareto, KeepsWhatNothingBeats) {
  const std::vector<double> cost = {3, 1, 2, 2, 4, 1}, gain = {5, 1, 4, 3, 5, 1};
  EXPECT_THAT(pareto_front(cost, gain), ElementsAre(1, 2, 0));
  const std::vector<double> none = {std::nan("")}, one = {1};
  EXPECT_THAT(pareto_front(none, none), IsEmpty());
  EXPECT_THAT(pareto_front(none, one), IsEmpty());
  EXPECT_THAT(pareto_front(one, none), IsEmpty());
  EXPECT_THROW(pareto_front(one, {}), Error);
}

TEST(Pareto, NoPointOfTheFrontIsBeaten) {
  const auto cost = random_values(60, 3), gain = random_values(60, 4);
  const auto front = pareto_front(cost, gain);
  const std::set<std::size_t> on_it(front.begin(), front.end());
  for (std::size_t i = 0; i < cost.size(); ++i) {
    bool beaten = false;
    for (std::size_t j = 0; j < cost.size(); ++j)
      beaten = beaten || (cost[j] < cost[i] && gain[j] > gain[i]);
    EXPECT_EQ(on_it.count(i) == 0, beaten) << i;
  }
}

TEST(RankCorrelation, OfOrderAlone) {
  const std::vector<double> a = {1, 2, 3, 4}, b = {1, 10, 100, 1000}, c = {9, 8, 7, 1};
  EXPECT_DOUBLE_EQ(rank_correlation(a, b), 1);
  EXPECT_DOUBLE_EQ(rank_correlation(a, c), -1);
  const std::vector<double> x = {1, 2, 2, 3}, y = {1, 3, 2, 4};
  EXPECT_NEAR(rank_correlation(x, y), 0.9486832980505138, 1e-12);  // by scipy
  EXPECT_TRUE(std::isnan(rank_correlation(a, std::vector<double>{1, 1, 1, 1})));
  EXPECT_THROW(rank_correlation(a, {}), Error);
}

TEST(SplitSamples, HoldsOutAShareOfEveryTask) {
  std::vector<std::string> tasks;
  for (int i = 0; i < 20; ++i) tasks.push_back(i % 4 == 0 ? "a" : "b");
  const Split split = split_samples(tasks, 0.4, 5);
  ASSERT_EQ(split.held_out.size(), 8u);
  int of_a = 0;
  for (const auto i : split.held_out) of_a += tasks[i] == "a";
  EXPECT_EQ(of_a, 2);
  std::set<std::size_t> all(split.choice.begin(), split.choice.end());
  all.insert(split.held_out.begin(), split.held_out.end());
  EXPECT_EQ(all.size(), 20u);
  EXPECT_TRUE(std::is_sorted(split.choice.begin(), split.choice.end()));
  EXPECT_TRUE(std::is_sorted(split.held_out.begin(), split.held_out.end()));
  EXPECT_EQ(split_samples(tasks, 0.4, 5).held_out, split.held_out);
  EXPECT_NE(split_samples(tasks, 0.4, 6).held_out, split.held_out);
}

TEST(SplitSamples, NothingOfFewerThanTen) {
  const std::vector<std::string> ten(10, "a");
  EXPECT_EQ(split_samples(ten, 0.4, 0).held_out.size(), 4u);
  EXPECT_THAT(split_samples(ten, 0, 0).held_out, IsEmpty());
  EXPECT_EQ(split_samples(ten, 0, 0).choice.size(), 10u);
  EXPECT_THROW(split_samples(ten, 1, 0), Error);
  EXPECT_THROW(split_samples(ten, -0.1, 0), Error);
  const std::vector<std::string> tasks(9, "a");
  EXPECT_THAT(split_samples(tasks, 0.4, 0).held_out, IsEmpty());
  EXPECT_EQ(split_samples(tasks, 0.4, 0).choice.size(), 9u);
}

}  // namespace
}  // namespace kvatlas::calibrate
