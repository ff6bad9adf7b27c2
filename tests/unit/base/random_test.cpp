// SPDX-License-Identifier: Apache-2.0
#include "base/random.hpp"

#include <algorithm>
#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvatlas::data {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAreArray;

TEST(Random, IsSplitmix64) {
  // The first numbers of the published generator from the state 1234567.
  Random random(1234567, "");
  EXPECT_EQ(random.next(), 6457827717110365317u);
  EXPECT_EQ(random.next(), 3203168211198807973u);
  EXPECT_EQ(random.next(), 9817491932198370423u);
}

TEST(Random, EachPurposeHasItsOwnSequence) {
  EXPECT_EQ(Random(7, "needle").next(), Random(7, "needle").next());
  EXPECT_NE(Random(7, "needle").next(), Random(7, "depths").next());
  EXPECT_NE(Random(7, "needle").next(), Random(8, "needle").next());
}

TEST(Random, DrawsEvenlyWithinBounds) {
  Random random(1, "");
  std::array<int, 7> drawn{};
  double sum = 0;
  for (int i = 0; i < 7000; ++i) {
    ++drawn[random.below(drawn.size())];
    const double share = random.share();
    ASSERT_TRUE(share >= 0 && share < 1);
    sum += share;
  }
  for (const int times : drawn) EXPECT_NEAR(times, 1000, 130);  // four standard deviations
  EXPECT_NEAR(sum / 7000, 0.5, 0.014);
}

TEST(Random, ShufflesAll) {
  std::vector<int> values;
  for (int i = 0; i < 50; ++i) values.push_back(i);
  const auto before = values;
  Random(3, "").shuffle(values);
  EXPECT_NE(values, before);
  EXPECT_THAT(values, UnorderedElementsAreArray(before));
  std::vector<int> none;
  Random(3, "").shuffle(none);
  EXPECT_THAT(none, ElementsAre());
}

}  // namespace
}  // namespace kvatlas::data
