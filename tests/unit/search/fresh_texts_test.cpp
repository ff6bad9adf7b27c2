// SPDX-License-Identifier: Apache-2.0
#include "calibrate/search/fresh_texts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "calibrate/rules/policy_reports.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Question generated(const std::string& task, std::int64_t seed) {
  Question question;
  question.prompt.task = task;
  question.prompt.seed = seed;
  question.prompt.group = task + "/" + std::to_string(seed);
  return question;
}

Question own(std::vector<std::int64_t> tokens) {
  Question question;
  question.tokens = std::move(tokens);
  return question;
}

std::string refusal(const CalibrationTexts& texts, const std::vector<Question>& questions,
                    bool may_repeat = false) {
  try {
    texts.require_fresh(questions, may_repeat);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

Provenance from_seeds() {
  return {.profile = {},
          .samples = 40,
          .lengths = {},
          .tasks = {},
          .seeds = {{"needle", {0, 9}}, {"passkey:digits=64", {5, 14}}},
          .prompts = {},
          .seed = 0,
          .tool_version = {}};
}

TEST(FreshTexts, BeginBehindAllSeedsThatCalibrated) {
  CalibrationTexts texts;
  EXPECT_EQ(texts.first_fresh_seed(), 0);
  texts.add("policy.json", from_seeds());
  EXPECT_EQ(texts.first_fresh_seed(), 15);
}

TEST(FreshTexts, RefuseASeedThatCalibratedTaskByTask) {
  CalibrationTexts texts;
  texts.add("policy.json", from_seeds());
  EXPECT_THAT(refusal(texts, {generated("needle", 20), generated("needle", 9)}),
              AllOf(HasSubstr("seed 9 of task 'needle' calibrated 'policy.json'"),
                    HasSubstr("seeds 0 to 9"), HasSubstr("they begin at 15")));
  EXPECT_EQ(refusal(texts, {generated("needle", 10), generated("passkey:digits=64", 4),
                            generated("needle:keys=4", 3)}),
            "");
  // The user's own prompts may be repeated if the user says so, seeds may not.
  EXPECT_NE(refusal(texts, {generated("needle", 9)}, true), "");
}

TEST(FreshTexts, KnowTheUsersOwnPromptsByTheirTokens) {
  CalibrationTexts texts;
  Provenance from = from_seeds();
  from.seeds = {};
  from.prompts = {prompt_hash(std::vector<std::int64_t>{1, 2, 3})};
  texts.add("policy.json", from);
  const std::vector<Question> questions = {own({1, 2, 3}), own({1, 2, 4})};
  EXPECT_THAT(
      refusal(texts, questions),
      AllOf(HasSubstr("1 of the texts given calibrated 'policy.json'"), HasSubstr("--force")));
  EXPECT_EQ(refusal(texts, questions, true), "");
  EXPECT_EQ(texts.count_fresh(questions), 1);
  EXPECT_EQ(texts.fresh_text(questions), "1 of 2 texts are fresh: calibration has not seen them");
}

TEST(FreshTexts, SayWhereADocumentDoesNotTell) {
  CalibrationTexts texts;
  const std::vector<Question> questions = {generated("needle", 0)};
  EXPECT_EQ(texts.fresh_text(questions), "");  // nothing was calibrated
  Provenance from = from_seeds();
  from.seeds = {};
  texts.add("older.json", from);
  EXPECT_EQ(texts.count_fresh(questions), std::nullopt);
  EXPECT_THAT(texts.fresh_text(questions), HasSubstr("is not known"));
  EXPECT_EQ(refusal(texts, questions), "");
}

}  // namespace
}  // namespace kvatlas::calibrate
