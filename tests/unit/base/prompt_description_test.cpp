// SPDX-License-Identifier: Apache-2.0
#include "base/prompt_description.hpp"

#include <gtest/gtest.h>

namespace kvatlas {
namespace {

TEST(PromptDescription, FindsAZeroByteInEveryText) {
  const std::string bad("a\0b", 3);
  PromptDescription prompt;
  EXPECT_FALSE(prompt.has_zero_byte());
  for (std::string PromptDescription::*text :
       {&PromptDescription::id, &PromptDescription::task, &PromptDescription::group,
        &PromptDescription::metric, &PromptDescription::language}) {
    PromptDescription one;
    one.*text = bad;
    EXPECT_TRUE(one.has_zero_byte());
  }
  prompt.answers = {"x", bad};
  EXPECT_TRUE(prompt.has_zero_byte());
  prompt.answers.clear();
  prompt.all_classes = {bad};
  EXPECT_TRUE(prompt.has_zero_byte());
}

}  // namespace
}  // namespace kvatlas
