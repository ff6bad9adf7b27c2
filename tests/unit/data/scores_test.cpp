// SPDX-License-Identifier: Apache-2.0
#include "data/scores.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/str.hpp"
#include "data/tasks.hpp"
#include "tests/support/error_of.hpp"

namespace kvatlas::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::error_of;

Prompt asking(const std::string& task, std::vector<std::string> answers) {
  Prompt prompt;
  prompt.task = task;
  prompt.context = "context";
  prompt.answers = std::move(answers);
  return prompt;
}

TEST(Scores, GeneratedTasksByTheAnswersFound) {
  for (const char* task :
       {"needle:queries=2", "vt", "cwe:words=2", "fwe", "passkey", "unheard of"}) {
    const Prompt prompt = asking(task, {"Alpha", "beta"});
    EXPECT_EQ(score(prompt, "ALPHA, and then BETA."), 1) << task;
    EXPECT_EQ(score(prompt, "only alphabet"), 0.5) << task;
    EXPECT_EQ(score(prompt, ""), 0) << task;
    EXPECT_EQ(metric_name(prompt), "share of answers found");
  }
  const Prompt question = asking("qa", {"Alpha", "beta"});
  EXPECT_EQ(score(question, "only alphabet"), 1);
  EXPECT_EQ(score(question, "gamma"), 0);
  EXPECT_EQ(metric_name(question), "any answer found");
}

/// Over all beginnings of a text, once settled its score and its digits stay.
TEST(Scores, SettledIsWhatNothingChangesLater) {
  const Prompt several = asking("needle:queries=2", {"12", "beta"}),
               key = asking("passkey", {"1234"});
  EXPECT_TRUE(is_settled(several, "Beta and 120"));
  EXPECT_FALSE(is_settled(several, "beta alone"));
  EXPECT_TRUE(is_settled(asking("qa", {"12", "beta"}), "beta alone"));
  EXPECT_FALSE(is_settled(asking("qasper", {"beta"}), "beta"));  // F1 falls with every word
  EXPECT_FALSE(is_settled(asking("prose", {}), "beta"));
  for (const std::string text :
       {"1294, not 1234, but 1235", "12345 or 1234", "91234", "no 1 2 3 1234"})
    for (std::size_t size = 0; size <= text.size(); ++size) {
      const std::string_view begin = std::string_view(text).substr(0, size);
      if (!is_settled(key, begin)) continue;
      EXPECT_EQ(score(key, begin), score(key, text));
      EXPECT_EQ(pass_key_digits(key, begin)->prefix, pass_key_digits(key, text)->prefix) << begin;
      EXPECT_EQ(pass_key_digits(key, begin)->in_place, pass_key_digits(key, text)->in_place)
          << begin;
    }
  EXPECT_TRUE(is_settled(key, "1294, not 1234"));
}

TEST(Scores, WithoutAnswersThereIsNone) {
  EXPECT_TRUE(std::isnan(score(asking("prose", {}), "x")));
  EXPECT_TRUE(std::isnan(score(asking("qasper", {}), "x")));
  EXPECT_EQ(metric_name(asking("qasper", {})), "none");
}

TEST(Scores, AMadePromptIsAnsweredByItsAnswers) {
  const auto count = [](const Prompt& prompt) {
    return static_cast<std::int64_t>(prompt.as_text().size()) / 4;
  };
  for (const auto& task : tasks()) {
    const Prompt prompt = make_prompt({std::string(task.name), 1000}, count);
    std::string all;
    for (std::size_t i = 0; i < prompt.answers.size(); ++i)
      all += prompt.metric == "steps" ? str("Step ", i + 1, ": ", prompt.answers[i], "\n")
                                      : prompt.answers[i] + ", ";
    if (prompt.answers.empty())
      EXPECT_TRUE(std::isnan(score(prompt, all)));
    else
      EXPECT_EQ(score(prompt, all), 1) << task.name;
  }
}

TEST(Scores, StepsByTheValueThatEachSays) {
  Prompt prompt = asking("running-total", {"1234", "17", "20"});
  prompt.metric = "steps";
  EXPECT_EQ(metric_name(prompt), "share of steps right");
  // The prompt ends with "Step 1:", and a chat's answer begins with it.
  EXPECT_EQ(score(prompt, " 1234\nStep 2: 17\nStep 3: 20\n"), 1);
  EXPECT_EQ(score(prompt, "Here we go.\n**Step 1:** 1,234.\nSTEP 2: 34 / 2 = 17\nStep 3: 20"), 1);
  EXPECT_DOUBLE_EQ(score(prompt, " 1234 Step 2: 18 Step 3: 20"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(score(prompt, " 123\nStep 3: 20\nStep 2: 17"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(score(prompt, " 9\nStep 2: 1\nStep 2: 17\nStep 30: 20"), 0);
  EXPECT_DOUBLE_EQ(score(prompt, "17 20 1234"), 0);
  EXPECT_EQ(score(prompt, ""), 0);
  EXPECT_EQ(score(prompt, "step 99999999999999999999999: 17 step 0: step -1: step step"), 0);
  prompt.answers = {"bell, cup, hat", "cup, bell, hat"};
  EXPECT_EQ(score(prompt, " bell, cup, hat\nStep 2: Cup, bell and hat"), 0.5);
  EXPECT_EQ(score(prompt, " bell, cup, hat\nStep 2: Cup, bell,  hat."), 1);
  EXPECT_EQ(score(prompt, " bell, cup\nStep 2: cup, hat, bell"), 0);
}

TEST(Scores, FinalAnswersBehindTheirMark) {
  Prompt prompt = asking("a file of mine", {"42"});
  prompt.metric = "final";
  for (const char* right :
       {"6 * 7 = 42", "Answer: 41. No.\nAnswer: 42", "#### 42", "so \\boxed{42}.",
        "The answer is $42.00 in 3 days", "**Answer:** 42\n7 of them"})
    EXPECT_EQ(score(prompt, right), 1) << right;
  for (const char* wrong : {"", "42 or 43", "Answer: 43 and not 42", "Answer:", "#### -42", "421"})
    EXPECT_EQ(score(prompt, wrong), 0) << wrong;
  prompt.answers = {"1234.5", "Anna"};
  EXPECT_EQ(score(prompt, "Answer: 1,234.50"), 1);
  EXPECT_EQ(score(prompt, "answer: anna."), 1);
  EXPECT_EQ(score(prompt, "Anna"), 0);
  EXPECT_EQ(metric_name(prompt), "right final answers");
}

TEST(Scores, LongBenchByEachDatasetsMetric) {
  const auto of = [](const char* task, const char* answer, const char* generated) {
    return score(asking(task, {"nothing of this", answer}), generated);
  };
  EXPECT_DOUBLE_EQ(of("narrativeqa", "the red house", "A red car."), 0.5);
  EXPECT_DOUBLE_EQ(of("hotpotqa_e", "the red house", "A red car."), 0.5);
  EXPECT_DOUBLE_EQ(of("multifieldqa_zh", "红色房子", "红色汽车。"), 0.5);
  EXPECT_NEAR(of("gov_report", "the red house", "a red house"), 2. / 3, 1e-6);
  EXPECT_NEAR(of("vcsum", "红色房子", "红色汽车"), 0.5, 1e-6);
  EXPECT_EQ(of("passage_retrieval_en", "Paragraph 7", "Paragraph 7, not 8"), 0.5);
  EXPECT_EQ(of("passage_retrieval_zh", "段落7", "段落7"), 1);
  EXPECT_EQ(of("passage_count", "12", "12"), 1);
  EXPECT_EQ(of("lcc", "x = 1", "# so\nx = 1\n"), 1);
  EXPECT_EQ(of("repobench-p", "x = 1", "y = 1"), 0.8);
  EXPECT_EQ(metric_name(asking("dureader", {"x"})), "ROUGE-L by character");
  EXPECT_EQ(metric_name(asking("triviaqa", {"x"})), "F1");
  EXPECT_EQ(metric_name(asking("lsht", {"x"})), "classification");
}

TEST(Scores, OnlyTheFirstLineOfSomeDatasets) {
  const char* const generated = "\nParis\nQuestion: and then?";
  EXPECT_EQ(score(asking("triviaqa", {"paris"}), generated), 1);
  EXPECT_LT(score(asking("hotpotqa", {"paris"}), generated), 1);
  Prompt classes = asking("trec", {"Food"});
  classes.all_classes = {"Food", "Date"};
  EXPECT_EQ(score(classes, "Food\nType: Date"), 1);
  EXPECT_EQ(score(classes, "Food, Date"), 0.5);
}

TEST(Scores, ALineMayChooseTheMetric) {
  Prompt prompt = asking("eval", {"a cat"});
  const auto by = [&](const char* metric) {
    prompt.metric = metric;
    return score(prompt, "Cat");
  };
  EXPECT_EQ(by("found"), 0);
  EXPECT_EQ(by("f1"), 1);
  EXPECT_EQ(by("exact"), 1);
  prompt.answers = {"一只猫"};
  prompt.language = "zh";
  prompt.metric = "f1";
  EXPECT_DOUBLE_EQ(score(prompt, "一只狗"), 2. / 3);
  EXPECT_EQ(metric_name(prompt), "F1 by character");
  EXPECT_THAT(error_of([&] { by("bleu"); }), AllOf(HasSubstr("'bleu'"), HasSubstr("rouge_l")));
  for (const char* metric : {"found", "any", "f1", "rouge_l", "exact", "classification",
                             "retrieval", "count", "edit_similarity"})
    EXPECT_GE(by(metric), 0);
}

TEST(DigitScores, UpToTheFirstWrongDigitAndInPlace) {
  const auto of = [](const char* key, const char* generated) {
    const auto scores = digit_scores(key, generated);
    return std::pair(scores.prefix, scores.in_place);
  };
  EXPECT_EQ(of("1234", " 1234."), std::pair(1., 1.));
  EXPECT_EQ(of("1234", "The key is 1294, not 1234"), std::pair(0.5, 0.75));
  EXPECT_EQ(of("1234", "12"), std::pair(0.5, 0.5));
  EXPECT_EQ(of("1234", "12345678"), std::pair(1., 1.));
  EXPECT_EQ(of("1234", "9234"), std::pair(0., 0.75));
  EXPECT_EQ(of("1234", "none"), std::pair(0., 0.));
  EXPECT_EQ(of("1234", ""), std::pair(0., 0.));
  EXPECT_THAT(error_of([] { digit_scores("", "1"); }), HasSubstr("without digits"));
  const auto of_prompt = pass_key_digits(asking("passkey:digits=4", {"1234"}), "It is 1294.");
  ASSERT_TRUE(of_prompt);
  EXPECT_EQ(of_prompt->prefix, 0.5);
  EXPECT_EQ(of_prompt->in_place, 0.75);
  EXPECT_FALSE(pass_key_digits(asking("needle", {"1234"}), "1234"));
  EXPECT_FALSE(pass_key_digits(asking("passkey", {}), "1234"));
}

}  // namespace
}  // namespace kvatlas::data
