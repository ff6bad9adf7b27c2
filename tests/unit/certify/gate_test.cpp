// SPDX-License-Identifier: Apache-2.0
#include "calibrate/certify/gate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "tests/support/error_of.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing_support::refusal;
using Kind = LossVerdict::Kind;

std::vector<ScorePair> pairs_of(std::size_t count, std::size_t lost,
                                const std::string& task = "t") {
  std::vector<ScorePair> pairs;
  for (std::size_t i = 0; i < count; ++i)
    pairs.push_back({task, std::to_string(i), 1, i < lost ? 0.0 : 1.0});
  put_in_hashed_order(pairs);
  return pairs;
}

TEST(Gate, JudgesPairs) {
  Gate gate;
  gate.max_loss = 10;
  const auto passed = judge_pairs("a", pairs_of(100, 0), gate);
  EXPECT_EQ(passed.loss.kind, Kind::passed);
  EXPECT_EQ(passed.measured.samples, 100);
  EXPECT_THAT(line_of(passed, gate),
              AllOf(HasSubstr("passed: a loses 0.0"), HasSubstr("100 prompts, at most 10.0")));
  const auto failed = judge_pairs("b", pairs_of(100, 60), gate);
  EXPECT_EQ(failed.loss.kind, Kind::failed);
  const auto open = judge_pairs("c", pairs_of(20, 1), gate);
  EXPECT_EQ(open.loss.kind, Kind::undecided);
  EXPECT_THAT(line_of(open, gate),
              AllOf(HasSubstr("undecided"), HasSubstr("more text"), HasSubstr("--max-loss")));
  EXPECT_EQ(verdict_of_all(std::vector{passed, open}), "undecided");
  EXPECT_EQ(verdict_of_all(std::vector{passed, open, failed}), "failed");
  EXPECT_EQ(verdict_of_all(std::vector{passed}), "passed");
  gate.by_mean = true;
  EXPECT_EQ(judge_pairs("c", pairs_of(20, 1), gate).loss.kind, Kind::passed);
}

TEST(Gate, PromptsOfOneTextCountOnce) {
  auto pairs = pairs_of(40, 0);
  for (auto& pair : pairs) pair.group = std::to_string(std::stoi(pair.group) / 4);
  const auto verdict = judge_pairs("a", pairs, {});
  EXPECT_EQ(verdict.measured.texts, 10);
  EXPECT_EQ(verdict.rounds, 10u);
  EXPECT_THAT(line_of(verdict, {}), HasSubstr("40 prompts of 10 texts"));
}

TEST(Gate, TasksWeighTheSame) {
  auto pairs = pairs_of(10, 10, "lost");
  for (auto& pair : pairs_of(90, 0, "kept")) pairs.push_back(pair);
  const auto verdict = judge_pairs("a", pairs, {});
  EXPECT_NEAR(verdict.measured.loss.mean, 0.5, 1e-12);
  ASSERT_EQ(verdict.measured.tasks.size(), 2u);
  EXPECT_EQ(verdict.measured.tasks.at("lost").loss.mean, 1);
}

TEST(Gate, WritesJsonAndJunit) {
  Gate gate;
  gate.command = "certify";
  gate.subject = "<full>";
  gate.one = "run";
  gate.many = "runs";
  const std::vector verdicts = {judge_pairs("a & b", pairs_of(1000, 0), gate),
                                judge_pairs("c", pairs_of(20, 20), gate)};
  const auto out = verdicts_json(verdicts, {}, gate);
  EXPECT_EQ(out.at("verdict"), "failed");
  EXPECT_EQ(out.at("runs").at(0).at("run"), "a & b");
  EXPECT_EQ(out.at("runs").at(0).at("verdict"), "passed");
  const auto junit = junit_text(verdicts, std::vector<LeftOut>{{"d", "not there"}}, false, gate);
  EXPECT_THAT(junit, AllOf(HasSubstr("kvatlas certify"), HasSubstr("&lt;full&gt;"),
                           HasSubstr("name=\"a &amp; b\"/>"), HasSubstr("failures=\"1\""),
                           HasSubstr("skipped=\"1\"")));
}

TEST(Gate, AsksForEnough) {
  EXPECT_THAT(refusal([] { require_gate_texts(4, 4, false, "more lines"); }),
              AllOf(HasSubstr("of 4 texts"), HasSubstr("more lines; --force")));
  EXPECT_NO_THROW(require_gate_texts(4, 4, true, ""));
  const std::vector<double> scores = {0.2, 0.3};
  const std::vector<std::string> groups = {"a", "b"}, tasks = {"t", "t"};
  EXPECT_THAT(refusal([&] { require_gate_score(scores, groups, tasks, false); }),
              HasSubstr("0.25"));
  EXPECT_NO_THROW(require_gate_score(scores, groups, tasks, true));
}

}  // namespace
}  // namespace kvatlas::calibrate
