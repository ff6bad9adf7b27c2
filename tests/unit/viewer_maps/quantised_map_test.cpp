// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/quantised_map.hpp"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "viewer/maps/colour_maps.hpp"

namespace kvatlas::viewer {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

/// A whole map of `side` cells, value (row + 1) * 100 + column + 1.
PlacedTile map_of(std::int64_t side, std::int64_t block = 1) {
  Tile tile{side, side, std::vector<float>(static_cast<std::size_t>(side * side))};
  for (std::int64_t row = 0; row < side; ++row)
    for (std::int64_t column = 0; column <= row; ++column)
      tile.values[row * side + column] = static_cast<float>((row + 1) * 100 + column + 1);
  PlacedTile placed;
  placed.slot_block = placed.block = block;
  placed.tile = std::make_shared<const Tile>(std::move(tile));
  return placed;
}

ScaleSettings linear(Range range) {
  ScaleSettings settings;
  settings.kind = ScaleKind::linear;
  settings.range = range;
  return settings;
}

std::vector<std::uint8_t> drawn(const QuantisedMap& map, const Viewport& viewport) {
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(viewport.width * viewport.height));
  map.draw(viewport, pixels, static_cast<std::size_t>(viewport.width));
  return pixels;
}

TEST(QuantisedMap, MagnifiedCellsFillTheirPixels) {
  QuantisedMap map;
  map.place({map_of(2)});
  map.rescale(linear({100, 202}));
  const Scale& scale = map.scale();
  const auto pixels = drawn(map, {0, 0, 0.5, 4, 5});
  const std::uint8_t a = scale.index(101), b = scale.index(201), c = scale.index(202);
  constexpr std::uint8_t x = kMaskedIndex;
  EXPECT_THAT(pixels, ElementsAre(a, a, x, x, a, a, x, x, b, b, c, c, b, b, c, c,  //
                                  x, x, x, x));                                    // the map's end
}

TEST(QuantisedMap, ManyCellsInAPixelShowTheHighest) {
  auto placed = map_of(8);
  auto tile = *placed.tile;
  for (float& value : tile.values) value = 1;
  tile.values[6 * 8 + 3] = 50;  // a needle
  placed.tile = std::make_shared<const Tile>(tile);
  QuantisedMap map;
  map.place({placed});
  map.rescale(linear({0, 50}));
  const auto pixels = drawn(map, {0, 0, 4, 2, 2});
  EXPECT_EQ(pixels[2], kLastIndex);
  EXPECT_EQ(pixels[0], map.scale().index(1));
  EXPECT_EQ(pixels[1], kMaskedIndex);
}

TEST(QuantisedMap, FailedTilesAreMissingAndCoarserOnesStandIn) {
  PlacedTile failed;
  failed.slot = failed.key = {{}, 0, 0, 0};
  failed.failed = true;
  QuantisedMap map;
  map.place({failed});
  map.rescale({});
  auto pixels = drawn(map, {10, 0, 1, 4, 4});
  EXPECT_THAT(pixels, Each(kMissingIndex));

  PlacedTile coarse = map_of(2, 2);
  coarse.slot = {{}, 0, 0, 0};
  coarse.key = {{}, 1, 0, 0};
  coarse.slot_block = 1;
  map.place({coarse});
  map.rescale(linear({100, 202}));
  pixels = drawn(map, {2, 0, 1, 2, 2});
  EXPECT_THAT(pixels, Each(map.scale().index(201)));
  EXPECT_EQ(map.value_at(3, 1)->value, 201);
  EXPECT_EQ(map.value_at(3, 1)->block, 2);
}

TEST(QuantisedMap, OnlyNewTilesAndOtherRangesAreQuantised) {
  auto left = map_of(4);
  auto below = map_of(4);
  below.slot = below.key = {{}, 0, 1, 0};
  QuantisedMap map;
  map.place({left});
  map.rescale(linear({1, 500}));
  EXPECT_EQ(map.quantised(), 1);
  map.place({left, below});
  EXPECT_EQ(map.quantised(), 2);
  map.rescale(linear({1, 500}));  // the same
  EXPECT_EQ(map.quantised(), 2);
  map.place({below});
  map.rescale(linear({1, 400}));  // what is in sight alone
  EXPECT_EQ(map.quantised(), 3);
  map.place({below});
  EXPECT_EQ(map.quantised(), 3);
}

TEST(QuantisedMap, MaskedKeysDoNotTakePartInTheRange) {
  auto placed = map_of(4);
  auto tile = *placed.tile;
  for (int row = 0; row < 4; ++row) tile.values[static_cast<std::size_t>(row) * 4] = 1e6f;
  placed.tile = std::make_shared<const Tile>(tile);
  QuantisedMap map;
  map.place({placed});
  ScaleSettings settings;
  settings.kind = ScaleKind::linear;
  map.rescale(settings);
  EXPECT_GT(map.scale().range().high, 1e5);
  settings.masked_keys = 1;
  map.rescale(settings);
  EXPECT_LE(map.scale().range().high, 404);
}

TEST(QuantisedMap, RowsByTheirGreatest) {
  QuantisedMap map;
  map.place({map_of(2)});
  ScaleSettings settings = linear({0, 1});
  settings.per_row = true;
  map.rescale(settings);
  const auto pixels = drawn(map, {0, 0, 1, 2, 2});
  EXPECT_EQ(pixels[0], kLastIndex);
  EXPECT_EQ(pixels[3], kLastIndex);
}

TEST(QuantisedMap, EdgesSumWhatIsInSight) {
  QuantisedMap map;
  map.place({map_of(3, 2)});  // 5 tokens: the last block is half a one
  const Viewport all{0, 0, 1, 6, 6};
  const auto edges = map.edges(all, 5, false);
  EXPECT_EQ(edges.block, 2);
  EXPECT_THAT(edges.rows, ElementsAre(101 * 2, (201 + 202) * 2, 301 * 2 + 302 * 2 + 303));
  EXPECT_THAT(edges.columns, ElementsAre((101 + 201) * 2 + 301, 202 * 2 + 302, 303));
  EXPECT_THAT(map.edges(all, 5, true).rows, ElementsAre(101, 202, 303));
  const auto part = map.edges({2, 2, 1, 2, 2}, 5, false);
  EXPECT_THAT(part.rows, ElementsAre(202 * 2));
  EXPECT_EQ(part.first_row, 1);

  auto stand_in = map_of(3, 2);
  stand_in.key.level = 1;
  map.place({stand_in});
  EXPECT_TRUE(std::isnan(map.edges(all, 5, false).rows[0]));  // not known yet
}

/// A row of the map has values that rise with the column; in sight are keys 1 and 2 of queries 2
/// on.
constexpr TokenRectangle kSight{2, 1, 2, 2};

TEST(QuantisedMap, RangeAndCountsAreOfWhatIsInSight) {
  QuantisedMap map;
  map.place({map_of(4)}, kSight);
  ScaleSettings settings;
  settings.kind = ScaleKind::linear;
  map.rescale(settings);
  EXPECT_THAT(map.sample(), ElementsAre(302, 303, 402, 403));
  EXPECT_GE(map.scale().range().low, 302);
  EXPECT_LE(map.scale().range().high, 403);
  map.rescale(linear({303, 500}));
  EXPECT_EQ(map.counts().shown, 4);
  EXPECT_EQ(map.counts().under_floor, 1);
  map.place({map_of(4)});
  EXPECT_EQ(map.counts().shown, 10);

  auto tile = *map_of(4).tile;
  tile.values[3 * 4 + 1] = std::numeric_limits<float>::quiet_NaN();
  tile.values[0] = std::numeric_limits<float>::quiet_NaN();
  PlacedTile holed;
  holed.tile = std::make_shared<const Tile>(tile);
  map.place({holed}, kSight);
  EXPECT_EQ(map.counts().missing, 1);
}

TEST(QuantisedMap, RowsAreDividedByTheirGreatestInSight) {
  QuantisedMap map;
  map.place({map_of(4)}, kSight);
  ScaleSettings settings = linear({0, 1});
  settings.per_row = true;
  map.rescale(settings);
  EXPECT_THAT(map.sample(), ElementsAre(302.0F / 303, 402.0F / 403, 1, 1));
  EXPECT_EQ(map.counts().under_floor, 0);
}

TEST(QuantisedMap, RanksAreOfTheCellsInSight) {
  QuantisedMap map;
  map.place({map_of(4)}, kSight);
  const auto found = map.value_at(3, 1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 2);  // behind key 2; key 3 is out of sight
  EXPECT_EQ(found->stored, 2);
}

TEST(QuantisedMap, TheGreatestDifferenceIsTheGreatestBySize) {
  auto tile = *map_of(2).tile;
  tile.values = {-5, 0, 1, -3};
  PlacedTile placed;
  placed.tile = std::make_shared<const Tile>(tile);
  QuantisedMap map;
  map.place({placed});
  EXPECT_THAT(map.edges({0, 0, 1, 2, 2}, 2, true).columns, ElementsAre(-5, -3));
}

TEST(QuantisedMap, CellsThatAPartTouches) {
  const auto part = cells_touched(map_of(4, 2), {3, 2, 2, 1});
  EXPECT_EQ(part.first_row, 1);
  EXPECT_EQ(part.last_row, 3);
  EXPECT_EQ(part.first_column, 1);
  EXPECT_EQ(part.last_column, 2);
}

TEST(QuantisedMap, ValueAndRankOfACell) {
  QuantisedMap map;
  map.place({map_of(4)});
  const auto found = map.value_at(3, 1);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->value, 402);
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->stored, 4);
  EXPECT_FALSE(map.value_at(1, 2));
  EXPECT_FALSE(map.value_at(300, 2));
}

TEST(Viewport, TokensThatItTouches) {
  EXPECT_EQ((Viewport{1.5, 2.25, 0.5, 4, 3}.tokens()), (TokenRectangle{1, 2, 2, 3}));
}

}  // namespace
}  // namespace kvatlas::viewer
