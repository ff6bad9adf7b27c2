// SPDX-License-Identifier: Apache-2.0
#include "calibrate/search/trial_cost.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "analyzer/capture/progress.hpp"
#include "base/str.hpp"
#include "base/text_count.hpp"

namespace kvatlas::calibrate {
namespace {

// An answer ends when its score is settled, or with the model's end of text: so much of the
// longest.
constexpr double kAnswered = 0.75;
// While policies are compared with the full model they follow its answer, and those that leave it
// generate one of their own besides.
constexpr double kRowsCompared = 1.3;

/// The full model and so many policies.
double rows_of(const TrialRound& round, std::size_t policies) {
  return 1 + static_cast<double>(policies) * (round.measure == Measure::both ? kRowsCompared : 1);
}

}  // namespace

TrialCost trial_cost(const capture::RunSpeed& speed, std::span<const Question> questions,
                     std::span<const TrialRound> rounds, std::size_t prompts_together) {
  TrialCost cost;
  std::set<std::size_t> read;
  // Resident weights are decoded when they are first used.
  if (!speed.streaming()) cost.seconds += speed.weights();
  for (const TrialRound& round : rounds)
    for (std::size_t i = 0; i < round.samples.size(); ++i) {
      const auto sample = round.samples[i];
      const Question& question = questions[sample];
      const std::size_t held = std::min(
          prompts_together, round.samples.size() - i / prompts_together * prompts_together);
      // Of those that are held, so many decode together.
      const double together = std::clamp(
          std::floor(static_cast<double>(kRowsTogether) / static_cast<double>(1 + round.policies)),
          speed.streaming() ? static_cast<double>(held) : 1.0, static_cast<double>(held));
      const auto tokens = static_cast<double>(question.tokens.size());
      // What stands behind the cut is read token by token, through what each policy has kept.
      const double question_tokens =
          question.context_tokens > 0 ? tokens - static_cast<double>(question.context_tokens) : 0;
      const double read_at_once = tokens - question_tokens;
      const auto seconds_of = [&](double seconds) {
        return std::max(seconds, speed.streaming() ? speed.weights() : 0);
      };
      const double reading = seconds_of(speed.prefill(read_at_once));
      const double repeating =
          seconds_of(speed.prefill(2 * read_at_once) - speed.prefill(read_at_once));
      const double steps =
          question_tokens + std::max(1.0, kAnswered * static_cast<double>(question.max_new));
      // What was kept of a prompt does not say how it is repeated.
      const bool is_read = read.insert(sample).second || round.repeated > 0;
      cost.seconds +=
          static_cast<double>(is_read + round.apart) * reading +
          static_cast<double>(round.repeated) * repeating +
          steps *
              speed.step(together * rows_of(round, round.policies),
                         together * rows_of(round, round.policies - round.in_place), tokens) /
              together;
      cost.answers += round.policies + 1;
    }
  cost.prompts = read.size();
  return cost;
}

std::string cost_text(const TrialCost& cost) {
  return str("about ", capture::duration_str(cost.seconds), ": ",
             count_of(cost.prompts, "prompt is read", "prompts are read"), ", and ",
             count_of(cost.answers, "answer", "answers"), " generated");
}

}  // namespace kvatlas::calibrate
