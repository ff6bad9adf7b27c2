// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/certainty.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/random.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

double width(const Estimate& estimate) { return estimate.high - estimate.low; }

TEST(Binomial, AsScipySays) {
  // scipy 1.17.1: binomtest(hits, count).proportion_ci(confidence, method="exact")
  struct Known {
    std::int64_t hits, count;
    double confidence, low, high;
  };
  for (const Known& of : {Known{0, 5, 0.95, 0.0, 0.5218237501049814},
                          {5, 5, 0.95, 0.47817624989501856, 1.0},
                          {1, 10, 0.95, 0.0025285785444625728, 0.44501611702819543},
                          {3, 10, 0.95, 0.06673951117773447, 0.652452850060008},
                          {10, 20, 0.95, 0.27195784956079133, 0.7280421504392086},
                          {48, 50, 0.95, 0.8628623743960313, 0.9951185665738638},
                          {199, 200, 0.95, 0.9724581015424416, 0.9998734189719902},
                          {7, 1000, 0.95, 0.0028188587596180135, 0.014369194979269567},
                          {3, 10, 0.9, 0.08726443391415029, 0.6066242161055765},
                          {3, 10, 0.99, 0.03700722109620741, 0.7351139852871308}}) {
    const Estimate found = binomial_mean(of.hits, of.count, of.confidence);
    EXPECT_NEAR(found.low, of.low, 1e-10) << of.hits << " of " << of.count;
    EXPECT_NEAR(found.high, of.high, 1e-10) << of.hits << " of " << of.count;
    EXPECT_EQ(found.mean, static_cast<double>(of.hits) / static_cast<double>(of.count));
  }
}

TEST(Betting, AsTheFormulasSay) {
  // From the formulas of the paper, written a second time with numpy: capital as sums of
  // logarithms, c = 0.9.
  const auto near = [](const Estimate& found, double low, double high) {
    EXPECT_NEAR(found.low, low, 1e-9);
    EXPECT_NEAR(found.high, high, 1e-9);
  };
  near(betting_mean(std::vector<double>{1, 0, 1, 1, 1, 0.5, 1, 1, 0, 1}, kScoreRange),
       0.32760207587671175, 1);
  near(betting_mean(std::vector<double>{0.2, 0.4, 0.1, 0.3, 0.25, 0.3}, kScoreRange),
       0.052723547431014595, 0.6212513471618877);
  near(betting_mean(std::vector<double>(5, 0), kDifferenceRange), -0.5480292051197466,
       0.5480292051197466);
  near(betting_mean(std::vector<double>(20, 0), kDifferenceRange, 0.9), -0.1522121584330307,
       0.1522121584330307);
}

TEST(Certainty, EqualScoresSayLittleOfFewTexts) {
  for (const double score : {0.0, 0.3, 1.0})
    for (const std::size_t count : {1u, 2u, 5u, 50u}) {
      const Estimate found = score_mean(std::vector<double>(count, score));
      EXPECT_GT(width(found), 0.01) << score << " of " << count;
      EXPECT_LE(found.low, score);
      EXPECT_GE(found.high, score);
    }
}

TEST(Certainty, GrowsWithConfidenceAndShrinksWithTexts) {
  Random random(3, "certainty");
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<double> values;
    for (int i = 0; i < 160; ++i)
      values.push_back(trial % 2 == 0 ? random.share() : std::floor(2 * random.share()));
    for (const std::size_t count : {10u, 40u, 160u}) {
      const std::span<const double> few(values.data(), count);
      double last = 0;
      for (const double confidence : {0.5, 0.8, 0.95, 0.99}) {
        const Estimate found = score_mean(few, confidence);
        EXPECT_GT(width(found), last);
        EXPECT_LE(found.low, found.mean);
        EXPECT_GE(found.high, found.mean);
        EXPECT_GE(found.low, 0);
        EXPECT_LE(found.high, 1);
        last = width(found);
      }
      if (count < 160) {
        EXPECT_GT(last, width(score_mean(std::span(values).first(4 * count), 0.99)));
      }
    }
  }
}

TEST(Certainty, OfMirroredValuesIsMirrored) {
  const std::vector<double> values = {0.1, 0.9, 0.4, 0.4, 0.8},
                            mirrored = {0.9, 0.1, 0.6, 0.6, 0.2};
  const Estimate a = score_mean(values), b = score_mean(mirrored);
  EXPECT_NEAR(a.low, 1 - b.high, 1e-9);
  EXPECT_NEAR(a.high, 1 - b.low, 1e-9);
}

TEST(Certainty, ContainsTheMeanOfValuesThatDrift) {
  std::vector<double> values(100, 0);
  values.insert(values.end(), 100, 1);
  const Estimate found = betting_mean(values, kScoreRange);
  EXPECT_LE(found.low, 0.5);
  EXPECT_GE(found.high, 0.5);
  EXPECT_GT(width(found), 0.01);
}

TEST(Certainty, HoldsForFilesThatHaveTheirHardTextsFirst) {
  // 400 losses, of which some 30 % are 1 and stand first. Their mean is the file's own.
  int missed_as_given = 0, missed = 0;
  for (int file = 0; file < 200; ++file) {
    Random random(static_cast<std::uint64_t>(file), "sorted");
    std::vector<double> losses;
    std::vector<std::string> names;
    for (int i = 0; i < 400; ++i) {
      losses.push_back(random.share() < 0.3 ? 1 : 0);
      names.push_back("qa " + std::to_string(file) + "\nline " + std::to_string(i));
    }
    std::sort(losses.rbegin(), losses.rend());
    double mean = 0;
    for (const double loss : losses) mean += loss / 400;
    const auto misses = [&](const std::vector<double>& values) {
      // Looked at after every tenth text, as one may.
      for (std::size_t seen = 10; seen <= values.size(); seen += 10) {
        const Estimate found = betting_mean(std::span(values).first(seen), kDifferenceRange);
        if (mean < found.low || mean > found.high) return 1;
      }
      return 0;
    };
    std::vector<double> hashed;
    for (const auto place : hashed_order(names)) hashed.push_back(losses[place]);
    missed += misses(hashed);
    missed_as_given += misses(losses);
  }
  EXPECT_GT(missed_as_given, 100);
  EXPECT_LE(missed, 10);  // 5 % of 200
}

TEST(Certainty, PutsTheSameTextsIntoTheSameOrderWhereverTheyStand) {
  std::vector<std::string> names;
  for (int i = 0; i < 50; ++i) names.push_back("needle\nneedle/" + std::to_string(i));
  const auto named = [](const std::vector<std::string>& all) {
    std::vector<std::string> out;
    for (const auto place : hashed_order(all)) out.push_back(all[place]);
    return out;
  };
  const auto first = named(names);
  EXPECT_NE(first, names);
  std::reverse(names.begin(), names.end());
  EXPECT_EQ(named(names), first);
  // Prompts of one text keep their order.
  EXPECT_THAT(hashed_order(std::vector<std::string>(3, "one")), ElementsAre(0, 1, 2));
  EXPECT_THAT(hashed_order({}), IsEmpty());
}

TEST(Certainty, NamesTheLeastLimitThatTextsCanPass) {
  for (const std::int64_t texts : {5, 32, 65, 332}) {
    const double limit = least_limit_to_pass(texts);
    EXPECT_LE(groups_to_pass(limit), texts);
    EXPECT_GT(groups_to_pass(0.99 * limit), texts);
  }
}

TEST(Certainty, RefusesWhatIsImpossible) {
  for (const double nothing : {score_mean({}).mean, score_mean({}).low, score_mean({}).high})
    EXPECT_TRUE(std::isnan(nothing));
  EXPECT_TRUE(std::isnan(betting_mean({}, kDifferenceRange).high));
  EXPECT_THROW(binomial_mean(3, 2), Error);
  EXPECT_THROW(binomial_mean(-1, 2), Error);
  EXPECT_THROW(binomial_mean(1, 2, 0), Error);
  EXPECT_THROW(score_mean(std::vector<double>{1}, 1), Error);
  EXPECT_THROW(betting_mean(std::vector<double>{1}, {1, 1}), Error);
  EXPECT_THROW(betting_mean(std::vector<double>{0.5}, kScoreRange, 1), Error);
  for (const double limit : {0.0, 1.0, 1.5}) EXPECT_THROW(zero_loss_groups(limit), Error);
  EXPECT_THROW(zero_loss_groups(0.1, 1), Error);
}

TEST(Certainty, ScoresOfNothingAndAllHaveTheExactInterval) {
  const auto expect_exact = [](const std::vector<double>& scores, std::int64_t hits) {
    const Estimate found = score_mean(scores), exact = binomial_mean(hits, std::ssize(scores));
    EXPECT_EQ(found.low, exact.low);
    EXPECT_EQ(found.high, exact.high);
  };
  expect_exact({0, 0, 0, 0}, 0);
  expect_exact({1, 1, 1, 1}, 4);
  expect_exact({1, 0, 1, 0}, 2);
}

TEST(Certainty, OfAllStatementsTogetherNeedsMoreOfEach) {
  EXPECT_DOUBLE_EQ(jointly_sure(0), 0.95);
  EXPECT_DOUBLE_EQ(jointly_sure(1), 0.95);
  EXPECT_DOUBLE_EQ(jointly_sure(5), 0.99);
}

TEST(Certainty, CountsValuesBeyondTheRangeAsItsEnd) {
  const Estimate inside = betting_mean(std::vector<double>{1, 0, 0.5}, kScoreRange),
                 outside = betting_mean(std::vector<double>{7, -1, 0.5}, kScoreRange);
  EXPECT_EQ(inside.mean, outside.mean);
  EXPECT_EQ(inside.low, outside.low);
}

TEST(Certainty, GroupsCountOnce) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> values = {1, 0, none, 0.5, 0.75, 1, none, 0.125};
  const std::vector<std::string> groups = {"b", "a", "b", "a", "", "b", "c", ""};
  EXPECT_THAT(group_means(values, groups), ElementsAre(1, 0.25, 0.75, 0.125));
  EXPECT_THAT(group_means({}, {}), IsEmpty());
  EXPECT_THROW(group_means(values, {}), Error);
}

TEST(Certainty, TasksWeighTheSameHoweverManyGroupsTheyHave) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  // Task x has the groups 1, 0.5 and 0; y has 0.25 and 0.75; z has no value.
  const std::vector<double> values = {1, 0.25, 1, 0, 0.75, 0, none};
  const std::vector<std::string> groups = {"a", "b", "c", "c", "d", "e", ""},
                                 tasks = {"x", "y", "x", "x", "y", "x", "z"};
  const TaskMeans found = task_means(values, groups, tasks);
  EXPECT_EQ(found.tasks, 2u);
  EXPECT_EQ(found.mean, 0.5);  // of 0.5 and 0.5
  // The first group of each, and then what is left of x with the second of y.
  EXPECT_THAT(found.rounds, ElementsAre((1 + 0.25) / 2, (0.25 + 0.75) / 2));
  const Estimate estimate = about_tasks(score_mean(found.rounds), found);
  EXPECT_EQ(estimate.mean, 0.5);
  EXPECT_LE(estimate.low, 0.5);
  const Estimate alone = about_tasks({0.5, 0.25, 0.75}, {});
  EXPECT_EQ(alone.mean, 0.5) << "no task has a value";
  EXPECT_EQ(alone.high, 0.75);

  // Ten texts of a task that is lost are not drowned by a hundred of one that is not.
  std::vector<double> scores(100, 1.0);
  scores.insert(scores.end(), 10, 0.0);
  std::vector<std::string> of(100, "kept");
  of.insert(of.end(), 10, "lost");
  EXPECT_EQ(task_means(scores, std::vector<std::string>(110), of).mean, 0.5);

  // Tasks with as many groups: these in turns, so that each counts.
  const TaskMeans even =
      task_means(std::vector<double>{1, 0.5, 0, 0.25}, std::vector<std::string>(4),
                 std::vector<std::string>{"x", "x", "y", "y"});
  EXPECT_THAT(even.rounds, ElementsAre(1, 0, 0.5, 0.25));
  EXPECT_EQ(even.tasks, 1u);
  EXPECT_EQ(even.mean, 0.4375);

  // One task alone is its groups, in their order.
  const std::vector<std::string> one(values.size(), "x");
  EXPECT_THAT(task_means(values, groups, one).rounds, ElementsAre(1, 0.25, 0.5, 0.75, 0));
  EXPECT_TRUE(std::isnan(task_means({}, {}, {}).mean));
  EXPECT_TRUE(std::isnan(about_tasks(score_mean({}), task_means({}, {}, {})).mean));
  EXPECT_THROW(task_means(values, groups, {}), Error);
}

/// How often the intervals of the mean of two tasks' means hold it, where their scores differ much:
/// with as many texts of each, few and many, and where one has three times as many.
TEST(Certainty, TheIntervalOverTasksHoldsTheirMean) {
  Random random(5, "tasks");
  constexpr int kRuns = 1000;
  for (const auto& [easy, hard] : {std::pair{5, 5}, {20, 20}, {100, 100}, {60, 20}}) {
    int scores_held = 0, losses_held = 0;
    for (int run = 0; run < kRuns; ++run) {
      std::vector<double> scores, losses;
      std::vector<std::string> tasks;
      const auto draw = [&](const char* task, int count, std::uint64_t percent) {
        for (int i = 0; i < count; ++i) {
          scores.push_back(random.below(100) < percent ? 1 : 0);
          losses.push_back(1 - scores.back());
          tasks.emplace_back(task);
        }
      };
      draw("easy", easy, 95);
      draw("hard", hard, 30);
      const std::vector<std::string> groups(scores.size());
      const auto holds = [](const Estimate& estimate, double truth) {
        return estimate.low <= truth && truth <= estimate.high;
      };
      const TaskMeans of_scores = task_means(scores, groups, tasks);
      scores_held += holds(about_tasks(score_mean(of_scores.rounds), of_scores), 0.625);
      const TaskMeans of_losses = task_means(losses, groups, tasks);
      losses_held +=
          holds(about_tasks(betting_mean(of_losses.rounds, kDifferenceRange), of_losses), 0.375);
    }
    EXPECT_GE(scores_held, kRuns * 95 / 100) << easy << " and " << hard;
    EXPECT_GE(losses_held, kRuns * 95 / 100) << easy << " and " << hard;
  }
}

TEST(Divergence, QuantilesAsTheBinomialDistributionSays) {
  std::vector<double> values;
  for (int i = 100; i >= 1; --i) values.push_back(i);
  // scipy 1.17.1: quantile_test(range(1, 101), p=p).confidence_interval(0.95)
  const Quantile median = quantile_of(values, 0.5), p90 = quantile_of(values, 0.9);
  EXPECT_EQ(median.value, 50);
  EXPECT_EQ(median.low, 40);
  EXPECT_EQ(median.high, 61);
  EXPECT_EQ(p90.value, 90);
  EXPECT_EQ(p90.low, 84);
  EXPECT_EQ(p90.high, 96);
}

TEST(Divergence, HasNoUpperEndOnFewTexts) {
  // Five texts may all lie below the median: once in 32 times.
  EXPECT_TRUE(std::isinf(quantile_of(std::vector<double>{1, 2, 3, 4, 5}, 0.5).high));
  EXPECT_EQ(quantile_of(std::vector<double>{1, 2, 3, 4, 5}, 0.5).low, 0);
  EXPECT_EQ(quantile_of(std::vector<double>{1, 2, 3, 4, 5, 6}, 0.5).high, 6);
  EXPECT_TRUE(std::isinf(quantile_of(std::vector<double>(35, 1), 0.9).high));
  EXPECT_EQ(quantile_of(std::vector<double>(36, 1), 0.9).high, 1);
  EXPECT_TRUE(std::isnan(quantile_of({}, 0.5).value));
}

TEST(Divergence, QuantilesAndSharesAreCovered) {
  // Divergences of any size: exp(3 z), z about normal, has a mean far above most of its values.
  constexpr int kRuns = 400;
  const auto drawn = [](Random& random) {
    double z = -6;
    for (int i = 0; i < 12; ++i) z += random.share();
    return std::exp(3 * z);
  };
  Random population(1, "population");
  std::vector<double> many;
  for (int i = 0; i < 200000; ++i) many.push_back(drawn(population));
  std::sort(many.begin(), many.end());
  const double median = many[many.size() / 2], p90 = many[many.size() * 9 / 10];
  const double above = static_cast<double>(many.end() - std::upper_bound(many.begin(), many.end(),
                                                                         kDivergenceLimits[1])) /
                       static_cast<double>(many.size());
  for (const int count : {5, 10, 36, 60, 200}) {
    int held_median = 0, held_p90 = 0, held_share = 0;
    for (int run = 0; run < kRuns; ++run) {
      Random random(static_cast<std::uint64_t>(run), "divergences");
      std::vector<double> values;
      for (int i = 0; i < count; ++i) values.push_back(drawn(random));
      const std::vector<std::string> none(values.size());
      const Divergence found = divergence_over(values, none, none);
      held_median += found.median.low <= median && median <= found.median.high;
      held_p90 += found.p90.low <= p90 && p90 <= found.p90.high;
      held_share += found.above[1].low <= above && above <= found.above[1].high;
    }
    // 95 %, less two standard deviations of so many runs.
    for (const int held : {held_median, held_p90, held_share})
      EXPECT_GE(held, kRuns * 0.928) << count << " texts";
  }
}

TEST(Divergence, MeanStandsAloneAndTheCappedOneHasAnInterval) {
  const std::vector<double> values = {0.01, 0.02, 7};
  const std::vector<std::string> none(3);
  const Divergence found = divergence_over(values, none, none);
  EXPECT_NEAR(found.mean, 2.343333, 1e-6);
  EXPECT_NEAR(found.capped.mean, 1.03 / 3, 1e-9);
  EXPECT_LE(found.capped.high, 1);
  EXPECT_EQ(found.median.value, 0.02);
  EXPECT_NEAR(found.above[0].mean, 1.0 / 3, 1e-12);
  EXPECT_NEAR(found.above[1].mean, 1.0 / 3, 1e-12);
  EXPECT_TRUE(std::isnan(divergence_over({}, {}, {}).mean));
}

TEST(Certainty, ValuesThatAWidthNeeds) {
  const auto half = [](const std::vector<double>& values, std::int64_t count) {
    std::vector<double> longer;
    for (std::int64_t i = 0; i < count; ++i)
      longer.push_back(values[static_cast<std::size_t>(i) % values.size()]);
    return width(betting_mean(longer, kDifferenceRange)) / 2;
  };
  for (const auto& values : {std::vector<double>{0}, {0, 0, 1}, {1, -1, 0.5, 0.25, 0}}) {
    const std::int64_t needed = *values_for_width(values, kDifferenceRange, 0.05);
    EXPECT_LE(half(values, needed), 0.05);
    EXPECT_GT(half(values, needed - 1), 0.05);
  }
  EXPECT_EQ(values_for_width(std::vector<double>{0}, kDifferenceRange, 0.05), 80);
  EXPECT_EQ(values_for_width(std::vector<double>{0}, kDifferenceRange, 1), 1);
  // Ones before noughts cross the interval's ends, which no repetition mends.
  std::vector<double> sorted(40, 1);
  sorted.insert(sorted.end(), 40, 0);
  EXPECT_EQ(values_for_width(sorted, kScoreRange, 0.05), std::nullopt);
  EXPECT_THROW(values_for_width({}, kDifferenceRange, 0.05), Error);
  EXPECT_THROW(values_for_width(std::vector<double>{0}, kDifferenceRange, 0), Error);
}

TEST(Certainty, TextsWithoutLossThatALimitNeeds) {
  EXPECT_EQ(zero_loss_groups(0.05), 59);
  EXPECT_EQ(zero_loss_groups(0.01), 299);
  EXPECT_EQ(zero_loss_groups(0.1), 29);
  EXPECT_EQ(zero_loss_groups(0.5, 0.75), 2);
  EXPECT_EQ(zero_loss_groups(0.01, 0.975), 368);
  // The exact interval agrees, and bets on differences need little more.
  for (const double limit : {0.05, 0.1, 0.2}) {
    const std::int64_t least = zero_loss_groups(limit);
    EXPECT_LE(binomial_mean(0, least, 0.9).high, limit);
    EXPECT_GT(binomial_mean(0, least - 1, 0.9).high, limit);
    const auto upper = [](std::int64_t count) {
      const std::vector<double> none(static_cast<std::size_t>(count), 0);
      return betting_mean(none, kDifferenceRange, 0.9).high;
    };
    EXPECT_GT(upper(least - 1), limit);
    EXPECT_LE(upper(least * 8 / 7 + 1), limit);
  }
}

TEST(LossGate, DecidesWhenTheIntervalDoes) {
  using Kind = LossVerdict::Kind;
  const auto none = [](std::size_t count) { return std::vector<double>(count, 0); };
  const LossVerdict open = judge_losses(none(20), kDifferenceRange, 0.05);
  EXPECT_EQ(open.kind, Kind::undecided);
  EXPECT_GT(open.loss.high, 0.05);
  ASSERT_TRUE(open.more);
  const auto needed = static_cast<std::size_t>(20 + *open.more);
  EXPECT_EQ(needed, 65u);
  EXPECT_EQ(judge_losses(none(needed), kDifferenceRange, 0.05).kind, Kind::passed);
  EXPECT_EQ(judge_losses(none(needed - 1), kDifferenceRange, 0.05).kind, Kind::undecided);
  EXPECT_EQ(judge_losses(std::vector<double>(10, 1), kDifferenceRange, 0.05).kind, Kind::failed);
  EXPECT_FALSE(judge_losses(std::vector<double>(10, 1), kDifferenceRange, 0.05).more);
  // In points it is the same; at the limit itself nothing decides.
  EXPECT_EQ(judge_losses(none(65), kPointRange, 5).kind, Kind::passed);
  EXPECT_EQ(judge_losses(none(65), kPointRange, 0).kind, Kind::undecided);
  EXPECT_FALSE(judge_losses(none(65), kPointRange, 0).more);
  EXPECT_EQ(judge_losses({}, kPointRange, 5).kind, Kind::undecided);
  // No loss can be above the greatest, or below the least.
  EXPECT_EQ(judge_losses(none(1), kPointRange, 100).kind, Kind::passed);
  EXPECT_EQ(judge_losses(none(1), kPointRange, -100).kind, Kind::undecided);
}

TEST(LossGate, HowManyGroupsWithoutALossPass) {
  EXPECT_EQ(groups_to_pass(5), 65);
  EXPECT_EQ(groups_to_pass(100), 1);
  EXPECT_EQ(groups_to_pass(0), std::nullopt);
  EXPECT_EQ(groups_to_pass(-1), std::nullopt);
  EXPECT_EQ(groups_to_pass(1e-4), std::nullopt);
}

/// Of policies that lose a little more than the limit at most 5 % pass, though one looks again and
/// again; of those that lose a little less at most 5 % fail.
TEST(LossGate, IsSeldomWrong) {
  using Kind = LossVerdict::Kind;
  constexpr int kTrials = 400;
  Random random(4, "gate");
  for (const double limit : {0.05, 0.2})
    for (const double loss : {limit - 0.001, limit + 0.001, 2 * limit, limit / 10}) {
      int passed = 0, failed = 0;
      for (int trial = 0; trial < kTrials; ++trial) {
        std::vector<double> losses;
        Kind kind = Kind::undecided;
        while (losses.size() < 300 && kind == Kind::undecided) {
          for (int i = 0; i < 5; ++i) losses.push_back(random.share() < loss ? 1 : 0);
          const Estimate found = betting_mean(losses, kDifferenceRange, 0.9);
          kind = found.high <= limit ? Kind::passed : found.low > limit ? Kind::failed : kind;
        }
        passed += kind == Kind::passed;
        failed += kind == Kind::failed;
      }
      const double most = kTrials * (0.05 + 3 * std::sqrt(0.05 * 0.95 / kTrials));
      std::printf("limit %.3f, loss %.3f: %.1f %% passed, %.1f %% failed\n", limit, loss,
                  100.0 * passed / kTrials, 100.0 * failed / kTrials);
      if (loss > limit)
        EXPECT_LE(passed, most) << loss;
      else
        EXPECT_LE(failed, most) << loss;
      if (loss == limit / 10) {
        EXPECT_GE(passed, 0.9 * kTrials) << loss;
      }
    }
}

/// The interval that was printed before: percentile bootstrap over prompts.
Estimate bootstrap(const std::vector<double>& values, Random& random) {
  std::vector<double> means(200);
  for (double& mean : means) {
    mean = 0;
    for (std::size_t i = 0; i < values.size(); ++i) mean += values[random.below(values.size())];
    mean /= static_cast<double>(values.size());
  }
  std::sort(means.begin(), means.end());
  return {0, means[4], means[194]};
}

/// Policies that lose a known share of the score: how many intervals hold it? This prints the table
/// of docs/certainty.md. Prompts of a text share its fate: four in five of a lost text are lost.
TEST(Certainty, CoversTheTruth) {
  constexpr int kTrials = 1000, kBootstraps = 200;
  constexpr double kLeast = kTrials * 0.95 - 3 * kTrials * 0.0069;  // three deviations of chance
  Random random(1, "coverage");
  const auto holds = [](const Estimate& estimate, double truth) {
    return estimate.low <= truth + 1e-9 && truth - 1e-9 <= estimate.high;
  };
  std::printf("| true loss | prompts a text | 5 texts | 10 | 20 | 50 | 100 | 200 |\n");
  std::printf("|---|---|---|---|---|---|---|---|");
  for (const double loss : {0.0, 0.01, 0.05, 0.1, 0.5})
    for (const int prompts : {1, 5}) {
      std::printf("\n| %g %% | %d |", 100 * loss, prompts);
      for (const int texts : {5, 10, 20, 50, 100, 200}) {
        const double within = prompts == 1 ? 1 : 0.8;
        int of_score = 0, of_loss = 0, of_bootstrap = 0;
        for (int trial = 0; trial < kTrials; ++trial) {
          std::vector<double> all, losses, scores;
          for (int text = 0; text < texts; ++text) {
            const bool lost = random.share() < loss / within;
            double sum = 0;
            for (int prompt = 0; prompt < prompts; ++prompt) {
              all.push_back(lost && random.share() < within ? 1 : 0);
              sum += all.back();
            }
            losses.push_back(sum / prompts);
            scores.push_back(1 - losses.back());
          }
          of_score += holds(score_mean(scores), 1 - loss);
          of_loss += holds(betting_mean(losses, kDifferenceRange), loss);
          if (trial < kBootstraps) of_bootstrap += holds(bootstrap(all, random), loss);
        }
        EXPECT_GE(of_score, kLeast) << loss << ", " << prompts << " x " << texts;
        EXPECT_GE(of_loss, kLeast) << loss << ", " << prompts << " x " << texts;
        std::printf(" %.1f / %.1f / %.1f |", 100.0 * of_score / kTrials, 100.0 * of_loss / kTrials,
                    100.0 * of_bootstrap / kBootstraps);
      }
    }
  std::printf("\n");
}

/// Scores that are seldom anything but 0 and 1 get one interval or the other, by what was seen.
TEST(Certainty, CoversScoresOfAnyKind) {
  constexpr int kTrials = 2000;
  Random random(2, "coverage");
  for (const double part : {0.1, 0.5, 0.9})
    for (const double seldom : {0.02, 0.1, 0.3})
      for (const int texts : {5, 20, 80}) {
        int held = 0;
        for (int trial = 0; trial < kTrials; ++trial) {
          std::vector<double> scores;
          for (int text = 0; text < texts; ++text) {
            const double share = random.share();
            scores.push_back(share < seldom ? part : share < seldom + 0.05 ? 0 : 1);
          }
          const Estimate found = score_mean(scores);
          const double truth = seldom * part + 0.95 - seldom;
          held += found.low <= truth && truth <= found.high;
        }
        EXPECT_GE(held, kTrials * (0.95 - 0.015)) << part << ", " << seldom << ", " << texts;
      }
}

}  // namespace
}  // namespace kvatlas::calibrate
