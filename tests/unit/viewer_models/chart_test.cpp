// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/chart.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "viewer/models/document_numbers.hpp"

namespace kvatlas::viewer {
namespace {

TEST(ChartCsv, QuotesNotesAndNumbers) {
  Chart chart;
  chart.title = "Two\nlines";
  chart.notes = {"first"};
  chart.table.columns = {{"layer"}, {"kept, mean", "share"}};
  chart.table.rows = {{0.0, 1.0 / 3}, {"a \"b\"", kNoNumber}, {"#x", 1e-7}};
  chart.table.rows.push_back({-2.5, std::numeric_limits<double>::infinity()});
  EXPECT_EQ(chart_csv(chart),
            "# Two lines\n# first\nlayer,\"kept, mean (share)\"\n0,0.333333333\n\"a \"\"b\"\"\",\n"
            "\"#x\",1e-07\n-2.5,inf\n");
}

TEST(ChartCsv, SeveralChartsAreOneTable) {
  Chart masses, same, blocks, drawn_alone;
  masses.title = "Masses";
  masses.notes = {"of 3 samples"};
  masses.table = {"", {{"layer"}, {"mass", "share"}}, {{0.0, 0.5}}};
  same.title = "Masses as bars";
  same.table = masses.table;
  drawn_alone.title = "Scores";
  EXPECT_EQ(chart_csv(joined("Both", {&masses, &same, &drawn_alone})),
            "# Both\n# Masses\n# of 3 samples\n# Masses as bars\n# Scores\n"
            "layer,mass (share)\n0,0.5\n");
  blocks.title = "Blocks";
  blocks.table = {"", {{"block"}, {"layer"}}, {{"a", 1.0}}};
  EXPECT_EQ(chart_csv(joined("Masses", {&masses, &blocks})),
            "# Masses\n# of 3 samples\n# Blocks\n"
            "chart,layer,mass (share),block\nMasses,0,0.5,\nBlocks,1,,a\n");
}

TEST(Numbers, AsText) {
  EXPECT_EQ(fixed_text(1.25, 1), "1.2");
  EXPECT_EQ(fixed_text(kNoNumber, 1), "-");
  EXPECT_EQ(fixed_text(std::numeric_limits<double>::infinity(), 1), "infinite");
  EXPECT_EQ(fixed_text(std::numeric_limits<double>::max(), 2).size(), 312u);
  EXPECT_EQ(percent_text(0.375), "37.5 %");
}

TEST(Boxes, QuartilesBetweenRanks) {
  const Box box = box_of(3, {4, 1, 2, kNoNumber, 3});
  EXPECT_DOUBLE_EQ(box.x, 3);
  EXPECT_DOUBLE_EQ(box.least, 1);
  EXPECT_DOUBLE_EQ(box.lower, 1.75);
  EXPECT_DOUBLE_EQ(box.median, 2.5);
  EXPECT_DOUBLE_EQ(box.upper, 3.25);
  EXPECT_DOUBLE_EQ(box.most, 4);
  EXPECT_TRUE(std::isnan(box_of(0, {}).median));
}

TEST(ScoreCurves, TakesWhatIsThereInOrder) {
  const auto section = nlohmann::json::parse(R"({
    "curve": [{"threshold": 0.5, "score": 0.9, "low": 0.8, "high": 1}, {"threshold": "x"}, 7,
              {"threshold": 0.25, "score": 0.5}],
    "full": {"mean": 1}, "tolerance": 0.125, "settings": {"threshold": 0.5}})");
  const ScoreCurve curve = score_curve(section, "threshold");
  ASSERT_EQ(curve.points.size(), 2u);
  EXPECT_DOUBLE_EQ(curve.points[0].setting, 0.25);
  EXPECT_TRUE(std::isnan(curve.points[0].score.low));
  EXPECT_DOUBLE_EQ(curve.points[1].score.low, 0.8);
  EXPECT_DOUBLE_EQ(curve.chosen.value(), 0.5);
  Chart chart;
  draw_scores(curve, 0, 1, chart);
  ASSERT_EQ(chart.bands.size(), 2u);
  EXPECT_DOUBLE_EQ(chart.bands[1].edges[0].low, 0.875);
  ASSERT_EQ(chart.lines.size(), 2u);
  ASSERT_EQ(chart.marks.size(), 1u);

  const ScoreCurve none = score_curve(nlohmann::json::array({1}), "threshold");
  EXPECT_TRUE(none.points.empty());
  Chart empty;
  draw_scores(none, 0, 1, empty);
  EXPECT_TRUE(empty.lines.empty() && empty.bands.empty() && empty.marks.empty());
}

}  // namespace
}  // namespace kvatlas::viewer
