// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/tokenizer/regex.hpp"

namespace kvatlas::model {

/// What a tokenizer does to the text before cutting it up: a chain of steps.
class Normalizer {
 public:
  /// Takes and returns valid UTF-8. Error(resource) if a step makes the text many times longer.
  std::string apply(std::string_view text) const;

  using Step = std::function<std::string(std::string)>;
  void add(Step step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }

 private:
  std::vector<Step> steps_;
};

/// The steps that tokenizer.json knows.
namespace normalizing {
enum class UnicodeForm { nfc, nfd, nfkc, nfkd };
Normalizer::Step unicode_form(UnicodeForm form);
Normalizer::Step lowercase();
Normalizer::Step strip_accents();
Normalizer::Step strip_spaces(bool left, bool right);
Normalizer::Step prepend(std::string text);
Normalizer::Step replace(Regex pattern, std::string content);
Normalizer::Step byte_level();
}  // namespace normalizing

}  // namespace kvatlas::model
