// SPDX-License-Identifier: Apache-2.0
#include "base/next_step.hpp"

#include <gtest/gtest.h>

namespace kvatlas {
namespace {

TEST(NextStep, WordsAreQuotedWhereAShellNeedsIt) {
  EXPECT_EQ(shell_word("a/b-c_1.h5"), "a/b-c_1.h5");
  EXPECT_EQ(shell_word("two words"), "'two words'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("$(rm x)"), "'$(rm x)'");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a\nb"), "'a?b'");
  EXPECT_EQ(shell_quoted("plain"), "'plain'");
}

TEST(NextStep, RunsTheSameModelInTheSameWay) {
  ModelOptions options;
  options.model = "my model";
  EXPECT_EQ(model_words(options), "--model 'my model'");
  options.memory_budget = "6GiB";
  options.device = "cpu";
  EXPECT_EQ(model_words(options), "--model 'my model' --memory-budget 6GiB --device cpu");
}

TEST(NextStep, PurposesStandUnderOneAnother) {
  testing::internal::CaptureStderr();
  say_next({{"kvatlas view p.h5", "look"}, {"kvatlas calibrate all -p p.h5", "decide"}});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "kvatlas: next: kvatlas view p.h5              # look\n"
            "               kvatlas calibrate all -p p.h5  # decide\n");
  testing::internal::CaptureStderr();
  say_next({});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace kvatlas
