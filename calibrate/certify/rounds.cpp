// SPDX-License-Identifier: Apache-2.0
#include "calibrate/certify/rounds.hpp"

#include <algorithm>

#include "base/plain_text.hpp"
#include "base/str.hpp"
#include "calibrate/rules/certainty.hpp"
#include "calibrate/rules/evidence.hpp"

namespace kvatlas::calibrate {

std::int64_t seeds_for(std::span<const GateVerdict> verdicts, std::int64_t seeds,
                       std::int64_t prompts, std::int64_t most_prompts) {
  const std::int64_t allowed =
      std::max<std::int64_t>(0, (most_prompts - prompts) / ((prompts + seeds - 1) / seeds));
  std::int64_t wanted = 0;
  for (const auto& verdict : verdicts) {
    const auto& loss = verdict.loss;
    if (loss.kind != LossVerdict::Kind::undecided) continue;
    const auto rounds = static_cast<std::int64_t>(verdict.rounds);
    const std::int64_t more = loss.more.value_or(rounds) * seeds;
    wanted = std::max(wanted, (more + rounds - 1) / rounds);
  }
  return std::min({wanted, seeds, allowed});
}

std::vector<std::string> limit_needs(const Gate& gate) {
  const std::string limit = fixed_text(gate.max_loss, 1);
  if (gate.by_mean)
    return {str("by the mean alone a verdict needs ", kLeastTexts,
                " texts; it says nothing of how sure it is")};
  const auto texts = groups_to_pass(gate.max_loss);
  if (!texts)
    return {
        str("a loss of at most ", limit, " points cannot be made sure by texts without any loss")};
  std::string of_all =
      str("a loss of at most ", limit, " points is sure after ", *texts, " texts without any loss");
  if (gate.max_loss < 100)
    of_all += str(" (no method needs fewer than ", zero_loss_groups(gate.max_loss / 100), ")");
  return {of_all + "; texts that lose something make it more"};
}

}  // namespace kvatlas::calibrate
