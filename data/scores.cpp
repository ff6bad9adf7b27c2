// SPDX-License-Identifier: Apache-2.0
#include "data/scores.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/plain_text.hpp"
#include "data/call_scores.hpp"
#include "data/longbench.hpp"
#include "data/metrics.hpp"

namespace kvatlas::data {
namespace {

struct Asked {
  const Prompt& prompt;
  Unit unit;
};

struct Rule {
  std::string_view name;          // of Prompt::metric
  std::string_view title;         // for people
  std::string_view by_character;  // its title for Chinese; empty where that is scored like others
  double (*score)(const Asked&, std::string_view generated, const std::string& answer);
  bool all_answers = false;  // the mean over the answers counts; else the best
  bool stays = false;        // no text behind one that scores 1 changes that
  // Where answers are not compared one by one.
  double (*score_all)(const Prompt&, std::string_view generated) = nullptr;
};

double found_score(const Asked&, std::string_view generated, const std::string& answer) {
  return is_found(generated, answer) ? 1 : 0;
}

double number_score(const Asked&, std::string_view generated, const std::string& answer) {
  return right_numbers(generated, answer);
}

double step_score(const Asked& asked, std::string_view generated, const std::string& answer) {
  const auto before = &answer - asked.prompt.answers.data();
  return right_step(generated, before + 1, answer);
}

constexpr std::array<Rule, 13> kRules = {
    {{"found", "share of answers found", "", found_score, true, true},
     {"any", "any answer found", "", found_score, false, true},
     {"f1", "F1", "F1 by character",
      [](const Asked& asked, std::string_view generated, const std::string& answer) {
        return f1(generated, answer, asked.unit);
      }},
     {"rouge_l", "ROUGE-L", "ROUGE-L by character",
      [](const Asked& asked, std::string_view generated, const std::string& answer) {
        return rouge_l(generated, answer, asked.unit);
      }},
     {"exact", "exact match", "",
      [](const Asked& asked, std::string_view generated, const std::string& answer) {
        return is_exact(generated, answer, asked.unit) ? 1.0 : 0.0;
      }},
     {"classification", "classification", "",
      [](const Asked& asked, std::string_view generated, const std::string& answer) {
        return classification(generated, answer, asked.prompt.all_classes);
      }},
     {"retrieval", "share of numbers right", "", number_score},
     {"count", "share of numbers right", "", number_score},
     {"choice", "right choices", "",
      [](const Asked&, std::string_view generated, const std::string& answer) {
        return right_choice(generated, answer);
      }},
     {"steps", "share of steps right", "", step_score, true},
     {"calls", "calls right by part", "", nullptr, true, false,
      [](const Prompt& prompt, std::string_view generated) {
        return call_parts(prompt.answers, generated).score();
      }},
     {"final", "right final answers", "",
      [](const Asked&, std::string_view generated, const std::string& answer) {
        return right_final(generated, answer);
      }},
     {"edit_similarity", "edit similarity", "",
      [](const Asked&, std::string_view generated, const std::string& answer) {
        return edit_similarity(first_code_line(generated), answer);
      }}}};

const Rule* find_rule(std::string_view name) {
  const auto* found = std::find_if(kRules.begin(), kRules.end(),
                                   [&](const Rule& rule) { return rule.name == name; });
  return found == kRules.end() ? nullptr : found;
}

const Rule& rule_of(const Prompt& prompt) {
  std::string_view name = prompt.metric;
  if (name.empty()) {
    const auto* dataset = longbench_dataset(prompt.task);
    name = dataset ? std::string_view(dataset->metric) : prompt.task == "qa" ? "any" : "found";
  }
  require_metric(name, ErrorCode::usage);
  return *find_rule(name);
}

Unit unit_of(const Prompt& prompt) {
  const auto* dataset = longbench_dataset(prompt.task);
  const std::string& language =
      prompt.language.empty() && dataset ? dataset->language : prompt.language;
  return language.substr(0, 2) == "zh" ? Unit::character : Unit::word;
}

}  // namespace

double score(const Prompt& prompt, std::string_view generated) {
  const Rule& rule = rule_of(prompt);
  const Asked asked = {prompt, unit_of(prompt)};
  const auto* dataset = longbench_dataset(prompt.task);
  if (dataset && dataset->first_line) generated = first_line(generated);
  if (prompt.answers.empty()) return std::numeric_limits<double>::quiet_NaN();
  if (rule.score_all) return rule.score_all(prompt, generated);
  double sum = 0, best = 0;
  for (const auto& answer : prompt.answers) {
    const double one = rule.score(asked, generated, answer);
    sum += one;
    best = std::max(best, one);
  }
  return rule.all_answers ? sum / static_cast<double>(prompt.answers.size()) : best;
}

bool is_settled(const Prompt& prompt, std::string_view generated) {
  return rule_of(prompt).stays && score(prompt, generated) >= 1;
}

std::string metric_name(const Prompt& prompt) {
  if (prompt.answers.empty()) return "none";
  const Rule& rule = rule_of(prompt);
  const bool by_character = unit_of(prompt) == Unit::character && !rule.by_character.empty();
  return std::string(by_character ? rule.by_character : rule.title);
}

void require_metric(std::string_view name, ErrorCode code) {
  if (find_rule(name)) return;
  fail(code, "there is no metric ", quoted(name), "; there are ",
       join(kRules, ", ", [](const auto& rule) { return rule.name; }));
}

DigitScores digit_scores(std::string_view key, std::string_view generated) {
  constexpr std::string_view kDigits = "0123456789";
  if (key.empty()) fail(ErrorCode::usage, "a pass key without digits cannot be scored");
  generated.remove_prefix(std::min(generated.find_first_of(kDigits), generated.size()));
  const auto said = generated.substr(0, generated.find_first_not_of(kDigits));
  const std::size_t size = std::min(key.size(), said.size());
  std::size_t in_place = 0, prefix = 0;
  for (std::size_t i = 0; i < size; ++i) {
    if (key[i] != said[i]) continue;
    ++in_place;
    if (prefix == i) ++prefix;
  }
  const auto share = [&](std::size_t right) {
    return static_cast<double>(right) / static_cast<double>(key.size());
  };
  return {share(prefix), share(in_place)};
}

std::optional<DigitScores> pass_key_digits(const PromptDescription& prompt,
                                           std::string_view generated) {
  const bool asked = prompt.task.substr(0, prompt.task.find(':')) == "passkey";
  if (!asked || prompt.answers.empty() || prompt.answers.front().empty()) return std::nullopt;
  return digit_scores(prompt.answers.front(), generated);
}

}  // namespace kvatlas::data
