// SPDX-License-Identifier: Apache-2.0
#include "data/longbench.hpp"

#include <fstream>
#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "data/prompts.hpp"
#include "data/scores.hpp"
#include "data/tasks.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/places.hpp"
#include "tests/unit/data/parse_prompt.hpp"

namespace kvatlas::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing_support::error_of;

TEST(LongBench, EveryDatasetIsWhole) {
  std::set<std::string> names;
  for (const auto& dataset : longbench_datasets()) {
    names.insert(dataset.name);
    EXPECT_NO_THROW(require_metric(dataset.metric, ErrorCode::internal)) << dataset.name;
    EXPECT_TRUE(std::set<std::string>({"en", "zh", "code"}).count(dataset.language));
    EXPECT_TRUE(std::set<std::int64_t>({32, 64, 128, 512}).count(dataset.answer_tokens));
    EXPECT_THAT(dataset.prompt_template, HasSubstr("{context}"));
    // LongBench's summaries and the next line of code ask no question of their own.
    const bool asks = dataset.prompt_template.find("{input}") != std::string::npos;
    EXPECT_EQ(asks,
              !std::set<std::string>({"gov_report", "multi_news", "vcsum", "lcc", "passage_count"})
                   .count(dataset.name));
    EXPECT_EQ(longbench_dataset(dataset.name), &dataset);
    EXPECT_EQ(longbench_dataset(dataset.name + "_e"), &dataset);
    EXPECT_EQ(answer_tokens(dataset.name + "_e"), dataset.answer_tokens);
  }
  EXPECT_THAT(names, SizeIs(21));
  for (const char* none : {"", "_e", "needle", "qasper_e_e", "Qasper"})
    EXPECT_EQ(longbench_dataset(none), nullptr) << none;
}

TEST(LongBench, FewShotAndCodeKeepToPlainText) {
  std::set<std::string> plain, first_line;
  for (const auto& dataset : longbench_datasets()) {
    if (!dataset.chat) plain.insert(dataset.name);
    if (dataset.first_line) first_line.insert(dataset.name);
  }
  EXPECT_THAT(plain, ElementsAre("lcc", "lsht", "repobench-p", "samsum", "trec", "triviaqa"));
  EXPECT_THAT(first_line, ElementsAre("lsht", "samsum", "trec", "triviaqa"));
}

TEST(LongBench, LinesOfItsFilesBecomePrompts) {
  const Prompt prompt = parse_prompt(
      R"({"input":"Who?","context":"A {input} of old.","answers":["He","She"],"length":5,)"
      R"("dataset":"2wikimqa","language":"en","all_classes":null,"_id":"0f3a"})");
  EXPECT_EQ(prompt.id, "0f3a");
  EXPECT_EQ(prompt.task, "2wikimqa");
  EXPECT_EQ(prompt.length, 0) << "its length is in words";
  EXPECT_EQ(prompt.language, "en");
  const std::string ask =
      "Answer the question based on the given passages. Only give me the answer and do not output "
      "any other words.\n\n";
  EXPECT_EQ(prompt.as_text(), ask + "The following are given passages.\nA {input} of old.\n\n" +
                                  ask + "Question: Who?\nAnswer:");
  EXPECT_EQ(score(prompt, "She."), 1);

  const Prompt trec = parse_prompt(
      R"({"input":"Q","context":"C","answers":["Food"],"dataset":"trec","all_classes":["Food","Date"]})");
  EXPECT_EQ(trec.as_text(),
            "Please determine the type of the question below. Here are some examples of "
            "questions.\n\nC\nQ");
  EXPECT_THAT(trec.all_classes, ElementsAre("Food", "Date"));
  EXPECT_EQ(parse_prompt(R"({"context":"C","input":"","dataset":"lcc"})").as_text(),
            "Please complete the code given below. \nCNext line of code:\n");
  EXPECT_EQ(parse_prompt(R"({"context":"文","input":"问","dataset":"dureader"})").as_text(),
            "请基于给定的文章回答下述问题。\n\n文章：文\n\n请基于上述文章回答下面的问题。\n\n问题："
            "问\n回答：");
}

TEST(LongBench, AFileInItsLayoutIsReadWhole) {
  const auto path = testing_support::source_folder() / "tests/unit/data/longbench.jsonl";
  const PromptsFile file = read_prompts(path);
  EXPECT_THAT(file.unread, SizeIs(0));
  std::ifstream lines(path);
  std::string text;
  std::set<std::string> metrics;
  for (const auto& prompt : file.prompts) {
    SCOPED_TRACE(prompt.task);
    ASSERT_TRUE(std::getline(lines, text));
    const auto line = nlohmann::json::parse(text);
    EXPECT_EQ(prompt.task, line.at("dataset"));
    EXPECT_EQ(prompt.id, line.at("_id"));
    EXPECT_EQ(prompt.language, line.at("language"));
    EXPECT_EQ(prompt.answers, line.at("answers").get<std::vector<std::string>>());
    const auto& classes = line.at("all_classes");
    EXPECT_THAT(prompt.all_classes, SizeIs(classes.is_null() ? 0 : classes.size()));
    EXPECT_EQ(prompt.as_text(), longbench_dataset(prompt.task)
                                    ->fill(line.at("context").get<std::string>(),
                                           line.at("input").get<std::string>()));
    EXPECT_EQ(prompt.length, 0) << "its length is in words";
    for (const auto& answer : prompt.answers) EXPECT_NEAR(score(prompt, answer), 1, 1e-7) << answer;
    EXPECT_LT(score(prompt, "Nothing of the kind: 9."), 0.5);
    metrics.insert(metric_name(prompt));
  }
  EXPECT_FALSE(std::getline(lines, text));
  EXPECT_THAT(metrics, ElementsAre("F1", "F1 by character", "ROUGE-L", "classification",
                                   "edit similarity", "share of numbers right"));
}

TEST(LongBench, ATaskOrATextOfItsOwnComesFirst) {
  EXPECT_EQ(parse_prompt(R"({"context":"C","input":"I","dataset":"trec","task":"mine"})").as_text(),
            "C\n\nI");
  EXPECT_EQ(parse_prompt(R"({"text":"whole","dataset":"trec"})").as_text(), "whole");
}

TEST(LongBench, IsNotMadeButRead) {
  EXPECT_THAT(error_of([] { make_prompt({"qasper"}, [](const Prompt&) { return 1; }); }),
              HasSubstr("dataset of LongBench"));
}

TEST(TruncateMiddle, KeepsBothEnds) {
  std::vector<std::int64_t> tokens(10);
  std::iota(tokens.begin(), tokens.end(), 0);
  EXPECT_EQ(truncate_middle(tokens, 10), tokens);
  EXPECT_EQ(truncate_middle(tokens, 11), tokens);
  EXPECT_THAT(truncate_middle(tokens, 4), ElementsAre(0, 1, 8, 9));
  EXPECT_THAT(truncate_middle(tokens, 5), ElementsAre(0, 1, 7, 8, 9));
  EXPECT_THAT(truncate_middle(tokens, 1), ElementsAre(9));
  EXPECT_THAT(truncate_middle(tokens, 0), SizeIs(0));
  EXPECT_THAT(error_of([&] { truncate_middle(tokens, -1); }), HasSubstr("-1"));
}

}  // namespace
}  // namespace kvatlas::data
