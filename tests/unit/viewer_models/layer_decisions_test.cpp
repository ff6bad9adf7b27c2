// SPDX-License-Identifier: Apache-2.0
// What the tree, the jump box and the grid's strip say of a layer is what the screens decide.
#include "viewer/models/layer_decisions.hpp"

#include <gmock/gmock.h>

#include "tests/unit/viewer_models/open_profile.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace {

using calibrate::testing_profile::kLayers;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

Choices small_choices() {
  Choices choices;
  choices.lazy_arrays.keep = {4, 64};
  choices.lazy.threshold = 0.6055;  // half of the samples have a greater mass in layer 2
  choices.blocks.delta = 0.6;
  choices.budgets.budget = 64;
  return choices;
}

MethodModels models_of(const profile::Reader& profile, const Choices& choices) {
  const auto all = all_samples(profile);
  return {try_read([&] { return read_lazy_model(profile, all, choices.lazy_arrays, {}); }),
          try_read([&] { return read_blocks_model(profile, all, {}); }),
          try_read([&] { return read_budgets_model(profile, all, choices.budget_counts); })};
}

TEST(LayerDecisions, AreThoseOfTheScreens) {
  const OpenProfile open;
  Choices choices = small_choices();
  const MethodModels models = models_of(open.reader(), choices);
  for (const double share : {0.0, 0.3, 0.5, 1.0}) {
    choices.lazy.share = share;
    const auto decisions = layer_decisions(models, choices, kLayers);
    ASSERT_EQ(decisions.size(), std::size_t{kLayers});
    const LazyView lazy = lazy_view(*models.lazy.model, choices.lazy);
    const BudgetsView budgets = budgets_view(*models.budgets.model, choices.budgets);
    for (std::size_t l = 0; l < decisions.size(); ++l) {
      EXPECT_EQ(decisions[l].lazy, lazy.fixed.lazy[l] != 0) << share;
      EXPECT_EQ(decisions[l].budget, budgets.all.budgets[l]);
    }
  }
  choices.lazy.share = 0.5;
  const auto decisions = layer_decisions(models, choices, kLayers);
  EXPECT_FALSE(decisions[1].near_half);
  EXPECT_TRUE(decisions[2].near_half);
  // Every head joins layers 1 and 2.
  EXPECT_EQ(decisions[1].blocks, "4/4");
  EXPECT_EQ(decisions[2].blocks, "0/4");
}

TEST(LayerDecisions, AtShareZeroALayerThatNoSampleIsLazyInIsFull) {
  const OpenProfile open;
  Choices choices = small_choices();
  choices.lazy.share = 0;
  const auto decisions = layer_decisions(models_of(open.reader(), choices), choices, kLayers);
  EXPECT_THAT(layer_words(decisions, {}),
              ElementsAre(Pair("lazy", ElementsAre(1, 2, 3)), Pair("near half", ElementsAre(0))));
}

TEST(LayerDecisions, WhatTheProfileLacksIsNotKnown) {
  const OpenProfile open({.samples = 2, .lazy = false, .js = false});
  Choices choices = small_choices();
  choices.budgets.budget = 65;  // of none that was counted
  const auto decisions = layer_decisions(models_of(open.reader(), choices), choices, kLayers);
  EXPECT_FALSE(decisions[0].lazy);
  EXPECT_EQ(decisions[0].budget, -1);
  EXPECT_THAT(decisions[0].blocks, IsEmpty());
  profile::Header windows;
  windows.window = {0, 128, 0, 128};
  EXPECT_THAT(layer_words(decisions, windows),
              ElementsAre(Pair("windowed", ElementsAre(1, 3)), Pair("full", ElementsAre(0, 2))));
  EXPECT_THAT(layer_words({}, {}), IsEmpty());
}

}  // namespace
}  // namespace kvatlas::viewer
