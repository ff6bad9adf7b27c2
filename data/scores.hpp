// SPDX-License-Identifier: Apache-2.0
// How well a generated text answers a prompt (docs/tasks.md).
#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "data/prompts.hpp"

namespace kvatlas::data {

/// 0 to 1, by the metric that the prompt says, or its task's; NaN if it has no answers. A task is
/// one of tasks(), a LongBench dataset, "qa" (any answer found), or an unknown one (share of
/// answers found).
double score(const Prompt& prompt, std::string_view generated);

/// What `score` is, for people: "F1", "share of answers found"; "none" if there are no answers.
std::string metric_name(const Prompt& prompt);

/// Fails if there is no metric of that name; the message says which there are.
void require_metric(std::string_view name, ErrorCode code);

/// The shares of a pass key's digits that are right up to the first wrong one, and right at their
/// place. The first run of digits in the generated text is taken for the key.
struct DigitScores {
  double prefix = 0, in_place = 0;
};
DigitScores digit_scores(std::string_view key, std::string_view generated);

}  // namespace kvatlas::data
