// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/sweep_model.hpp"

#include <gmock/gmock.h>

#include "calibrate/methods/lagkv.hpp"
#include "tests/unit/viewer_models/open_profile.hpp"

namespace kvatlas::viewer {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Optional;

TEST(SweepModel, FrontAndRecommendationAreTheCommandLines) {
  const OpenProfile open;
  const calibrate::Evidence evidence(open.reader(), {});
  for (const double wanted : {0.2, 0.45, 0.5}) {
    calibrate::LagRequest request;
    request.lags = {32, 64};
    request.ratios = {"1/2", "1/4"};
    request.compression = wanted;
    const json section = calibrate_lagkv(evidence, request, {}).section;
    const SweepModel model = sweep_model(section);
    SweepSettings settings;
    settings.score = ShownScore::attention;
    settings.wanted_compression = wanted;
    SweepView view = sweep_view(model, settings);
    EXPECT_EQ(json(view.front), section["front"]["compression"]);
    ASSERT_TRUE(view.recommended);
    EXPECT_EQ(section["sweep"][*view.recommended]["lag"], section["recommended"]["lag"]);
    EXPECT_EQ(section["sweep"][*view.recommended]["ratio"], section["recommended"]["ratio"]);
    settings.against_kept = true;
    EXPECT_EQ(json(sweep_view(model, settings).front), section["front"]["tokens"]);
  }
}

SweepModel small_sweep() {
  return sweep_model(
      json::parse(R"({"settings": {"sink": 16}, "full": {"mean": 0.9, "low": 0.8, "high": 1},
    "sweep": [
      {"variant": "lag", "lag": 64, "ratio": "1/2", "keep": 32, "compression": 0.4, "score": 0.9, "full": 0.9, "low": 0.8, "high": 1},
      {"variant": "lag", "lag": 64, "ratio": "1/4", "keep": 16, "compression": 0.6, "score": 0.86, "full": 0.9},
      {"variant": "lag", "lag": 128, "ratio": "1/2", "keep": 64, "compression": 0.3, "score": 0.7, "full": 0.9},
      {"variant": "lag", "lag": 128, "ratio": "1/8", "keep": 16, "compression": 0.8, "score": 0.5, "full": 0.9},
      {"variant": "local", "lag": 64, "ratio": "1/8", "keep": 8, "compression": 0.7, "score": 0.9, "full": 0.9}]})"));
}

TEST(SweepModel, DominatedPointsFadeAndOthersStandApart) {
  SweepSettings settings;
  settings.length = 1024;
  const SweepView view = sweep_view(small_sweep(), settings);
  EXPECT_THAT(view.front, ElementsAre(3u, 1u, 0u));
  EXPECT_THAT(view.recommended, Optional(1u));
  EXPECT_THAT(view.smallest, Optional(1u));  // 0.86 is 95.6 % of 0.9
  ASSERT_EQ(view.chart.points.size(), 3u);
  EXPECT_EQ(view.chart.points[0].label, "lag 64");
  EXPECT_NE(view.chart.points[0].shape, view.chart.points[1].shape);
  EXPECT_EQ(view.chart.points[1].points[0].emphasis, Emphasis::faint);
  EXPECT_EQ(view.chart.points[1].points[1].emphasis, Emphasis::strong);
  EXPECT_EQ(view.chart.points[2].label, "LocalKV and L2");
  EXPECT_EQ(view.chart.lines.at(0).label, "full cache, and its 95 % interval");
  const Line& front = view.chart.lines.at(1);
  EXPECT_TRUE(front.steps);
  EXPECT_DOUBLE_EQ(front.points.front().x, 0.4);
  EXPECT_DOUBLE_EQ(front.points.back().x, 0.8);
  // Who wants more than 0.4 of compression gets the score at 0.6.
  EXPECT_DOUBLE_EQ(front.points[1].x, 0.4);
  EXPECT_DOUBLE_EQ(front.points[1].y, 0.86);
  ASSERT_EQ(view.chart.table.rows.size(), 5u);
  for (const auto& row : view.chart.table.rows)
    EXPECT_EQ(row.size(), view.chart.table.columns.size());
  // 16 + 32 (floor(1008 / 64) - 1) + 64 + 1008 mod 64.
  EXPECT_DOUBLE_EQ(view.chart.table.rows[0].back().number, 16 + 32 * 14 + 64 + 48);

  EXPECT_THAT(view.candidates,
              ElementsAre(ElementsAre(0u, 1u), ElementsAre(2u, 3u), ElementsAre(4u)));
  EXPECT_EQ(view.chart.points[2].points[0].emphasis, Emphasis::reference);
  EXPECT_THAT(view.chart.point_colours, ElementsAre("ratio 1/2", "ratio 1/4", "ratio 1/8"));
  EXPECT_EQ(view.chart.points[0].points[1].colour, 1);
  EXPECT_EQ(view.chart.points[1].points[0].colour, 0);
  EXPECT_EQ(view.chart.points[2].points[0].colour, -1);

  const SweepView with_choice = sweep_view(small_sweep(), settings, 1);
  ASSERT_EQ(with_choice.chart.points.size(), 4u);
  EXPECT_EQ(with_choice.chart.points[3].label, "chosen");
  EXPECT_THAT(with_choice.candidates.back(), ElementsAre(1u));
  EXPECT_THAT(with_choice.chart.notes.front(), HasSubstr("chosen: lag 64, ratio 1/4"));

  settings.least_share = 1.01;
  EXPECT_FALSE(sweep_view(small_sweep(), settings).smallest);
}

TEST(SweepModel, PatternKeepsAsManyKeysAsTheRules) {
  const SweepModel model = small_sweep();
  for (const std::int64_t length : {20, 143, 144, 300, 1024, 5000})
    for (const std::size_t chosen : {0u, 1u, 3u}) {
      SweepSettings settings;
      settings.length = length;
      const Chart pattern = sweep_view(model, settings, chosen).pattern;
      ASSERT_EQ(pattern.matrices.size(), 1u);
      double kept = 0;
      for (const auto& row : pattern.table.rows)
        kept += (row[1].number - row[0].number + 1) * row[2].number;
      const auto& candidate = model.candidates[chosen];
      EXPECT_NEAR(kept,
                  static_cast<double>(calibrate::lag_kept_tokens(
                      length, {model.sink, candidate.lag, candidate.keep})),
                  1e-6)
          << length << " " << chosen;
    }
  SweepSettings settings;
  settings.length = 300;  // 16 sinks, 4 partitions of 64, of which the last stays whole, and 28
  const Chart pattern = sweep_view(model, settings, 1).pattern;
  const auto share = [&](std::size_t token) { return pattern.matrices[0].values[token]; };
  EXPECT_DOUBLE_EQ(share(15), 1);
  EXPECT_DOUBLE_EQ(share(16), 0.25);
  EXPECT_DOUBLE_EQ(share(207), 0.25);
  EXPECT_DOUBLE_EQ(share(208), 1);
  EXPECT_EQ(pattern.matrices[0].column_texts[16], "token 16");
  settings.wanted_compression = 0.99;  // none is recommended: nothing to show
  EXPECT_TRUE(sweep_view(model, settings).pattern.matrices.empty());
}

TEST(SweepModel, WithoutScoresItsAttentionIsShown) {
  const OpenProfile open;
  const calibrate::Evidence evidence(open.reader(), {});
  calibrate::LagRequest request;
  request.lags = {32, 64};
  request.ratios = {"1/2", "1/4"};
  const SweepModel model = sweep_model(calibrate_lagkv(evidence, request, {}).section);
  const SweepView view = sweep_view(model, {});
  std::size_t drawn = 0;
  for (const auto& series : view.chart.points) drawn += series.points.size();
  EXPECT_EQ(drawn, model.candidates.size());
  EXPECT_THAT(view.chart.title, HasSubstr("attention"));
  EXPECT_THAT(view.chart.notes.front(), HasSubstr("the sweep has no score"));
  SweepSettings attention;
  attention.score = ShownScore::attention;
  EXPECT_EQ(view.front, sweep_view(model, attention).front);
  EXPECT_THAT(sweep_view(model, attention).chart.notes.front(), Not(HasSubstr("no score")));
}

TEST(SweepModel, RefusesADocumentWithoutASweep) {
  EXPECT_THAT(refusal([] { sweep_model({}); }), HasSubstr("no sweep"));
  EXPECT_EQ(error_of([] { sweep_model({{"sweep", 3}}); }), "lagkv.sweep is no list");
}

}  // namespace
}  // namespace kvatlas::viewer
