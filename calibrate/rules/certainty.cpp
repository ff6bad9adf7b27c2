// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/certainty.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/error.hpp"
#include "base/random.hpp"
#include "calibrate/rules/rules.hpp"

namespace kvatlas::calibrate {
namespace {

// A bet may cost at most this share of the capital. The paper leaves it open and names 1/2 and 3/4;
// the more is bet, the fewer texts without a loss prove that losses are small: for one point on one
// side it takes 397 at 3/4 and 332 at 9/10 where no method can do with fewer than 299.
constexpr double kMostBet = 0.9;
constexpr int kBisections = 40;
constexpr std::size_t kFarthest = 100000;  // values beyond those that are there

void require_confidence(double confidence) {
  if (!(confidence > 0 && confidence < 1))
    fail(ErrorCode::internal, "no interval is sure with ", confidence);
}

/// The largest mean from 0 to 1 that is `rejected`, where rejected means lie below the others; 0 if
/// none is.
template <class Rejected>
double last_rejected(const Rejected& rejected) {
  double low = 0, high = 1;
  for (int i = 0; i < kBisections; ++i) {
    const double middle = (low + high) / 2;
    (rejected(middle) ? low : high) = middle;
  }
  return low;
}

/// How probable so many hits or more are, for each share of hits. The tail of the binomial
/// distribution is summed by hand: this takes few lines, where the incomplete beta function would
/// take a library.
class Binomial {
 public:
  explicit Binomial(std::int64_t count) : count_(count) {
    for (std::int64_t k = 1; k <= count; ++k)
      log_choose_.push_back(log_choose_.back() + std::log(static_cast<double>(count - k + 1)) -
                            std::log(static_cast<double>(k)));
  }
  double at_least(std::int64_t hits, double share) const {
    double tail = 0;
    for (std::int64_t k = hits; k <= count_; ++k)
      tail += std::exp(log_choose_[static_cast<std::size_t>(k)] +
                       static_cast<double>(k) * std::log(share) +
                       static_cast<double>(count_ - k) * std::log1p(-share));
    return tail;
  }

 private:
  std::int64_t count_;
  std::vector<double> log_choose_ = {0};  // of count_ over 0, 1, ...
};

/// The lower end for the share of hits.
double binomial_low(std::int64_t hits, std::int64_t count, double error) {
  const Binomial binomial(count);
  return last_rejected([&](double share) { return binomial.at_least(hits, share) < error; });
}

/// How much is bet on each value before it is seen, for values from 0 to 1: more if those before it
/// vary little. (What the paper calls lambda; mean and variance start at 1/2 and 1/4.)
std::vector<double> plug_in_bets(std::span<const double> values, double error) {
  std::vector<double> bets;
  double sum = 0.5, squares = 0.25;
  for (const double value : values) {
    const auto seen = static_cast<double>(bets.size()) + 1;
    bets.push_back(std::sqrt(2 * std::log(1 / error) / (squares * std::log(seen + 1))));
    sum += value;
    squares += std::pow(value - sum / (seen + 1), 2);
  }
  return bets;
}

/// The lower end for the mean of values from 0 to 1. Whoever bets that values lie above a mean, and
/// is wrong, rarely gets rich: a mean for which the capital grows 1 / error-fold at any time is
/// rejected. The capital falls with the mean, so that the rejected ones lie below the others.
double betting_low(std::span<const double> values, double error) {
  const auto bets = plug_in_bets(values, error);
  return last_rejected([&](double mean) {
    double capital = 1;
    for (std::size_t i = 0; i < values.size(); ++i) {
      capital *= 1 + std::min(bets[i], kMostBet / mean) * (values[i] - mean);
      if (capital * error >= 1) return true;
    }
    return false;
  });
}

/// The least number of values that is enough, if they are repeated in their order; none if more
/// than `most` are needed. If a number is enough, so is every greater one.
template <class IsEnough>
std::optional<std::int64_t> first_enough(std::span<const double> values, std::size_t most,
                                         const IsEnough& is_enough) {
  if (values.empty()) fail(ErrorCode::internal, "nothing can go on as it began");
  std::vector<double> longer;
  const auto holds = [&](std::size_t count) {
    while (longer.size() < count) longer.push_back(values[longer.size() % values.size()]);
    return is_enough(std::span<const double>(longer).first(count));
  };
  std::size_t enough = 1;
  while (!holds(enough))
    if (enough == most)
      return std::nullopt;
    else
      enough = std::min(2 * enough, most);
  std::size_t too_few = enough / 2;
  while (enough - too_few > 1) {
    const std::size_t middle = (too_few + enough) / 2;
    (holds(middle) ? enough : too_few) = middle;
  }
  return static_cast<std::int64_t>(enough);
}

}  // namespace

std::vector<std::size_t> hashed_order(std::span<const std::string> text_names) {
  std::vector<std::uint64_t> hashes;
  for (const auto& name : text_names) hashes.push_back(Random(0, name).next());
  std::vector<std::size_t> places(hashes.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::stable_sort(places.begin(), places.end(),
                   [&](std::size_t a, std::size_t b) { return hashes[a] < hashes[b]; });
  return places;
}

std::vector<double> group_means(std::span<const double> values,
                                std::span<const std::string> groups) {
  if (values.size() != groups.size()) fail(ErrorCode::internal, "each value needs its group");
  std::map<std::string, std::size_t> places;
  std::vector<std::vector<double>> members;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;
    std::size_t place = members.size();
    if (!groups[i].empty()) place = places.emplace(groups[i], place).first->second;
    if (place == members.size()) members.emplace_back();
    members[place].push_back(values[i]);
  }
  std::vector<double> means;
  for (const auto& of_group : members) means.push_back(mean_of(of_group));
  return means;
}

TaskMeans task_means(std::span<const double> values, std::span<const std::string> groups,
                     std::span<const std::string> tasks) {
  if (values.size() != tasks.size()) fail(ErrorCode::internal, "each value needs its task");
  TaskMeans out;
  std::vector<std::vector<double>> of_tasks;
  std::vector<std::string> named;
  for (const auto& task : tasks)
    if (std::find(named.begin(), named.end(), task) == named.end()) named.push_back(task);
  std::size_t rounds = 0;
  for (const auto& task : named) {
    std::vector<double> own(values.begin(), values.end());
    for (std::size_t i = 0; i < own.size(); ++i)
      if (tasks[i] != task) own[i] = std::nan("");
    auto means = group_means(own, groups);
    if (means.empty()) continue;
    rounds = of_tasks.empty() ? means.size() : std::min(rounds, means.size());
    of_tasks.push_back(std::move(means));
  }
  out.tasks = of_tasks.size();
  const auto mean_over_tasks = [&](const auto& of_task) {
    std::vector<double> all;
    for (const auto& means : of_tasks) all.push_back(of_task(std::span<const double>(means)));
    return mean_of(all);
  };
  out.mean = mean_over_tasks([](auto means) { return mean_of(means); });
  const bool balanced = std::all_of(of_tasks.begin(), of_tasks.end(),
                                    [&](const auto& means) { return means.size() == rounds; });
  if (balanced) {
    // Then the groups themselves, task after task in turns, have that mean.
    out.tasks = std::min<std::size_t>(out.tasks, 1);
    for (std::size_t k = 0; k < rounds; ++k)
      for (const auto& means : of_tasks) out.rounds.push_back(means[k]);
    return out;
  }
  for (std::size_t k = 0; k < rounds; ++k)
    out.rounds.push_back(mean_over_tasks([&](auto means) {
      const std::size_t begin = k * means.size() / rounds, end = (k + 1) * means.size() / rounds;
      return mean_of(means.subspan(begin, end - begin));
    }));
  return out;
}

Estimate about_tasks(Estimate of_rounds, const TaskMeans& means) {
  if (means.rounds.empty()) return of_rounds;
  return {means.mean, std::min(of_rounds.low, means.mean), std::max(of_rounds.high, means.mean)};
}

Estimate binomial_mean(std::int64_t hits, std::int64_t count, double confidence) {
  require_confidence(confidence);
  if (count < 0 || hits < 0 || hits > count)
    fail(ErrorCode::internal, hits, " hits of ", count, " are impossible");
  const double mean = static_cast<double>(hits) / static_cast<double>(count);
  if (count == 0) return {mean, mean, mean};
  const double error = (1 - confidence) / 2;
  return {mean, binomial_low(hits, count, error), 1 - binomial_low(count - hits, count, error)};
}

Estimate betting_mean(std::span<const double> values, ValueRange range, double confidence) {
  require_confidence(confidence);
  const double width = range.most - range.least;
  if (!(width > 0)) fail(ErrorCode::internal, "values need a range");
  std::vector<double> inside, above, below;
  for (const double value : values) {
    inside.push_back(std::clamp(value, range.least, range.most));
    above.push_back((inside.back() - range.least) / width);
    below.push_back(1 - above.back());
  }
  const double mean = mean_of(inside);
  if (values.empty()) return {mean, mean, mean};
  const double error = (1 - confidence) / 2;
  const double low = range.least + width * betting_low(above, error);
  const double high = range.most - width * betting_low(below, error);
  // Values that drift can leave the mean outside, or the ends crossed: then the interval is
  // widened.
  return {mean, std::min({low, high, mean}), std::max({low, high, mean})};
}

Estimate score_mean(std::span<const double> scores, double confidence) {
  const auto is_exact = [](double score) { return score == 0 || score == 1; };
  if (!std::all_of(scores.begin(), scores.end(), is_exact))
    return betting_mean(scores, kScoreRange, confidence);
  return binomial_mean(std::count(scores.begin(), scores.end(), 1.0),
                       static_cast<std::int64_t>(scores.size()), confidence);
}

Quantile quantile_of(std::span<const double> values, double share, double confidence) {
  require_confidence(confidence);
  if (values.empty()) return {};
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const std::int64_t count = std::ssize(sorted);
  const double error = (1 - confidence) / 2;
  const Binomial below(count);  // how many values lie below the quantile, at most
  const auto ranked = [&](std::int64_t rank) { return sorted[static_cast<std::size_t>(rank - 1)]; };
  Quantile out;
  out.value = ranked(std::clamp<std::int64_t>(
      std::llround(std::ceil(share * static_cast<double>(count) - 1e-9)), 1, count));
  out.low = std::min(0.0, sorted.front());
  out.high = INFINITY;
  for (std::int64_t rank = 1; rank <= count; ++rank) {
    const double tail = below.at_least(rank, share);
    if (1 - tail <= error) out.low = ranked(rank);
    if (tail > error) continue;
    out.high = ranked(rank);
    break;
  }
  return out;
}

double capped_divergence(double divergence) { return std::min(divergence, 1.0); }

Divergence divergence_over(std::span<const double> values, std::span<const std::string> groups,
                           std::span<const std::string> tasks) {
  Divergence out;
  out.mean = task_means(values, groups, tasks).mean;
  const auto texts = group_means(values, groups);
  out.median = quantile_of(texts, 0.5);
  out.p90 = quantile_of(texts, 0.9);
  for (std::size_t i = 0; i < out.above.size(); ++i)
    out.above[i] = binomial_mean(
        std::count_if(texts.begin(), texts.end(),
                      [&](double divergence) { return divergence > kDivergenceLimits[i]; }),
        std::ssize(texts));
  std::vector<double> capped;
  for (const double value : values) capped.push_back(capped_divergence(value));
  const TaskMeans means = task_means(capped, groups, tasks);
  out.capped = about_tasks(betting_mean(means.rounds, {0, 1}), means);
  return out;
}

std::optional<std::int64_t> values_for_width(std::span<const double> values, ValueRange range,
                                             double half_width) {
  if (!(half_width > 0)) fail(ErrorCode::internal, "no interval is a point");
  return first_enough(values, values.size() + kFarthest, [&](auto longer) {
    const Estimate found = betting_mean(longer, range);
    return found.high - found.low <= 2 * half_width;
  });
}

LossVerdict judge_losses(std::span<const double> losses, ValueRange range, double limit,
                         double confidence) {
  using Kind = LossVerdict::Kind;
  LossVerdict verdict;
  const auto decide = [&](std::span<const double> seen) {
    verdict.loss = betting_mean(seen, range, 2 * confidence - 1);
    return verdict.loss.high <= limit ? Kind::passed
           : verdict.loss.low > limit ? Kind::failed
                                      : Kind::undecided;
  };
  if (!losses.empty() && decide(losses) == Kind::undecided) {
    verdict.more = first_enough(losses, losses.size() + kFarthest,
                                [&](auto longer) { return decide(longer) != Kind::undecided; });
    if (verdict.more) *verdict.more -= static_cast<std::int64_t>(losses.size());
  }
  verdict.kind = decide(losses);
  return verdict;
}

double jointly_sure(std::size_t statements) {
  return 1 - (1 - kConfidence) / static_cast<double>(std::max<std::size_t>(1, statements));
}

std::optional<std::int64_t> groups_to_pass(double limit, double confidence) {
  if (limit <= 0) return std::nullopt;
  const LossVerdict one = judge_losses(std::vector<double>{0}, kPointRange, limit, confidence);
  if (one.kind == LossVerdict::Kind::passed) return 1;
  return one.more ? std::optional(*one.more + 1) : std::nullopt;
}

double least_limit_to_pass(std::int64_t groups) {
  const std::vector<double> none(static_cast<std::size_t>(groups), 0);
  return judge_losses(none, kPointRange, kPointRange.most).loss.high;
}

std::int64_t zero_loss_groups(double limit, double confidence) {
  require_confidence(confidence);
  if (!(limit > 0 && limit < 1)) fail(ErrorCode::internal, "a limit of ", limit, " proves nothing");
  // 1e-9 less than a whole number is that number: logarithms miss it by less.
  return static_cast<std::int64_t>(std::ceil(std::log(1 - confidence) / std::log1p(-limit) - 1e-9));
}

}  // namespace kvatlas::calibrate
