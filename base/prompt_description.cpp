// SPDX-License-Identifier: Apache-2.0
#include "base/prompt_description.hpp"

#include <algorithm>

namespace kvatlas {

bool PromptDescription::has_zero_byte() const {
  const auto has_one = [](const std::string& text) { return text.find('\0') != text.npos; };
  return has_one(id) || has_one(task) || has_one(group) || has_one(metric) || has_one(language) ||
         std::any_of(answers.begin(), answers.end(), has_one) ||
         std::any_of(all_classes.begin(), all_classes.end(), has_one);
}

}  // namespace kvatlas
