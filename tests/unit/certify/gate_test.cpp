// SPDX-License-Identifier: Apache-2.0
#include "calibrate/certify/gate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/random.hpp"
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

TEST(Gate, JudgesLikenessWithoutScores) {
  Gate gate;
  gate.by_loss = false;
  gate.max_kl = 0.1;
  const auto judged = [&](std::vector<double> kl, std::vector<double> agreement) {
    GateVerdict verdict;
    verdict.name = "a";
    verdict.measured.samples = verdict.measured.texts = std::ssize(kl);
    verdict.measured.kl.median = quantile_of(kl, 0.5);
    verdict.measured.agreement = score_mean(agreement);
    judge_likeness(verdict, {kl, agreement}, gate);
    return verdict;
  };
  const std::vector<double> all(40, 1.0);
  const auto passed = judged(std::vector<double>(40, 0.01), all);
  EXPECT_EQ(passed.loss.kind, Kind::passed);
  EXPECT_THAT(line_of(passed, gate),
              AllOf(HasSubstr("passed: a on 40 prompts: the median KL divergence is 0.010"),
                    HasSubstr("at most 0.1 allowed"), Not(HasSubstr("points"))));
  EXPECT_EQ(judged(std::vector<double>(40, 0.5), all).loss.kind, Kind::failed);
  std::vector<double> halves(40, 0.01);
  for (std::size_t i = 0; i < 40; i += 2) halves[i] = 3;
  EXPECT_EQ(judged(halves, all).loss.kind, Kind::undecided);
  // It must keep both limits to pass.
  gate.min_agreement = 0.8;
  EXPECT_EQ(judged(std::vector<double>(40, 0.01), all).loss.kind, Kind::passed);
  const auto failed = judged(std::vector<double>(40, 0.01), std::vector<double>(40, 0.3));
  EXPECT_EQ(failed.loss.kind, Kind::failed);
  const auto out = verdicts_json(std::vector{failed}, {}, gate);
  EXPECT_EQ(out.at("policies").at(0).at("judged").at("kl"), "passed");
  EXPECT_EQ(out.at("policies").at(0).at("judged").at("agreement"), "failed");
  EXPECT_FALSE(out.contains("max_loss_points"));
  EXPECT_EQ(likeness_needs(gate).size(), 2u);
  gate.by_mean = true;
  EXPECT_EQ(judged(std::vector<double>(3, 0.01), std::vector<double>(3, 0.9)).loss.kind,
            Kind::passed);
}

/// A median above its limit seldom passes, and one below it seldom fails, though it is looked at
/// after every fifth text.
TEST(Gate, LikenessIsSeldomWrong) {
  constexpr int kRuns = 60;
  Gate gate;
  gate.by_loss = false;
  gate.max_kl = 1;
  Random random(3, "likeness");
  for (const double share_above : {0.45, 0.55}) {
    int wrong = 0;
    for (int run = 0; run < kRuns; ++run) {
      Likeness likeness;
      GateVerdict verdict;
      while (likeness.kl.size() < 100) {
        for (int i = 0; i < 20; ++i) likeness.kl.push_back(random.share() < share_above ? 2 : 0.5);
        verdict = {};
        judge_likeness(verdict, likeness, gate);
        if (verdict.loss.kind != Kind::undecided) break;
      }
      wrong += verdict.loss.kind == (share_above > 0.5 ? Kind::passed : Kind::failed);
    }
    EXPECT_LE(wrong, 0.05 * kRuns) << share_above;
  }
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
