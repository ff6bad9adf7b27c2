// SPDX-License-Identifier: Apache-2.0
// Means with intervals that hold for any number of texts, however few (docs/certainty.md). A value
// is the mean of one group: prompts that are made of one text count once. Nothing here is random,
// so that results repeat; the order of the values is part of the input.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kvatlas::calibrate {

/// A mean and the interval that holds it; NaN where they are not known.
struct Estimate {
  double mean = std::numeric_limits<double>::quiet_NaN(), low = mean, high = mean;
};

/// How sure an interval is, if nothing else is asked for. Each of its ends is wrong in at most half
/// of the rest of all cases.
inline constexpr double kConfidence = 0.95;

/// The range of values of one kind. Values beyond it count as its nearest end.
struct ValueRange {
  double least = 0, most = 1;
};
inline constexpr ValueRange kScoreRange{0, 1};
inline constexpr ValueRange kDifferenceRange{-1, 1};  // of two scores of one text
inline constexpr ValueRange kPointRange{-100, 100};   // the same in points

/// The places of prompts, by the names of their texts (PromptDescription::text_name), in the order
/// of a hash of the names. Values go into betting intervals in such an order, for it knows nothing
/// of what they are: a bet goes by the values before it, and where a file has its hard texts first
/// it would be led astray. Prompts of one text keep their order.
std::vector<std::size_t> hashed_order(std::span<const std::string> text_names);

/// The mean of each group's values, in the order in which the groups first appear. A value whose
/// group has no name is a group of its own. NaN are passed over, and so are groups that have
/// nothing else.
std::vector<double> group_means(std::span<const double> values,
                                std::span<const std::string> groups);

/// The mean of the tasks' means, each of which is the mean over its groups: what a figure over
/// several tasks is. `rounds` are values that intervals can be made of. If all tasks have as many
/// groups they are these, the first of each task, then the second of each. Else the k-th is a mean
/// over the tasks: of the k-th group, or of tasks with more groups of the k-th share of them.
/// There are then as many as the task with the fewest groups has.
struct TaskMeans {
  double mean = 0;  // NaN if there are no values
  std::vector<double> rounds;
  std::size_t tasks = 0;  // how many groups, of different tasks, a round is made of
};
TaskMeans task_means(std::span<const double> values, std::span<const std::string> groups,
                     std::span<const std::string> tasks);

/// The estimate that was made of the rounds, with the mean of the tasks' means; its interval is
/// widened where that lies outside.
Estimate about_tasks(Estimate of_rounds, const TaskMeans& means);

/// The share of hits with the exact binomial interval (Clopper and Pearson). NaN if count is 0.
Estimate binomial_mean(std::int64_t hits, std::int64_t count, double confidence = kConfidence);

/// The mean with the betting interval (Waudby-Smith and Ramdas, "Estimating means of bounded random
/// variables by betting": hedged capital, predictable plug-in bets, running intersection). It holds
/// for values of any distribution within the range, also if one looks after every value and stops
/// when one likes. NaN if there are no values.
Estimate betting_mean(std::span<const double> values, ValueRange range,
                      double confidence = kConfidence);

/// The mean of scores from 0 to 1: exact where all are 0 or 1, else the betting interval.
Estimate score_mean(std::span<const double> scores, double confidence = kConfidence);

/// A quantile of values from 0 up, over texts, with an interval that holds for any distribution:
/// its ends are values themselves, whose ranks the binomial distribution gives.
struct Quantile {
  double value = std::numeric_limits<double>::quiet_NaN(), low = value;
  double high = value;  // infinite if the texts are too few for an upper end
};
Quantile quantile_of(std::span<const double> values, double share, double confidence = kConfidence);

/// KL divergences in nats over texts. What has no upper bound has no interval for its mean, so the
/// mean stands alone; quantiles and shares have intervals.
inline constexpr double kDivergenceLimits[] = {0.1, 1};
struct Divergence {
  double mean = std::numeric_limits<double>::quiet_NaN();  // of the tasks' means
  Quantile median, p90;
  std::array<Estimate, 2> above;  // the shares of texts above each of kDivergenceLimits
  Estimate capped;                // the mean of divergences that count as at most 1 nat each
};
Divergence divergence_over(std::span<const double> values, std::span<const std::string> groups,
                           std::span<const std::string> tasks);
/// What a divergence counts as where policies are ranked: at most 1 nat.
double capped_divergence(double divergence);

/// After how many values the betting interval reaches no further than this to either side of its
/// middle, if the values go on as they began.
/// None: after more than 100 000, or never, as where values drift.
std::optional<std::int64_t> values_for_width(std::span<const double> values, ValueRange range,
                                             double half_width);

/// What the losses of groups say of a limit. One may look after every group, and go on while the
/// verdict is open: a policy whose mean loss is above the limit passes in at most 5 % of all cases,
/// and one that keeps to it fails in at most 5 %.
struct LossVerdict {
  enum class Kind { passed, failed, undecided };
  Kind kind = Kind::undecided;
  Estimate loss;  // either end by itself holds
  /// While it is undecided: how many further groups decide it, if they lose as those before. None:
  /// more than 100 000.
  std::optional<std::int64_t> more;
};
/// `confidence`: of either end. More than kConfidence is for one policy of several, so that what is
/// said of all of them together holds with kConfidence (jointly_sure).
LossVerdict judge_losses(std::span<const double> losses, ValueRange range, double limit,
                         double confidence = kConfidence);
/// How sure each of so many statements must be for all of them together to be as sure as
/// kConfidence.
double jointly_sure(std::size_t statements);

/// How many groups without any loss make judge_losses pass a limit in points; none if no number
/// does.
std::optional<std::int64_t> groups_to_pass(double limit, double confidence = kConfidence);

/// The least limit in points that so many groups without any loss make judge_losses pass.
double least_limit_to_pass(std::int64_t groups);

/// How many groups without any loss it takes at least to be so sure, on one side, that the mean
/// loss is at most `limit` (0 to 1): the smallest n with 1 - (1 - confidence)^(1/n) <= limit.
std::int64_t zero_loss_groups(double limit, double confidence = kConfidence);

}  // namespace kvatlas::calibrate
