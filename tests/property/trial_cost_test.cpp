// SPDX-License-Identifier: Apache-2.0
// Laws of what commands say that trials will cost. How near it comes to the truth is measured in
// docs/performance.md.
#include "calibrate/search/trial_cost.hpp"

#include <gtest/gtest.h>

#include "tests/support/golden.hpp"

namespace kvatlas::calibrate {
namespace {

class TrialCosts : public testing::Test {
 protected:
  TrialCosts() {
    for (const std::size_t tokens : {100, 100, 400}) {
      questions_.emplace_back();
      questions_.back().tokens.resize(tokens);
    }
  }
  double seconds(const std::vector<TrialRound>& rounds, std::size_t together = 1) const {
    return trial_cost(speed_, questions_, rounds, together).seconds;
  }

  const std::shared_ptr<const model::ModelFile> model_ =
      model::ModelFile::open(testing_support::golden_checkpoint("llama3_gqa_f32").string());
  const capture::RunSpeed speed_{*model_, {"cpu", "float32", ""}, false};
  std::vector<Question> questions_;
};

TEST_F(TrialCosts, GrowWithWhatIsAskedFor) {
  const double one = seconds({{1, 0, {0}}});
  EXPECT_GT(one, 0);
  EXPECT_GT(seconds({{40, 0, {0}}}), one);    // more policies
  EXPECT_GT(seconds({{1, 0, {0, 1}}}), one);  // more prompts
  EXPECT_GT(seconds({{1, 0, {2}}}), one);     // longer ones
  EXPECT_GT(seconds({{1, 1, {0}}}), one);     // another reading of the prompt
  EXPECT_GT(seconds({{40, 0, {0}, Measure::both}}), seconds({{40, 0, {0}}}));
  questions_[0].max_new = 64;
  EXPECT_GT(seconds({{1, 0, {0}}}), one);  // longer answers
}

TEST_F(TrialCosts, PromptsAreReadOnce) {
  const double one = seconds({{1, 0, {2}}}), two = seconds({{1, 0, {2}}, {1, 0, {2}}});
  EXPECT_NEAR(two - one, 12 * speed_.step(2, 2, 400), 1e-9);  // three quarters of 16 tokens
}

TEST_F(TrialCosts, PoliciesThatReadTheSameCacheReadItOnce) {
  TrialRound round{3, 0, {2}};
  const double own = seconds({round});
  round.in_place = 2;  // one cache for these and the full model, and one of its own
  EXPECT_NEAR(own - seconds({round}), 12 * (speed_.step(4, 4, 400) - speed_.step(4, 2, 400)), 1e-9);
  EXPECT_LT(seconds({round}), own);
}

TEST_F(TrialCosts, PromptsThatDecodeTogetherShareTheirSteps) {
  const double alone = speed_.step(2, 2, 100), shared = speed_.step(4, 4, 100) / 2;
  EXPECT_NEAR(seconds({{1, 0, {0, 1}}}, 4), seconds({{1, 0, {0, 1}}}) - 24 * (alone - shared),
              1e-9);
  // The last one is held by itself, and of many policies one prompt fills a step.
  EXPECT_EQ(seconds({{1, 0, {0}}}, 2), seconds({{1, 0, {0}}}));
  EXPECT_EQ(seconds({{40, 0, {0, 1}}}, 4), seconds({{40, 0, {0, 1}}}));
}

TEST_F(TrialCosts, PromptsAreReadAnewToBeRepeated) {
  const std::vector<std::size_t> sample = {2};
  const TrialRound plain{1, 0, sample}, repeated{1, 0, sample, Measure::score, 1},
      twice{1, 0, sample, Measure::score, 2};
  const double repeating = speed_.prefill(800) - speed_.prefill(400);
  EXPECT_NEAR(seconds({repeated}) - seconds({plain}), repeating, 1e-9);
  EXPECT_NEAR(seconds({twice}) - seconds({plain}), 2 * repeating, 1e-9);
  EXPECT_NEAR(seconds({plain, repeated}) - seconds({plain, plain}), speed_.prefill(400) + repeating,
              1e-9);
}

TEST_F(TrialCosts, WhatStandsBehindTheCutIsReadTokenByToken) {
  const double whole = seconds({{1, 0, {2}}});
  questions_[2].context_tokens = 370;
  EXPECT_NEAR(seconds({{1, 0, {2}}}) - whole,
              30 * speed_.step(2, 2, 400) + speed_.prefill(370) - speed_.prefill(400), 1e-9);
}

TEST_F(TrialCosts, AreSaidInWords) {
  const auto cost = trial_cost(speed_, questions_, std::vector<TrialRound>{{2, 0, {0, 1}}}, 1);
  EXPECT_EQ(cost.prompts, 2u);
  EXPECT_EQ(cost.answers, 6u);
  EXPECT_EQ(cost_text({75, 1, 6}), "about 1 min 15 s: 1 prompt is read, and 6 answers generated");
  EXPECT_EQ(cost_text({5, 12, 1}), "about 5 s: 12 prompts are read, and 1 answer generated");
}

TEST_F(TrialCosts, StreamedWeightsAreDecodedForEveryStep) {
  const capture::RunSpeed streaming{*model_, {"cpu", "float32", ""}, true};
  EXPECT_GT(streaming.weights(), 0);
  EXPECT_GE(streaming.step(1, 1, 100), streaming.weights());
}

}  // namespace
}  // namespace kvatlas::calibrate
