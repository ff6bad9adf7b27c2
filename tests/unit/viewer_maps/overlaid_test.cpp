// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/overlaid.hpp"

#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "viewer/maps/head_measures.hpp"

namespace kvatlas::viewer {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

std::shared_ptr<const Tile> tile_of(std::int64_t side, std::vector<float> values) {
  return std::make_shared<const Tile>(Tile{side, side, std::move(values)});
}

TEST(Overlaid, TheLevelOfTheNearestSide) {
  const std::vector<MapLevel> levels = {{2, 512}, {4, 256}, {8, 128}};
  EXPECT_EQ(level_like(500, levels), 0);
  EXPECT_EQ(level_like(384, levels), 0);  // the finer one of two
  EXPECT_EQ(level_like(10, levels), 2);
  EXPECT_EQ(level_like(10, {}), -1);
}

TEST(Overlaid, SameSidesHaveTheSameTiles) {
  const OtherMap other{{1, 2, 3}, 4, 512};
  EXPECT_THAT(tiles_over({{}, 0, 1, 0}, 512, other), ElementsAre(TileKey{{1, 2, 3}, 4, 1, 0}));
}

TEST(Overlaid, OtherLengthsGoByRelativePosition) {
  const OtherMap other{{}, 0, 512};
  // 300 cells: its first tile lies over 256 / 300 of the other's 512, which are two tiles a side.
  EXPECT_THAT(tiles_over({{}, 0, 0, 0}, 300, other), SizeIs(3));  // one is above the diagonal
  const OtherMap small{{}, 0, 2};
  auto source = tile_of(2, {1, 0, 2, 3});
  const auto found =
      tile_over({{}, 0, 0, 0}, 4, small, [&](const TileKey& /*key*/) { return source; });
  ASSERT_NE(found, nullptr);
  EXPECT_THAT(found->values, ElementsAre(1, 1, 0, 0, 1, 1, 0, 0, 2, 2, 3, 3, 2, 2, 3, 3));
  EXPECT_EQ(tile_over({{}, 0, 0, 0}, 4, small, [](const TileKey&) { return nullptr; }), nullptr);
}

TEST(Overlaid, MeansAndDifferences) {
  const float nan = std::nanf("");
  const auto a = tile_of(1, {1}), b = tile_of(1, {4}), unknown = tile_of(1, {nan});
  const std::vector<std::shared_ptr<const Tile>> all = {a, b, unknown};
  EXPECT_THAT(mean_tile(all)->values, ElementsAre(2.5F));
  const std::vector<std::shared_ptr<const Tile>> none = {unknown, unknown};
  EXPECT_TRUE(std::isnan(mean_tile(none)->values[0]));
  EXPECT_THAT(difference_tile(*a, *b)->values, ElementsAre(-3));
}

TEST(HeadMeasures, OfAHeadThatLooksAtTheFirstBlockAndAtItself) {
  const std::vector<float> means = {1, 0, 0,  //
                                    3, 1, 0,  //
                                    2, 1, 1};
  const auto found = measure_head(means, 3);
  EXPECT_DOUBLE_EQ(found.sink, (0.75 + 0.5) / 2);
  EXPECT_DOUBLE_EQ(found.recency, (1 + 0.5) / 2);
  EXPECT_NEAR(found.entropy, (0.8112781 + 1.5) / 2, 1e-6);
  EXPECT_NEAR(likeness(found, found), 1, 1e-6);
  const std::vector<float> other = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  EXPECT_LT(likeness(found, measure_head(other, 3)), 0.6);
}

}  // namespace
}  // namespace kvatlas::viewer
