// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/lazy_model.hpp"

#include <gmock/gmock.h>

#include "calibrate/methods/simlayerkv.hpp"
#include "tests/unit/viewer_models/open_profile.hpp"
#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace {

using calibrate::testing_profile::kTokens;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using Identify = calibrate::SimLayerKv::Identify;

LazyModel model_of(const profile::Reader& profile, Identify identify = Identify::decode,
                   const json& section = {}) {
  return read_lazy_model(profile, all_samples(profile), {{4, 64}, identify, 2}, section);
}

LazySettings at(double threshold) {
  LazySettings settings;
  settings.threshold = threshold;
  settings.length = kTokens;
  return settings;
}

/// What `kvatlas calibrate simlayerkv --threshold` reports of the same profile.
json reported(const profile::Reader& profile, const LazySettings& settings, Identify identify) {
  calibrate::Request request;
  request.lengths = {settings.length};
  const calibrate::Evidence evidence(profile, request);
  calibrate::SimLayerRequest lazy;
  lazy.policy.keep = {4, 64};
  lazy.policy.identify = identify;
  lazy.policy.w_last = 2;
  lazy.policy.per_head = settings.per_head;
  lazy.threshold = settings.threshold;
  lazy.static_share = settings.share;
  lazy.fixed = settings.fixed;
  return calibrate::calibrate_simlayerkv(evidence, lazy, {}).section;
}

TEST(LazyModel, NumbersAreTheCommandLines) {
  const OpenProfile open({.short_samples = 2});
  for (const Identify identify : {Identify::decode, Identify::prefill}) {
    const LazyModel model = model_of(open.reader(), identify);
    EXPECT_EQ(model.positions.size(), 12u);
    EXPECT_EQ(model.left_out, 2u);
    for (const double threshold : {0.0, 0.25, 0.603, 0.608, 0.805, 0.9055, 1.0})
      for (const bool per_head : {false, true})
        for (const bool fixed : {false, true}) {
          LazySettings settings = at(threshold);
          settings.per_head = per_head;
          settings.fixed = fixed;
          settings.share = 0.4;
          const LazyView view = lazy_view(model, settings);
          const json report = reported(open.reader(), settings, identify);
          EXPECT_EQ(json(view.rates), report["lazy_rates"]);
          EXPECT_EQ(view.fixed.disagreement, report["static"]["disagreement"].get<double>());
          for (std::size_t l = 0; l < view.rates.size(); ++l)
            EXPECT_EQ(view.fixed.lazy[l] != 0, report["static"]["lazy_layers"][l].get<bool>());
          const json& savings = report["savings"][0];
          EXPECT_EQ(view.savings.kv_ratio, savings["kv_ratio"].get<double>());
          EXPECT_EQ(view.savings.kv_ratio_4bit, savings["kv_ratio_4bit"].get<double>());
          EXPECT_EQ(view.savings.kept_bytes, savings["kept_bytes"].get<double>());
          if (savings["layer_ratio"].is_number()) {
            EXPECT_EQ(view.savings.layer_ratio, savings["layer_ratio"].get<double>());
          }
          EXPECT_EQ(json(view.consistency), report["consistency"]);
          if (per_head) {
            EXPECT_EQ(json(view.head_rates), report["per_head"]["rates"]);
          }
        }
  }
}

TEST(LazyModel, LayersFillAndNearHalvesAreFlagged) {
  const OpenProfile open;
  // Layer 2 has the masses 0.6 to 0.611: half of the samples are above 0.6055.
  const LazyView view = lazy_view(model_of(open.reader()), at(0.6055));
  EXPECT_THAT(view.rates, ElementsAre(0, 1, 0.5, 1));
  EXPECT_THAT(view.near_half, ElementsAre(2u));
  EXPECT_DOUBLE_EQ(view.lazy_layers, 2.5);
  const Chart& chart = view.layers;
  EXPECT_THAT(chart.title, HasSubstr("2.5 of 4 layers lazy"));
  ASSERT_EQ(chart.boxes.size(), 4u);
  EXPECT_EQ(chart.boxes[0].emphasis, Emphasis::normal);
  EXPECT_EQ(chart.boxes[2].emphasis, Emphasis::strong);
  EXPECT_TRUE(chart.boxes[2].flagged);
  EXPECT_FALSE(chart.boxes[1].flagged);
  EXPECT_NEAR(chart.boxes[2].median, 0.6055, 1e-6);
  ASSERT_EQ(chart.points.size(), 1u);
  EXPECT_EQ(chart.points[0].points.size(), 48u);
  EXPECT_EQ(chart.points[0].points[0].label, "sample 0");
  ASSERT_EQ(chart.table.rows.size(), 4u);
  for (const auto& row : chart.table.rows) EXPECT_EQ(row.size(), chart.table.columns.size());
  ASSERT_EQ(chart.marks.size(), 1u);
  EXPECT_TRUE(chart.marks[0].can_be_dragged() && !chart.marks[0].vertical);

  const Chart& strip = view.strip;
  ASSERT_EQ(strip.bars.size(), 2u);
  EXPECT_DOUBLE_EQ(strip.bars[0].bars[2].height, 0.5);
  EXPECT_EQ(strip.bars[0].bars[2].emphasis, Emphasis::strong);
  EXPECT_EQ(strip.bars[0].bars[0].emphasis, Emphasis::normal);
  // Of two later tokens the last one is always low.
  EXPECT_DOUBLE_EQ(strip.bars[1].bars[3].height, 0.5);
  EXPECT_EQ(strip.marks.at(0).handle, Handle::lazy_share);
  EXPECT_THAT(strip.notes, testing::Contains(HasSubstr("near the share: layers [2]")));
  EXPECT_TRUE(view.heads.matrices.empty());
  LazySettings by_head = at(0.6055);
  by_head.per_head = true;
  const Chart heads = lazy_view(model_of(open.reader()), by_head).heads;
  EXPECT_DOUBLE_EQ(heads.matrices.at(0).at(1, 2), 0.5);
  EXPECT_EQ(heads.table.rows.size(), 8u);
}

TEST(LazyModel, ScoresOfTheDocumentBesideWhatIsKept) {
  const OpenProfile open;
  const auto section = json::parse(
      R"({"curve": [{"threshold": 0.555, "score": 0.5, "low": 0.25, "high": 0.75},
                    {"threshold": 0.85, "score": 1, "low": 1, "high": 1}],
          "full": {"mean": 1, "low": 0.9, "high": 1}, "tolerance": 0.1, "settings": {"threshold": 0.85}})");
  const LazyView view = lazy_view(model_of(open.reader(), Identify::decode, section), at(0.7));
  ASSERT_EQ(view.scores.lines.size(), 3u);  // score, full cache, KV kept
  const Line& kept = view.scores.lines.back();
  EXPECT_TRUE(kept.right);
  ASSERT_EQ(kept.points.size(), 102u);  // every hundredth, and 0.555
  // Three lazy layers of four, then one, each of 68 of 300 tokens.
  EXPECT_DOUBLE_EQ(kept.points[56].x, 0.555);
  EXPECT_DOUBLE_EQ(kept.points[56].y, (1 * 300 + 3 * 68) / 1200.0);
  EXPECT_DOUBLE_EQ(view.scores.table.rows[56][1].number, 0.5);
  EXPECT_DOUBLE_EQ(kept.points[86].x, 0.85);
  EXPECT_DOUBLE_EQ(kept.points[86].y, (3 * 300 + 1 * 68) / 1200.0);
  EXPECT_DOUBLE_EQ(view.scores.table.rows[86][1].number, 1);
  std::vector<std::string> marks;
  for (const auto& mark : view.scores.marks) marks.push_back(mark.label);
  EXPECT_THAT(marks,
              ElementsAre("calibrated", "Llama 2", "Mistral", "Qwen", "Llama 3", "threshold"));

  const LazyView alone = lazy_view(model_of(open.reader()), at(0.7));
  EXPECT_EQ(alone.scores.lines.size(), 1u);
  EXPECT_EQ(alone.scores.lines[0].points.size(), 101u);
  EXPECT_THAT(alone.scores.notes, ElementsAre(HasSubstr("no scores")));
}

TEST(LazyModel, RefusesWhatTheProfileLacks) {
  const OpenProfile open({.samples = 2, .lazy = false});
  EXPECT_THAT(refusal([&] { model_of(open.reader()); }), HasSubstr("--capture lazy"));
  const OpenProfile with({.samples = 2});
  const auto read = [&](LazyChoices choices) {
    read_lazy_model(with.reader(), all_samples(with.reader()), choices, {});
  };
  EXPECT_THAT(refusal([&] { read({{4, 65}, Identify::decode, 2}); }), HasSubstr("recent=65"));
  EXPECT_THAT(refusal([&] { read({{4, 64}, Identify::prefill, 9}); }), HasSubstr("not of 9"));
  EXPECT_THAT(refusal([&] {
                read_lazy_model(with.reader(), {}, {{4, 64}, {}, 2}, {});
              }),
              HasSubstr("no sample"));
}

}  // namespace
}  // namespace kvatlas::viewer
