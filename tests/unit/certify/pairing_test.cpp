// SPDX-License-Identifier: Apache-2.0
#include "calibrate/certify/pairing.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/random.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/certify/files.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing_support::error_of;
using testing_support::refusal;
using testing_support::written_by_tool;
using Kind = LossVerdict::Kind;

ResultFile run_of(const std::vector<double>& scores, const std::string& task = "t") {
  ResultFile file;
  file.path = task + ".jsonl";
  file.format = "lm-eval";
  file.metric = "acc";
  for (std::size_t i = 0; i < scores.size(); ++i)
    file.answers.push_back({task, std::to_string(i), str("hash ", i), str("text ", i), "",
                            scores[i], str(task, ".jsonl:", i + 1)});
  return file;
}

PairedRuns pair(const ResultFile& full, const ResultFile& compressed, PairRequest request = {}) {
  return pair_runs({&full, 1}, {&compressed, 1}, request);
}

TEST(Pairing, PairsByTaskAndKey) {
  const auto full = run_of({1, 1, 0, 1});
  auto compressed = run_of({1, 0, 0, 1});
  std::reverse(compressed.answers.begin(), compressed.answers.end());  // the order is no part of it
  const auto paired = pair(full, compressed);
  ASSERT_THAT(paired.pairs, SizeIs(4));
  double lost = 0;
  for (const auto& one : paired.pairs) lost += one.full - one.score;
  EXPECT_EQ(lost, 1);
  EXPECT_THAT(paired.notes, IsEmpty());
}

TEST(Pairing, SaysThatNothingDiffers) {
  EXPECT_THAT(pair(run_of({1, 0}), run_of({1, 0})).notes, Contains(HasSubstr("compression ran")));
}

TEST(Pairing, OneTaskMayHaveTwoNames) {
  EXPECT_THAT(pair(run_of({1, 0}, "full"), run_of({1, 1}, "kv4")).pairs, SizeIs(2));
}

TEST(Pairing, RepeatsAreAveraged) {
  auto full = run_of({1, 1});
  full.same_key = SameKey::repeat;
  auto compressed = full;
  compressed.answers.push_back(compressed.answers.front());
  compressed.answers.back().score = 0;
  const auto paired = pair(full, compressed);
  ASSERT_THAT(paired.pairs, SizeIs(2));
  EXPECT_EQ(paired.pairs[0].score + paired.pairs[1].score, 1.5);
  EXPECT_THAT(paired.notes, Contains(HasSubstr("asked more often")));
}

TEST(Pairing, WhatIsRefused) {
  const auto full = run_of({1, 1, 0});
  auto other = full;
  other.answers[1].same = "another";
  EXPECT_THAT(refusal([&] { pair(full, other); }),
              AllOf(HasSubstr("t.jsonl:2: is of another prompt than t.jsonl:2"), HasSubstr("'1'")));
  other = full;
  other.answers.push_back(other.answers.front());
  EXPECT_THAT(error_of([&] { pair(full, other); }), HasSubstr("'0' stands at t.jsonl:1 already"));
  other.same_key = SameKey::ambiguous;
  EXPECT_THAT(refusal([&] { pair(full, other); }),
              AllOf(HasSubstr("cannot be told from t.jsonl:1"), HasSubstr("--force")));
  EXPECT_THAT(pair(full, other, {std::nullopt, true}).notes, Contains(HasSubstr("told apart")));
  other = full;
  other.metric = "acc_norm";
  EXPECT_THAT(refusal([&] { pair(full, other); }),
              AllOf(HasSubstr("'acc'"), HasSubstr("'acc_norm'"), HasSubstr("--metric")));
  other = full;
  other.format = "ruler";
  EXPECT_THAT(refusal([&] { pair(full, other); }), HasSubstr("the same tool"));
  auto seeded = full;
  seeded.settings["seed"] = "42";
  other.format = full.format;
  other.settings["seed"] = "43";
  EXPECT_THAT(refusal([&] { pair(seeded, other); }), AllOf(HasSubstr("'seed'"), HasSubstr("'43'")));
  EXPECT_THAT(refusal([&] {
                pair(full, run_of({1, 2, 0}));
              }),
              AllOf(HasSubstr("t.jsonl:2: scores 2"), HasSubstr("--range")));
}

TEST(Pairing, PromptsOfOneSide) {
  const auto full = run_of({1, 1, 1});
  auto compressed = run_of({1, 1, 1, 1});
  compressed.answers.erase(compressed.answers.begin());
  EXPECT_THAT(
      refusal([&] { pair(full, compressed); }),
      AllOf(HasSubstr("2 are in both"), HasSubstr("1 prompt in the full one alone (t.jsonl:1)"),
            HasSubstr("1 prompt in the compressed one alone (t.jsonl:4)"), HasSubstr("--force")));
  const auto paired = pair(full, compressed, {std::nullopt, true});
  EXPECT_EQ(paired.failed, 1u);
  EXPECT_EQ(paired.left_out, 1u);
  ASSERT_THAT(paired.pairs, SizeIs(3));
  double lost = 0;
  for (const auto& one : paired.pairs) lost += one.full - one.score;
  EXPECT_EQ(lost, 1);  // a failed answer is a loss, not a gap
  // Nothing in common is never paired.
  EXPECT_THAT(refusal([&] {
                auto strangers = run_of({1, 1});
                for (auto& answer : strangers.answers) answer.key += " other";
                pair(full, strangers, {std::nullopt, true});
              }),
              HasSubstr("0 are in both"));
}

TEST(Pairing, ScoresOfAnotherRange) {
  const auto paired = pair(run_of({10, 0}), run_of({5, 0}), {ValueRange{-10, 10}, false});
  double lost = 0;
  for (const auto& one : paired.pairs) lost += one.full - one.score;
  EXPECT_EQ(lost, 0.25);
}

TEST(Pairing, GroupsAreTexts) {
  auto full = run_of({1, 1, 1, 0});
  for (std::size_t i = 0; i < 4; ++i) full.answers[i].group = i < 2 ? "a" : "b";
  const auto paired = pair(full, full);
  EXPECT_EQ(judge_pairs("x", paired.pairs, {}).measured.texts, 2);
  for (auto& answer : full.answers) answer.group = answer.text = "";
  EXPECT_THAT(pair(full, full).notes, Contains(HasSubstr("--group")));
}

TEST(Pairing, TotalsAlone) {
  ResultFile full, compressed;
  full.path = "full.json";
  full.totals = {{"t", 0.9, 1000}};
  compressed.totals = {{"t", 0.89, 1000}};
  const auto judged = [&](double limit) {
    Gate gate;
    gate.max_loss = limit;
    return judge_totals("kv4", {&full, 1}, {&compressed, 1}, gate);
  };
  const auto verdict = judged(1);
  EXPECT_EQ(verdict.loss.kind, Kind::undecided);
  EXPECT_NEAR(verdict.loss.loss.mean, 1, 1e-9);
  // Two intervals of 97.5 %, so that both hold at once with 95 %.
  const Estimate a = binomial_mean(900, 1000, 0.975), b = binomial_mean(890, 1000, 0.975);
  EXPECT_NEAR(verdict.loss.loss.high, 100 * (a.high - b.low), 1e-9);
  EXPECT_EQ(judged(10).loss.kind, Kind::passed);
  compressed.totals[0].mean = 0.5;
  EXPECT_EQ(judged(10).loss.kind, Kind::failed);
  compressed.totals[0].mean = 0.12345;
  EXPECT_THAT(refusal([&] { judged(1); }), HasSubstr("0 or 1"));
  compressed.totals[0] = {"t", 0.5, 998};
  EXPECT_THAT(refusal([&] { judged(1); }), HasSubstr("not of the same prompts"));
}

/// The whole path, from two files' answers to the verdict, on made-up runs that lose so much. Files
/// are sorted with their hard texts first, as real ones are by length.
TEST(Pairing, VerdictsAreSeldomWrong) {
  constexpr int kRuns = 500;  // for each of two losses
  constexpr std::size_t kTexts = 150, kPrompts = 2;
  Random random(7, "certify");
  for (const double loss : {0.04, 0.06}) {
    int wrong = 0, missed = 0;
    for (int run = 0; run < kRuns; ++run) {
      ResultFile full = run_of({}), compressed = run_of({});
      // Of the first fifth of the texts four in five losses.
      for (std::size_t text = 0; text < kTexts; ++text) {
        const double own = text < kTexts / 5 ? 4 * loss : loss / 4;
        const bool lost = random.share() < own;
        for (std::size_t i = 0; i < kPrompts; ++i) {
          const Answer answer{"t",  str(run, '/', text, '/', i), "", str(run, '/', text), "", 1,
                              "f:1"};
          full.answers.push_back(answer);
          compressed.answers.push_back(answer);
          compressed.answers.back().score = lost ? 0 : 1;
        }
      }
      Gate gate;
      gate.max_loss = 5;
      const auto verdict = judge_pairs("run", pair(full, compressed).pairs, gate);
      const bool keeps = loss < 0.05;
      wrong += verdict.loss.kind == (keeps ? Kind::failed : Kind::passed);
      missed += verdict.measured.loss.low > loss || verdict.measured.loss.high < loss;
    }
    std::printf("loss %.2f: %.1f %% wrong verdicts, %.1f %% of the intervals miss\n", loss,
                100.0 * wrong / kRuns, 100.0 * missed / kRuns);
    EXPECT_LE(wrong, 0.05 * kRuns) << loss;
    EXPECT_LE(missed, 0.05 * kRuns) << loss;
  }
}

TEST(Pairing, FilesThatToolsWrote) {
  const ReadRequest strict{.filter = "strict"};
  const auto paired = pair_runs(read_results(written_by_tool("lm-eval/full"), strict),
                                read_results(written_by_tool("lm-eval/kv4"), strict), {});
  EXPECT_THAT(paired.pairs, SizeIs(60));
  EXPECT_THAT(paired.notes, IsEmpty());
  const auto epochs = pair_runs(read_results(written_by_tool("inspect-ai/full"), {}),
                                read_results(written_by_tool("inspect-ai/kv4"), {}), {});
  EXPECT_THAT(epochs.pairs, SizeIs(60));
  const auto rows = pair_runs(read_results(written_by_tool("kvpress/full"), {}),
                              read_results(written_by_tool("kvpress/kv4"), {}), {});
  EXPECT_THAT(rows.pairs, SizeIs(60));
  EXPECT_THAT(rows.notes, Contains(HasSubstr("--group")));
}

}  // namespace
}  // namespace kvatlas::calibrate
