// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "viewer/draw/curves_impl.hpp"

namespace kvatlas::viewer {
namespace {

using testing::ElementsAre;

PlotAxis axis(double low, double high, bool logarithmic = false) {
  PlotAxis out;
  out.low = low;
  out.high = high;
  out.logarithmic = logarithmic;
  out.last = 100;  // pixels
  return out;
}

/// Points at x = 0, 1, 2, …
std::vector<Point> points(const std::vector<double>& heights) {
  std::vector<Point> out;
  for (const double y : heights) out.push_back({static_cast<double>(out.size()), y});
  return out;
}

TEST(Curves, ValuesInSightStayAsTheyAre) {
  const auto parts = visible_parts(points({0.1, 1.0 / 3, 0, 1}), false, axis(0, 3), axis(0, 1));
  ASSERT_EQ(parts.size(), 1u);
  ASSERT_EQ(parts[0].size(), 4);
  EXPECT_EQ(parts[0][0].y(), 0.1);  // to the last bit
  EXPECT_EQ(parts[0][1].y(), 1.0 / 3);
  EXPECT_EQ(parts[0][3].y(), 1);
}

TEST(Curves, AreCutAtTheEdgesAndSplitWhereValuesAreMissing) {
  const auto parts =
      visible_parts(points({0, 2, 0, kNoNumber, 0.5, 0.5}), false, axis(0, 5), axis(0, 1));
  EXPECT_THAT(parts, ElementsAre(ElementsAre(QPointF(0, 0), QPointF(0.5, 1)),
                                 ElementsAre(QPointF(1.5, 1), QPointF(2, 0)),
                                 ElementsAre(QPointF(4, 0.5), QPointF(5, 0.5))));
}

TEST(Curves, OnALogarithmicAxisTheCutIsWhereTheDrawnLineMeetsTheEdge) {
  const auto parts = visible_parts(points({1, 10000}), false, axis(0, 1), axis(1, 100, true));
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_NEAR(parts[0][1].x(), 0.5, 1e-12);
  EXPECT_NEAR(parts[0][1].y(), 100, 1e-9);
}

TEST(Curves, OfManyPointsInAColumnOfPixelsTheLeastAndTheGreatestStay) {
  std::vector<Point> many;
  for (int i = 0; i <= 1000; ++i) many.push_back({i / 1000.0, i % 7 / 6.0});
  const auto parts = visible_parts(many, false, axis(0, 1), axis(0, 1));
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_LE(parts[0].size(), 202);
  EXPECT_EQ(std::count_if(parts[0].begin(), parts[0].end(),
                          [](const QPointF& at) { return at.y() == 1; }),
            101);
}

TEST(Curves, StepsKeepTheirHeightUntilTheNextPoint) {
  const auto parts = visible_parts(points({0.25, 0.75}), true, axis(0, 1), axis(0, 1));
  EXPECT_THAT(parts,
              ElementsAre(ElementsAre(QPointF(0, 0.25), QPointF(1, 0.25), QPointF(1, 0.75))));
}

}  // namespace
}  // namespace kvatlas::viewer
