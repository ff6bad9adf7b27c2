// SPDX-License-Identifier: Apache-2.0
#include "calibrate/search/fresh_texts.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text_count.hpp"
#include "calibrate/rules/policy_reports.hpp"
#include "data/tasks.hpp"

namespace kvatlas::calibrate {
namespace {

bool is_generated(const Question& question) {
  return data::is_generated(question.prompt.seed, question.prompt.task);
}

}  // namespace

void CalibrationTexts::add(const std::string& document, const Provenance& provenance) {
  if (provenance.samples > 0) origins_.push_back({document, provenance});
}

std::int64_t CalibrationTexts::first_fresh_seed() const {
  std::int64_t first = 0;
  for (const auto& origin : origins_)
    for (const auto& [task, seeds] : origin.from.seeds) first = std::max(first, seeds[1] + 1);
  return first;
}

const CalibrationTexts::Origin* CalibrationTexts::calibrated_by(const Question& question) const {
  const auto is_of = [&](const Origin& origin) {
    if (!is_generated(question))
      return std::binary_search(origin.from.prompts.begin(), origin.from.prompts.end(),
                                prompt_hash(question.tokens));
    const auto seeds = origin.from.seeds.find(question.prompt.task);
    return seeds != origin.from.seeds.end() && question.prompt.seed >= seeds->second[0] &&
           question.prompt.seed <= seeds->second[1];
  };
  const auto found = std::find_if(origins_.begin(), origins_.end(), is_of);
  return found == origins_.end() ? nullptr : &*found;
}

void CalibrationTexts::require_fresh(std::span<const Question> questions, bool may_repeat) const {
  std::vector<std::string> repeated;  // the groups of own prompts
  const Origin* repeated_in = nullptr;
  for (const auto& question : questions) {
    const Origin* origin = calibrated_by(question);
    if (!origin) continue;
    const auto& prompt = question.prompt;
    if (is_generated(question)) {
      const auto& seeds = origin->from.seeds.at(prompt.task);
      fail(ErrorCode::usage, "seed ", prompt.seed, " of task ", quoted(prompt.task), " calibrated ",
           quoted(origin->document, 400), ", as seeds ", seeds[0], " to ", seeds[1],
           " did: judge by texts that it has not seen (without --seed they begin at ",
           first_fresh_seed(), ")");
    }
    repeated_in = origin;
    repeated.push_back(prompt.group);
  }
  if (!repeated_in || may_repeat) return;
  fail(ErrorCode::usage, count_texts(repeated), " of the texts given calibrated ",
       quoted(repeated_in->document, 400),
       ": judge by lines that it has not seen, or by these all the same with --force");
}

std::optional<std::size_t> CalibrationTexts::count_fresh(
    std::span<const Question> questions) const {
  const bool known = std::all_of(origins_.begin(), origins_.end(), [](const Origin& origin) {
    return !origin.from.seeds.empty() || !origin.from.prompts.empty();
  });
  if (!known || origins_.empty()) return std::nullopt;
  std::vector<std::string> groups;
  for (const auto& question : questions)
    if (!calibrated_by(question)) groups.push_back(question.prompt.group);
  return count_texts(groups);
}

std::string CalibrationTexts::fresh_text(std::span<const Question> questions) const {
  if (origins_.empty()) return {};
  std::vector<std::string> groups;
  for (const auto& question : questions) groups.push_back(question.prompt.group);
  const std::size_t texts = count_texts(groups);
  const auto fresh = count_fresh(questions);
  if (!fresh)
    return str("how many of these ", texts,
               " texts are fresh is not known: the document does not say which calibrated it");
  return str(*fresh, " of ", count_of(static_cast<std::int64_t>(texts), "text is", "texts are"),
             " fresh: calibration has not seen them");
}

}  // namespace kvatlas::calibrate
