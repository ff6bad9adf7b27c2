// SPDX-License-Identifier: Apache-2.0
// What the cards say of a policy: the doubt that its own numbers raise, the gravest first.
#include "viewer/models/advice.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvatlas::viewer {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

/// Four samples, with a lazy rate over 0.9 for each layer.
LazyModel lazy_model(const std::vector<double>& rates) {
  LazyModel model;
  model.choices.keep = {4, 64};
  model.shape.layers = static_cast<std::int64_t>(rates.size());
  for (int sample = 0; sample < 4; ++sample) {
    std::vector<double> masses;
    for (const double rate : rates) masses.push_back(sample < 4 * rate ? 0.95 : 0.5);
    model.masses.layers.push_back(masses);
  }
  return model;
}

TEST(LazyAdvice, LayersThatAreLazyInHalfOfTheSamples) {
  const LazySettings settings;
  const auto one = lazy_advice(lazy_model({1, 0.5, 0}), settings);
  EXPECT_THAT(one.reason, HasSubstr("1.5 of 3 layers put more than 0.9"));
  EXPECT_THAT(one.risk, StartsWith("Layer 1 is lazy in about half of the samples"));
  EXPECT_EQ(one.layer, 1);
  EXPECT_THAT(lazy_advice(lazy_model({0.5, 0, 0.5}), settings).risk,
              StartsWith("Layers 0 and 2 are lazy"));
  EXPECT_THAT(lazy_advice(lazy_model(std::vector<double>(8, 0.5)), settings).risk,
              StartsWith("Layers 0, 1, 2, 3, 4 and 3 more are lazy"));
}

TEST(LazyAdvice, LayersThatChangeWhileTheAnswerIsWritten) {
  const LazySettings settings;
  LazyModel model = lazy_model({1, 0, 0});
  EXPECT_THAT(lazy_advice(model, settings).risk, StartsWith("Samples agree on the lazy layers"));
  // Of one sample with five tokens: layer 1 is lazy at the first of them and at one later one.
  model.steps = {
      {{0.95, 0.95, 0.95, 0.95, 0.95}}, {{0.95, 0.95, 0.5, 0.5, 0.5}}, {{0.5, 0.5, 0.5, 0.5, 0.5}}};
  const auto advice = lazy_advice(model, settings);
  EXPECT_THAT(advice.risk, AllOf(StartsWith("Layer 1 is what it was"), HasSubstr("25.0 %")));
  EXPECT_EQ(advice.layer, 1);
  LazySettings high;
  high.threshold = 0.99;
  EXPECT_THAT(lazy_advice(lazy_model({1, 0}), high).reason, StartsWith("No layer puts more than"));
}

TEST(BlocksAdvice, NothingIsShared) {
  BlocksModel model;
  model.similarity.heads = 1;
  model.similarity.layers = 2;
  const auto advice = blocks_advice(model, {}, {{0, 1}});
  EXPECT_THAT(advice.reason, HasSubstr("nothing is shared"));
  EXPECT_FALSE(advice.layer);
}

TEST(BudgetsAdvice, TasksThatNeedOtherLayers) {
  BudgetsModel model;
  model.choices.window = 16;
  BudgetsView view;
  view.all.budgets = {100, 20, 60};
  BudgetSettings settings;
  settings.budget = 76;
  const auto alone = budgets_advice(model, settings, view);
  EXPECT_THAT(alone.reason, HasSubstr("Layer 0 needs 100 tokens and layer 1 only 20; the same for "
                                      "all would be 60"));
  EXPECT_THAT(alone.risk, HasSubstr("of one task"));
  view.tasks.resize(2);
  view.tasks[0].task = "prose";
  view.tasks[1].task = "code";
  view.tasks[1].distance = 0.05;
  EXPECT_THAT(budgets_advice(model, settings, view).risk, HasSubstr("at most 5.0 %"));
  view.tasks[1].distance = 0.25;
  EXPECT_THAT(budgets_advice(model, settings, view).risk, StartsWith("'code' has 25.0 %"));
}

TEST(SweepAdvice, AnswersThatComeOutPartlyRight) {
  const SweepModel model;
  SweepSettings settings;
  settings.length = 1024;
  SweepModel::Candidate candidate;
  candidate.variant = "lag";
  candidate.lag = 128;
  candidate.keep = 32;
  EXPECT_THAT(sweep_advice(model, settings, candidate).risk, HasSubstr("next partition alone"));
  candidate.full = 0.9;
  candidate.score = {0.85, 0.7, 1.0};
  EXPECT_THAT(sweep_advice(model, settings, candidate).risk,
              HasSubstr("as low as 0.700 where the full cache has 0.900"));
  candidate.digits_prefix = 0.5;
  candidate.digits_in_place = 0.75;
  EXPECT_THAT(sweep_advice(model, settings, candidate).risk,
              AllOf(HasSubstr("75.0 % of the digits"), HasSubstr("50.0 % before the first wrong")));
}

TEST(MeasuredRisk, GoesByTheInterval) {
  Measured measured;
  measured.samples = 100;
  EXPECT_EQ(measured_risk(measured), "");
  measured.loss = {0.05, 0.01, 0.09};
  EXPECT_THAT(measured_risk(measured), StartsWith("It costs score"));
  measured.loss = {0.05, -0.01, 0.09};
  EXPECT_THAT(measured_risk(measured), StartsWith("It may cost score"));
  measured.loss = {0, -0.02, 0.02};
  EXPECT_EQ(measured_risk(measured), "");
  measured.samples = 1;
  EXPECT_THAT(measured_risk(measured), StartsWith("The score was measured on 1 sample alone"));
  measured.samples = 50;
  measured.loss = {0, -0.0728, 0.0728};
  EXPECT_EQ(
      measured_risk(measured),
      "The score was measured on 50 samples alone: losses of up to 7.3 points would not show.");
}

}  // namespace
}  // namespace kvatlas::viewer
