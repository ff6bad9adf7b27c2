// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/chart_difference.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "viewer/models/model_axes.hpp"

namespace kvatlas::viewer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Chart lines(const std::string& label, std::vector<Point> points) {
  Chart chart;
  chart.title = "Masses";
  chart.x = {"threshold", "", {}, {{0, 1}}};
  chart.y = {"kept", "share", {}, {{0, 1}}};
  chart.lines.push_back({label, std::move(points)});
  return chart;
}

TEST(ChartDifference, LinesAreComparedWhereBothHavePoints) {
  Chart mine = lines("a", {{0, 1}, {0.5, 2}, {1, 3}});
  mine.marks.push_back({"threshold", 0.5, true, Handle::lazy_threshold});
  const Chart theirs = lines("a", {{0, 0.5}, {0.4, 9}, {1, 1.5}});
  const Chart chart = chart_difference(mine, "p.h5", theirs, "q.h5");
  EXPECT_EQ(chart.title, "Masses: p.h5 less q.h5");
  ASSERT_EQ(chart.lines.size(), 1u);
  EXPECT_THAT(chart.lines[0].points,
              ElementsAre(::testing::Field(&Point::y, 0.5), ::testing::Field(&Point::y, 1.5)));
  ASSERT_EQ(chart.notes.size(), 1u);
  EXPECT_THAT(chart.notes[0], HasSubstr("a: 2 of 3 points"));
  ASSERT_TRUE(chart.y.range);
  EXPECT_EQ(chart.y.range->first, -chart.y.range->second);
  ASSERT_EQ(chart.marks.size(), 1u);  // the handle has gone
  EXPECT_EQ(chart.marks[0].at, 0);
  ASSERT_EQ(chart.table.rows.size(), 2u);
  EXPECT_EQ(chart.table.rows[1][2].number, 3);
  EXPECT_EQ(chart.table.rows[1][3].number, 1.5);
  EXPECT_EQ(chart.table.rows[1][4].number, 1.5);
}

TEST(ChartDifference, StepsHoldAndWhatLiesOutsideIsLeftOut) {
  Chart mine = lines("a", {{0, 5}, {0.3, 5}, {0.9, 5}});
  Chart theirs = lines("a", {{0.2, 1}, {0.8, 2}});
  theirs.lines[0].steps = mine.lines[0].steps = true;
  const auto points = chart_difference(mine, "p", theirs, "q").lines.at(0).points;
  ASSERT_EQ(points.size(), 1u);  // nothing is known of theirs before 0.2, and after 0.8
  EXPECT_EQ(points[0].y, 4);
  theirs.lines[0].steps = false;
  EXPECT_TRUE(chart_difference(mine, "p", theirs, "q").lines.empty());
}

TEST(ChartDifference, TokensOfOtherLengthsAreComparedAtTheSameShare) {
  Chart mine = lines("L0.H0", {{0, 10}, {10, 10}});
  mine.x = {"key token", "", {}, {{0, 10}}, false, AxisKind::tokens};
  Chart theirs = lines("L0.H0", {{0, 1}, {10, 2}, {20, 4}});
  theirs.x = {"key token", "", {}, {{0, 20}}, false, AxisKind::tokens};
  const Chart chart = chart_difference(mine, "p", theirs, "q");
  ASSERT_EQ(chart.lines.size(), 1u);
  EXPECT_EQ(chart.lines[0].points[0].y, 9);
  EXPECT_EQ(chart.lines[0].points[1].y, 6);
  ASSERT_FALSE(chart.notes.empty());
  EXPECT_THAT(chart.notes[0], HasSubstr("other lengths"));
}

TEST(ChartDifference, BarsOfNamedPlacesByTheirNames) {
  Chart mine, theirs;
  mine.x = {"task", "", {{0, "needle"}, {1, "passkey"}}};
  mine.bars.push_back({"layer 0", {{0, 5}, {1, 7}}});
  theirs.x = {"task", "", {{0, "passkey"}, {1, "qa"}}};
  theirs.bars.push_back({"layer 0", {{0, 3}, {1, 9}}});
  const Chart chart = chart_difference(mine, "p", theirs, "q");
  ASSERT_EQ(chart.bars.at(0).bars.size(), 1u);
  EXPECT_EQ(chart.bars[0].bars[0].x, 1);
  EXPECT_EQ(chart.bars[0].bars[0].height, 4);
}

TEST(ChartDifference, SeriesOfOtherNamesAreNotCompared) {
  Chart mine = lines("needle", {{0, 1}}), theirs = lines("needle", {{0, 2}});
  mine.lines.push_back({"passkey", {{0, 1}}});
  theirs.lines.push_back({"qa", {{0, 5}}});
  EXPECT_EQ(chart_difference(mine, "p", theirs, "q").lines.size(), 1u);
}

TEST(ChartDifference, BoxesByMedianAndBarsByX) {
  Chart mine;
  mine.x = layer_axis(3);
  for (const double x : {0., 1., 2.}) mine.boxes.push_back(box_of(x, {x, x + 1, x + 2}));
  mine.bars.push_back({"budget", {{0, 8}, {1, 9}}});
  Chart theirs;
  theirs.x = layer_axis(3);
  for (const double x : {1., 2.}) theirs.boxes.push_back(box_of(x, {1}));
  theirs.bars.push_back({"budget", {{1, 4}, {2, 7}}});
  const Chart chart = chart_difference(mine, "p", theirs, "q");
  ASSERT_EQ(chart.bars.size(), 2u);
  ASSERT_EQ(chart.bars[0].bars.size(), 1u);
  EXPECT_EQ(chart.bars[0].bars[0].height, 5);
  ASSERT_EQ(chart.bars[1].bars.size(), 2u);
  EXPECT_EQ(chart.bars[1].bars[1].height, 2);
  EXPECT_TRUE(chart.boxes.empty());
}

Chart matrix(std::vector<std::string> columns, std::vector<double> values) {
  Chart chart;
  chart.x = {"task", ""};
  chart.y = layer_axis(2);
  chart.matrices.push_back(
      {"budgets", "tokens", {"0", "1"}, std::move(columns), std::move(values)});
  return chart;
}

TEST(ChartDifference, MatricesByLabelOfTheColumn) {
  const Chart mine = matrix({"needle", "passkey"}, {1, 2, 3, 4});
  const Chart theirs = matrix({"passkey", "qa"}, {5, 0, 5, 0});
  const Chart chart = chart_difference(mine, "p", theirs, "q");
  ASSERT_EQ(chart.matrices.size(), 1u);
  const auto& found = chart.matrices[0];
  EXPECT_TRUE(std::isnan(found.values[0]));
  EXPECT_EQ(found.values[1], -3);
  EXPECT_EQ(found.values[3], -1);
  EXPECT_EQ(found.range, (std::pair<double, double>{-3, 3}));
  ASSERT_EQ(chart.table.rows.size(), 4u);
  EXPECT_EQ(chart.table.rows[1][2].number, -3);

  Chart many = mine, others = mine;
  many.matrices.push_back(many.matrices[0]);
  many.matrices[1].label = "other";
  others.matrices.push_back(others.matrices[0]);
  others.matrices[1].label = "other";
  others.matrices[1].values[2] = 10;
  const auto table = chart_difference(many, "p", others, "q").table;
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0][2].number, 0);
  EXPECT_EQ(table.rows[1][0].text, "other");
  EXPECT_EQ(table.rows[1][2].number, -7);
  EXPECT_EQ(table.rows[1][3].text, "1");
}

TEST(ChartDifference, WhatCannotBeComparedSaysWhy) {
  Chart mine = matrix({"needle"}, {1, 2}), theirs = mine;
  theirs.y = layer_axis(3);
  EXPECT_THAT(chart_difference(mine, "p", theirs, "q").notes.at(0), HasSubstr("layers"));
  EXPECT_TRUE(chart_difference(mine, "p", theirs, "q").matrices.empty());
  const Chart nothing = chart_difference(lines("a", {{0, 1}}), "p", mine, "q");
  EXPECT_TRUE(nothing.lines.empty());
  EXPECT_THAT(nothing.notes.at(0), HasSubstr("in common"));
}

}  // namespace
}  // namespace kvatlas::viewer
