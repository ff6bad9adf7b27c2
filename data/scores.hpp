// SPDX-License-Identifier: Apache-2.0
// How well a generated text answers a prompt (docs/tasks.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "data/prompts.hpp"

namespace kvatlas::data {

/// The score of a generated text, 0 to 1, by the prompt's metric, or by its task's metric if it
/// names none; NaN if the prompt has no answers. A task is one of tasks(), a dataset of LongBench,
/// or "qa", where one answer that is found suffices. Any other task is scored by the share of the
/// answers that are found.
double score(const Prompt& prompt, std::string_view generated);

/// Whether whatever follows the text leaves its score, and the digits of a pass key, as they are.
bool is_settled(const Prompt& prompt, std::string_view generated);

/// The name of that score for people, such as "F1" or "share of answers found"; "none" if the
/// prompt has no answers.
std::string metric_name(const Prompt& prompt);

/// Fails if there is no metric of that name. The message lists the metrics.
void require_metric(std::string_view name, ErrorCode code);

/// The shares of a pass key's digits that are right up to the first wrong one, and right at their
/// place. The first run of digits in the generated text is taken for the key.
struct DigitScores {
  double prefix = 0, in_place = 0;
};
DigitScores digit_scores(std::string_view key, std::string_view generated);
/// The same of a prompt's pass key; none if the prompt asks for something else.
std::optional<DigitScores> pass_key_digits(const PromptDescription& prompt,
                                           std::string_view generated);

}  // namespace kvatlas::data
