// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/head_changes.hpp"

#include <gtest/gtest.h>

namespace kvatlas::viewer {
namespace {

/// A head whose rows of blocks give all to key `key`, or to their own.
HeadMeasures head(std::int64_t side, std::int64_t key) {
  std::vector<float> means(static_cast<std::size_t>(side * side), 0.0F);
  for (std::int64_t row = 0; row < side; ++row)
    means[row * side + (key < 0 ? row : std::min(key, row))] = 0.5F;
  return measure_head(means, side);
}

TEST(HeadChanges, TheLargestComesFirstAndEqualMapsDoNotDiffer) {
  const MapMeasures first{2, 2, "a", {head(8, 0), head(8, 0), head(8, -1), head(8, 0)}};
  const MapMeasures second{2, 2, "a", {head(8, 0), head(8, 0), head(8, 0), head(8, 3)}};
  const auto changes = head_changes(first, second);
  ASSERT_EQ(changes.size(), 4u);
  EXPECT_EQ(changes[0].layer, 1);
  EXPECT_EQ(changes[0].head, 0);
  EXPECT_NEAR(changes[0].difference, 1, 1e-6);  // no key in common
  EXPECT_NEAR(changes[0].first_sink, 0, 1e-6);
  EXPECT_NEAR(changes[0].second_sink, 1, 1e-6);
  EXPECT_EQ(changes[1].head, 1);
  EXPECT_GT(changes[1].difference, 0.5);
  EXPECT_NEAR(changes[2].difference, 0, 1e-6);
  EXPECT_EQ(head_changes(first, second, 1).size(), 1u);
}

TEST(HeadChanges, OtherSidesAndDepthsAreLaidOverEachOther) {
  const MapMeasures first{3, 1, "a", {head(8, 0), head(8, 0), head(8, -1)}};
  const MapMeasures second{2, 1, "b", {head(4, 0), head(4, -1)}};
  const auto changes = head_changes(first, second);
  ASSERT_EQ(changes.size(), 3u);
  // Depths 0, 1/2 and 1 are the layers 0, 1 and 1 there.
  EXPECT_EQ(changes[0].layer, 1);
  EXPECT_GT(changes[0].difference, 0.5);
  EXPECT_LT(changes[2].difference, 0.3);
  EXPECT_TRUE(head_changes({}, second).empty());
  EXPECT_TRUE(head_changes(first, {}).empty());
}

}  // namespace
}  // namespace kvatlas::viewer
