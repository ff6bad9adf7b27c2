// SPDX-License-Identifier: Apache-2.0
#include "kernels/select.hpp"

#include <cmath>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvatlas::kernels::select_tests {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Select, OrdersByScoreAndOfEqualOnesTheEarlierFirst) {
  const std::vector<float> scores = {1, 3, std::nanf(""), 3, -0.0f, 0};
  EXPECT_THAT(by_score(scores.data(), 6, 6), ElementsAre(1, 3, 0, 4, 5, 2));
  EXPECT_THAT(by_score(scores.data(), 6, 1), ElementsAre(1));
  EXPECT_THAT(by_score(scores.data(), 6, 9).size(), 6);
  EXPECT_THAT(by_score(scores.data(), 6, -1), IsEmpty());
}

TEST(Select, KeepsTheBestBeforeTheRest) {
  const std::vector<std::int32_t> order = {5, 1, 3, 0};
  EXPECT_THAT(best_and_rest(order, 2, 4, 6), ElementsAre(1, 3, 4, 5));
  EXPECT_THAT(best_and_rest(order, 9, 4, 5), ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(best_and_rest(order, 0, 0, 2), ElementsAre(0, 1));
  EXPECT_THAT(best_and_rest(order, -1, 2, 2), IsEmpty());
}

TEST(Select, HeavyAndRecentTokensAreTheBudget) {
  EXPECT_EQ(h2o_heavy(129), 64);
  EXPECT_EQ(h2o_recent(1000, 129, 64), 935);
  EXPECT_EQ(h2o_recent(10, 129, 64), 0);
}

}  // namespace
}  // namespace kvatlas::kernels::select_tests
