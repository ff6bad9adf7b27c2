// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/chart.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "viewer/models/measured.hpp"

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

TEST(ScoreCurves, AscendAndAreDrawnBesideTheFullCache) {
  calibrate::BudgetReport report;
  report.curve.resize(2);
  report.curve[0].setting = 0.5;
  report.curve[0].score = {0.9, 0.8, 1};
  report.curve[1].setting = 0.25;
  report.full = {1, 0.9, 1};
  report.tolerance = 0.125;
  const ScoreCurve curve = score_curve(report, 0.5);
  ASSERT_EQ(curve.points.size(), 2u);
  EXPECT_DOUBLE_EQ(curve.points[0].setting, 0.25);
  EXPECT_DOUBLE_EQ(curve.points[1].score.low, 0.8);
  Chart chart;
  draw_scores(curve, 0, 1, chart);
  ASSERT_EQ(chart.bands.size(), 2u);
  EXPECT_DOUBLE_EQ(chart.bands[1].edges[0].low, 0.875);
  ASSERT_EQ(chart.lines.size(), 2u);
  ASSERT_EQ(chart.marks.size(), 1u);

  // What the scores are of, and why the policy's own is another one.
  EXPECT_TRUE(chart.notes.empty());
  report.samples = 12;
  report.measured.emplace();
  report.measured->samples = 8;
  report.measured->score.mean = 0.75;
  report.measured->held_out = true;
  draw_scores(score_curve(report, 0.5), 0, 1, chart);
  EXPECT_EQ(
      chart.notes.at(0),
      "scores are of the 12 samples of the choice; the 0.750 of the calibrated setting on its "
      "card is of 8 samples that were held out of it");

  Chart empty;
  draw_scores({}, 0, 1, empty);
  EXPECT_TRUE(empty.lines.empty() && empty.bands.empty() && empty.marks.empty());
}

}  // namespace
}  // namespace kvatlas::viewer
