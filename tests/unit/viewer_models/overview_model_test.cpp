// SPDX-License-Identifier: Apache-2.0
#include "viewer/methods/overview_model.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>

#include "base/str.hpp"
#include "tests/support/precision_section.hpp"
#include "tests/unit/viewer_models/open_profile.hpp"
#include "viewer/methods/choices_document.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Choices choices_of_small() {
  Choices choices;
  choices.length = 1000;
  choices.lazy_arrays.keep = {4, 64};
  choices.lazy.threshold = 0.7;
  choices.blocks.proximal = {4, 64};
  choices.blocks.delta = 0.6;
  choices.budgets.budget = 64;
  choices.sweep.wanted_compression = 0.2;
  return choices;
}

OverviewModel overview_of(const OpenProfile& profile, const Choices& choices,
                          std::span<const calibrate::Document> documents) {
  const auto positions = all_samples(profile.reader());
  MethodReader methods(profile.reader(), positions, choices, documents);
  return read_overview_model(profile.reader(), methods.all(), documents);
}

json sweep_section() {
  return {{"settings", {{"lag", 32}, {"ratio", "1/2"}, {"sink", 16}, {"variant", "lag"}}},
          {"sweep",
           {{{"variant", "lag"},
             {"ratio", "1/2"},
             {"lag", 32},
             {"keep", 16},
             {"compression", 0.4},
             {"full", 1},
             {"score", 0.9},
             {"low", 0.8},
             {"high", 1.0}}}}};
}

TEST(OverviewModel, CardsFollowTheSettings) {
  const OpenProfile profile;
  Choices choices = choices_of_small();
  calibrate::Document document;
  document.sections["lagkv"] = sweep_section();
  document.sections["precision"] = testing_support::precision_section();
  calibrate::HeadKv heads;
  heads.select.budget = 64;
  heads.fixed = calibrate::HeadBudgets{{90, 6}, {48, 48}, {100, 20}, {48, 24}};
  document.sections["headkv"] = calibrate::section_of(heads);
  const auto model = overview_of(profile, choices, {&document, 1});
  EXPECT_THAT(model.facts, Contains(Field(&Fact::value, "4 query, 2 KV, of 8")));
  EXPECT_THAT(model.provenance,
              Contains(Field(&Fact::value, AllOf(HasSubstr("4 needle"), HasSubstr("8 passkey")))));
  // 4 layers, 2 KV heads of 8: 256 bytes a token.
  auto view = overview_view(model, choices);
  EXPECT_THAT(view.cache.front().value, HasSubstr("250 KiB at 1000 tokens"));
  ASSERT_EQ(view.cards.size(), 6u);
  for (const auto& card : view.cards) {
    EXPECT_THAT(card.missing, IsEmpty()) << card.title;
    EXPECT_THAT(card.advice.reason, Not(IsEmpty())) << card.title;
    EXPECT_THAT(card.advice.risk, Not(IsEmpty())) << card.title;
    if (card.section != "precision") {
      EXPECT_THAT(card.score, HasSubstr("not measured")) << card.title;
    }
    EXPECT_FALSE(card.chart.table.rows.empty()) << card.title;
  }
  // Two of four layers keep 68 of 1000 tokens.
  EXPECT_NEAR(view.cards[0].kept_share, (2 + 2 * 0.068) / 4, 1e-9);
  EXPECT_NEAR(view.cards[0].kept_bytes, 256e3 * (2 + 2 * 0.068) / 4, 1e-3);
  EXPECT_EQ(view.cards[0].chart.bars.front().bars[1].emphasis, Emphasis::strong);
  EXPECT_THAT(view.cards[0].advice.reason, HasSubstr("2.0 of 4 layers"));
  // A block of layers 1 and 2 leaves out a quarter of the distant keys.
  EXPECT_NEAR(view.cards[1].kept_share, 1 - 0.5 * 0.25 * 0.932, 1e-9);
  EXPECT_THAT(view.cards[1].advice.reason, HasSubstr("layers 1 to 2"));
  EXPECT_THAT(view.cards[1].advice.risk, HasSubstr("similarity of only 0.88"));
  EXPECT_EQ(view.cards[1].advice.layer, 1);
  EXPECT_NEAR(view.cards[2].kept_share, 0.064, 1e-9);
  EXPECT_THAT(view.cards[2].advice.reason, HasSubstr("Layer 0 needs"));
  // 48 tokens a head in the mean, and the window of 16.
  EXPECT_NEAR(view.cards[3].kept_share, 0.064, 1e-9);
  EXPECT_THAT(view.cards[3].advice.reason, HasSubstr("KV head 0 of layer 2 keeps 100 tokens"));
  EXPECT_THAT(view.cards[3].advice.risk, HasSubstr("KV head 1 of layer 0 keeps only 6"));
  EXPECT_EQ(view.cards[3].chart.bars.front().bars[2].height, 100);
  EXPECT_THAT(view.cards[4].setting, HasSubstr("lag 32, ratio 1/2"));
  // Six sides of layers at 8.5 bits, two at 5.
  EXPECT_NEAR(view.cards[5].kept_share, (6 * 8.5 + 2 * 5) / (8 * 16), 1e-9);
  EXPECT_EQ(view.cards[5].chart.bars.front().bars[1].label, "int4");
  EXPECT_EQ(view.cards[5].score, "5.0 points lost [0.0, 10.0] on 8 samples");

  choices.lazy.threshold = 0.95;
  choices.precision_point = 0;
  view = overview_view(model, choices);
  EXPECT_NEAR(view.cards[5].kept_share, 5.0 / 16, 1e-9);
  EXPECT_THAT(view.cards[5].score, HasSubstr("not measured at this setting"));
  EXPECT_NEAR(view.cards[0].kept_share, 1, 1e-9);
  EXPECT_THAT(view.cards[0].advice.reason, HasSubstr("No layer"));
}

TEST(OverviewModel, AtShareZeroALayerThatIsNeverLazyIsDrawnAsFull) {
  const OpenProfile profile;
  Choices choices = choices_of_small();
  choices.lazy.share = 0;
  const auto model = overview_of(profile, choices, {});
  const auto& bars = overview_view(model, choices).cards[0].chart.bars.front().bars;
  EXPECT_EQ(bars[0].emphasis, Emphasis::normal);
  EXPECT_EQ(bars[1].emphasis, Emphasis::strong);
}

TEST(OverviewModel, MeasuredIsOfOneSettingAlone) {
  const OpenProfile profile;
  Choices choices = choices_of_small();
  calibrate::Document document;
  document.sections["simlayerkv"] = {
      {"settings", {{"threshold", 0.7}, {"initial", 4}, {"recent", 64}, {"granularity", "layer"}}},
      {"measured",
       {{"samples", 8},
        {"score", {{"mean", 0.75}, {"low", 0.5}, {"high", 1}}},
        {"full", {{"mean", 1}, {"low", 1}, {"high", 1}}},
        {"loss", {{"mean", 0.25}, {"low", 0}, {"high", 0.5}}},
        {"kept_share", 0.6}}}};
  const auto model = overview_of(profile, choices, {&document, 1});
  auto card = overview_view(model, choices).cards[0];
  ASSERT_TRUE(card.measured);
  EXPECT_NEAR(change_of(*card.measured).mean, -25, 1e-9);
  EXPECT_NEAR(change_of(*card.measured).low, -50, 1e-9);
  EXPECT_EQ(card.score, "25.0 points lost [0.0, 50.0] on 8 samples");
  EXPECT_THAT(card.advice.risk, HasSubstr("may cost score"));
  auto unchanged = document;
  unchanged.sections["simlayerkv"]["measured"]["score"]["mean"] = 1;
  unchanged.sections["simlayerkv"]["measured"]["loss"] = {
      {"mean", 0}, {"low", -0.5}, {"high", 0.5}};
  const auto same = overview_of(profile, choices, {&unchanged, 1});
  EXPECT_EQ(overview_view(same, choices).cards[0].score,
            "0 points lost [-50.0, 50.0] on 8 samples");
  // What a composition scored is not the score of its parts.
  auto composed = document;
  composed.compose = {"simlayerkv", "lagkv"};
  const auto of_parts = overview_of(profile, choices, {&composed, 1});
  EXPECT_FALSE(overview_view(of_parts, choices).cards[0].measured);
  choices.lazy.threshold = 0.71;
  card = overview_view(model, choices).cards[0];
  EXPECT_FALSE(card.measured);
  EXPECT_THAT(card.score, HasSubstr("not measured at this setting"));
}

TEST(OverviewModel, SaysWhatWasNotRecorded) {
  const OpenProfile bare({.lazy = false, .js = false, .scores = false});
  const Choices choices = choices_of_small();
  const auto view = overview_view(overview_of(bare, choices, {}), choices);
  EXPECT_THAT(view.cards[0].missing, HasSubstr("--capture lazy"));
  EXPECT_THAT(view.cards[1].missing, HasSubstr("--capture js"));
  EXPECT_THAT(view.cards[2].missing, HasSubstr("--capture scores"));
  EXPECT_THAT(view.cards[3].missing, HasSubstr("kvatlas calibrate headkv"));
  EXPECT_THAT(view.cards[4].missing, HasSubstr("kvatlas calibrate lagkv"));
  EXPECT_THAT(view.cards[5].missing, HasSubstr("kvatlas calibrate precision"));
}

TEST(OverviewModel, SaysWhatTheModelsCacheCannotFollow) {
  const OpenProfile profile({.latent = true});
  const Choices choices = choices_of_small();
  const auto view = overview_view(overview_of(profile, choices, {}), choices);
  EXPECT_EQ(view.cards[0].missing, "");
  for (std::size_t kind = 1; kind < view.cards.size(); ++kind)
    EXPECT_THAT(view.cards[kind].missing,
                HasSubstr(str("'", view.cards[kind].section, "' does not fit the model")));
}

TEST(OverviewModel, FormatsOfAnotherModelAreRefused) {
  const OpenProfile profile;
  const Choices choices = choices_of_small();
  calibrate::Document document;
  document.sections["precision"] = testing_support::precision_section();
  json& section = document.sections["precision"];
  for (const char* side : {"keys", "values"}) section["result"][side] = {"q8_0", "q8_0", "int4"};
  const auto model = overview_of(profile, choices, {&document, 1});
  EXPECT_THAT(overview_view(model, choices).cards[5].missing,
              HasSubstr("not of this model's layers"));
}

TEST(OverviewModel, SaysWhenTheFileWasWritten) {
  const testing_support::TemporaryFolder folder;
  const auto path = folder.path() / "p.h5";
  EXPECT_EQ(file_date(path).value, "unknown");
  std::ofstream(path) << "x";
  std::filesystem::last_write_time(
      path, std::chrono::file_clock::from_sys(std::chrono::system_clock::from_time_t(1700000000)));
  EXPECT_EQ(file_date(path).name, "file written");
  EXPECT_EQ(file_date(path).value, "2023-11-14 22:13 UTC");
}

}  // namespace
}  // namespace kvatlas::viewer
