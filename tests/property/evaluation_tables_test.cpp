// SPDX-License-Identifier: Apache-2.0
// What `kvatlas evaluate` prints of scores that are known.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "calibrate/search/evaluate.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

void add(Evaluation& evaluation, const char* task, std::int64_t length, double depth, double full,
         double other) {
  Question question;
  question.prompt.task = task;
  question.prompt.length = length;
  question.prompt.depth = depth;
  question.prompt.answers = {"1234"};
  evaluation.questions.push_back(question);
  Judged judged;
  judged.score = full;
  judged.outcome.full_bytes = judged.outcome.kept_bytes = 1024;
  evaluation.full.push_back(judged);
  judged.score = other;
  evaluation.judged[0].push_back(judged);
}

TEST(EvaluationTables, ScoresOverLengthAndDepth) {
  Evaluation evaluation;
  evaluation.policies = {"snapkv:budget=64"};
  evaluation.judged.resize(1);
  for (int twice = 0; twice < 2; ++twice) {
    add(evaluation, "needle", 512, 0.25, 1, 1);
    add(evaluation, "needle", 1024, 0.25, 1, 0.5 * twice);
    add(evaluation, "needle", 1024, 0.75, 0.5, 0);
  }
  const auto tables = evaluation_tables(evaluation);
  ASSERT_THAT(tables, SizeIs(3));
  EXPECT_EQ(tables[0].title, "Score over depth and length: full");
  EXPECT_THAT(tables[0].columns, ElementsAre("depth", "512", "1024"));
  EXPECT_THAT(tables[0].rows,
              ElementsAre(ElementsAre("0.25", "1.00", "1.00"), ElementsAre("0.75", "-", "0.50")));
  EXPECT_EQ(tables[1].title, "Score over depth and length: snapkv:budget=64");
  EXPECT_THAT(tables[1].rows,
              ElementsAre(ElementsAre("0.25", "1.00", "0.25"), ElementsAre("0.75", "-", "0.00")));
  EXPECT_EQ(tables[2].title, "All 6 prompts");
  EXPECT_EQ(tables[2].rows.at(0).at(0), "full");
}

TEST(EvaluationTables, PromptsOfOneTextCountOnce) {
  Evaluation evaluation;
  evaluation.policies = {"snapkv:budget=64"};
  evaluation.judged.resize(1);
  // One text is lost at all four depths, another at none, and a third prompt is a text of its own.
  for (int i = 0; i < 8; ++i) {
    add(evaluation, "needle", 512, 0.25, 1, i < 4 ? 0 : 1);
    evaluation.questions.back().prompt.group = i < 4 ? "needle/0" : "needle/1";
  }
  add(evaluation, "needle", 512, 0.25, 1, 1);
  EXPECT_EQ(evaluation_tables(evaluation).back().title, "All 9 prompts of 3 texts");
  const Summary lost = summarise(evaluation).at(1);
  EXPECT_EQ(lost.scored, 9u);
  EXPECT_EQ(lost.texts, 3u);
  EXPECT_NEAR(lost.loss.mean, 100.0 / 3, 1e-9);
  EXPECT_GT(lost.loss.high, 90);  // three texts say little, though they are nine prompts
  EXPECT_EQ(evaluation_json(evaluation).at("texts"), 3);
}

TEST(EvaluationTables, DrawsOfAPolicyCountAsTheirMean) {
  std::vector<Judged> draws(4);
  for (std::size_t i = 0; i < draws.size(); ++i) {
    Judged& draw = draws[i];
    const auto number = static_cast<double>(i);
    draw.score = i < 3 ? 1 : 0;
    draw.text = std::to_string(i);
    draw.digits = data::DigitScores{0.25 * number, 1};
    draw.right_at_once = i < 3;
    draw.outcome.kl = number;
    draw.outcome.kept_bytes = 100 + number;
    draw.outcome.full_bytes = 1000;
    draw.outcome.held_bytes.assign(i < 2 ? 1 : 2, number);
  }
  const Judged mean = mean_of_draws(draws);
  EXPECT_EQ(mean.score, 0.75);
  EXPECT_EQ(mean.text, "0");
  EXPECT_EQ(mean.digits->prefix, 0.375);
  EXPECT_EQ(mean.digits->in_place, 1);
  EXPECT_FALSE(mean.right_at_once);
  EXPECT_EQ(mean.outcome.kl, 1.5);
  EXPECT_TRUE(std::isnan(mean.outcome.agreement));
  EXPECT_EQ(mean.outcome.kept_bytes, 101.5);
  EXPECT_EQ(mean.outcome.full_bytes, 1000);
  EXPECT_THAT(mean.outcome.held_bytes, ElementsAre(1.5, 2.5));
}

TEST(EvaluationTables, WhatIsHeldWhileLongAnswersAreGenerated) {
  const auto tables_of = [](std::size_t steps) {
    Evaluation evaluation;
    evaluation.policies = {"streaming:recent=60"};
    evaluation.judged.resize(1);
    add(evaluation, "needle", 512, 0.25, 1, 1);
    // The full cache grows by a mebibyte a token; the other one stays as it was.
    Outcome& full = evaluation.full[0].outcome;
    Outcome& other = evaluation.judged[0][0].outcome;
    full.kept_bytes = full.full_bytes = other.full_bytes = 36 << 20;
    other.kept_bytes = 9 << 20;
    for (std::size_t i = 0; i < steps; ++i) {
      full.held_bytes.push_back(full.kept_bytes + static_cast<double>(i << 20));
      other.held_bytes.push_back(other.kept_bytes);
    }
    return evaluation_tables(evaluation);
  };
  const auto is_held = [](const Table& table) { return table.title.starts_with("KV cache held"); };
  const auto few = tables_of(63), many = tables_of(65);
  EXPECT_EQ(std::find_if(few.begin(), few.end(), is_held), few.end());
  const auto held = std::find_if(many.begin(), many.end(), is_held);
  ASSERT_NE(held, many.end());
  EXPECT_EQ(held->title, "KV cache held while generating up to 66 tokens");
  EXPECT_THAT(
      held->rows,
      ElementsAre(ElementsAre("full", "36.00 MiB", "68.00 MiB", "100.00 MiB", "100.0 %"),
                  ElementsAre("streaming:recent=60", "9.00 MiB", "9.00 MiB", "9.00 MiB", "9.0 %")));
}

TEST(EvaluationTables, ATableATaskAndNoneOfOneLength) {
  Evaluation evaluation;
  evaluation.policies = {"streaming:recent=60"};
  evaluation.judged.resize(1);
  add(evaluation, "needle", 512, 0.25, 1, 1);
  add(evaluation, "", 0, -1, 0.5, 0.25);
  const auto tables = evaluation_tables(evaluation);
  ASSERT_THAT(tables, SizeIs(3));
  EXPECT_THAT(tables[0].title, testing::StartsWith("Task needle"));
  EXPECT_THAT(tables[1].title, testing::StartsWith("Your own prompts"));
  EXPECT_EQ(tables[2].title, "All 2 prompts: means of the means of 2 tasks");
}

TEST(EvaluationTables, ATaskOfManyPromptsWeighsNoMoreThanOneOfFew) {
  Evaluation evaluation;
  evaluation.policies = {"streaming:recent=60"};
  evaluation.judged.resize(1);
  for (int i = 0; i < 9; ++i) add(evaluation, "vt", 0, -1, 1, 1);
  for (int i = 0; i < 3; ++i) add(evaluation, "cwe", 0, -1, 0.5, 0);
  const Summary all = summarise(evaluation).at(1);
  EXPECT_EQ(all.tasks, 2u);
  EXPECT_EQ(all.score.mean, 0.5);
  EXPECT_EQ(all.full_score.mean, 0.75);
  EXPECT_EQ(all.loss.mean, 25);
  EXPECT_THAT(all.losses, ElementsAre(25, 25, 25));
  EXPECT_EQ(all.score_over_prompts, 0.75);
  const auto one = evaluation_json(evaluation).at("policies").at(1);
  EXPECT_EQ(one.at("score").at("mean"), 0.5);
  EXPECT_EQ(one.at("score_over_prompts"), 0.75);
  EXPECT_EQ(one.at("tasks").at("vt").at("score").at("mean"), 1);
}

TEST(EvaluationTables, DigitsOfPassKeysBesideTheScoreAndOverLengthAndDepth) {
  Evaluation evaluation;
  evaluation.policies = {"snapkv:budget=64"};
  evaluation.judged.resize(1);
  for (const std::int64_t length : {512, 1024}) {
    add(evaluation, "passkey:digits=4", length, 0.5, 1, 0);
    evaluation.full.back().digits = {1, 1};
    evaluation.judged[0].back().digits = {0.25, length == 512 ? 0.75 : 0.5};
  }
  add(evaluation, "needle", 2048, 0.5, 1, 1);  // has no digits
  const auto tables = evaluation_tables(evaluation);
  ASSERT_THAT(tables, SizeIs(9));
  EXPECT_EQ(tables[0].columns.at(6), "digits to the first wrong");
  EXPECT_EQ(tables[0].columns.at(7), "digits in place");
  EXPECT_THAT(tables.back().title, testing::StartsWith("All "));
  EXPECT_THAT(tables.back().columns, SizeIs(6));
  EXPECT_THAT(tables[0].rows.at(1).at(6).text, testing::StartsWith("0.25 ["));
  EXPECT_THAT(tables[0].rows.at(1).at(7).text, testing::StartsWith("0.62 ["));
  EXPECT_THAT(tables[1].columns, SizeIs(6));  // of the needle
  EXPECT_EQ(tables[5].title,
            "Digits right up to the first wrong one over depth and length: "
            "snapkv:budget=64");
  EXPECT_THAT(tables[5].rows, ElementsAre(ElementsAre("0.50", "0.25", "0.25", "-")));
  EXPECT_EQ(tables[7].title, "Digits right at their place over depth and length: snapkv:budget=64");
  EXPECT_THAT(tables[7].rows, ElementsAre(ElementsAre("0.50", "0.75", "0.50", "-")));

  const auto measured = report_json(measured_of(evaluation).at(1));
  EXPECT_EQ(measured.at("digits_prefix").at("mean"), 0.25);
  EXPECT_EQ(measured.at("digits_in_place").at("mean"), 0.625);
  const auto& cells = measured.at("by_length_and_depth");
  EXPECT_EQ(cells.at(0).at("digits_in_place"), 0.75);
  EXPECT_FALSE(cells.at(2).contains("digits_in_place"));
  EXPECT_EQ(measured.at("full_by_length_and_depth").at(0).at("digits_prefix"), 1);
}

TEST(EvaluationTables, DivergencesWithoutAnIntervalForTheirMean) {
  Evaluation evaluation;
  evaluation.policies = {"snapkv:budget=64"};
  evaluation.judged.resize(1);
  for (int text = 0; text < 8; ++text) {
    add(evaluation, "needle", 512, 0.5, 1, 1);
    evaluation.judged[0].back().outcome.kl = text == 7 ? 5 : 0.02;
  }
  const auto tables = evaluation_tables(evaluation);
  ASSERT_THAT(tables, SizeIs(2));
  EXPECT_THAT(tables[0].columns, ElementsAre("policy", "mean", "median", "90th percentile",
                                             "above 0.1 nats", "above 1 nat", "agreement"));
  ASSERT_THAT(tables[0].rows, SizeIs(1));  // the full cache is no distance from itself
  const auto& row = tables[0].rows[0];
  EXPECT_EQ(row.at(1), "0.642");
  EXPECT_EQ(row.at(2), "0.020 [0.020, 5.000]");
  EXPECT_EQ(row.at(3), "5.000 [at least 0.020]");
  EXPECT_THAT(row.at(4).text, testing::StartsWith("0.12 [0.00, 0.5"));
  const auto kl = report_json(measured_of(evaluation).at(1)).at("kl");
  EXPECT_EQ(kl.at("median").at("value"), 0.02);
  EXPECT_TRUE(kl.at("p90").at("high").is_null());
  EXPECT_FALSE(kl.contains("low") || kl.contains("high"));
}

TEST(EvaluationTables, ScoresByTurn) {
  Evaluation evaluation;
  evaluation.policies = {"snapkv:budget=64"};
  evaluation.judged.resize(1);
  for (int text = 0; text < 4; ++text)
    for (const std::int64_t turn : {1, 2}) {
      add(evaluation, "needle:turns=2", 512, -1, 1, turn == 1 ? 1 : text % 2 * 0.5);
      evaluation.questions.back().prompt.turn = turn;
      evaluation.questions.back().prompt.group = std::to_string(text);
    }
  const auto tables = evaluation_tables(evaluation);
  ASSERT_THAT(tables, SizeIs(2));
  EXPECT_EQ(tables[0].title, "Score by turn, 4 texts");
  EXPECT_THAT(tables[0].columns, ElementsAre("policy", "turn 1", "turn 2"));
  EXPECT_EQ(tables[0].rows.at(0).at(0), "full");
  EXPECT_THAT(tables[0].rows.at(1).at(1).text, testing::StartsWith("1.00 [0.4"));  // four of four
  EXPECT_THAT(tables[0].rows.at(1).at(2).text, testing::StartsWith("0.25 [0.0"));
  const auto by_turn = evaluation_json(evaluation).at("policies").at(1).at("by_turn");
  EXPECT_EQ(by_turn.at(1).at("turn"), 2);
  EXPECT_EQ(by_turn.at(1).at("samples"), 4);
  EXPECT_EQ(by_turn.at(1).at("score").at("mean"), 0.25);
  EXPECT_EQ(report_json(measured_of(evaluation).at(1)).at("by_turn"), by_turn);
  EXPECT_EQ(
      report_json(measured_of(evaluation).at(1)).at("full_by_turn").at(1).at("score").at("mean"),
      1);
  EXPECT_FALSE(evaluation_json(Evaluation{}).at("policies").at(0).contains("by_turn"));
}

}  // namespace
}  // namespace kvatlas::calibrate
