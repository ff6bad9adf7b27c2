// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/head_filter.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.hpp"

namespace kvatlas::viewer {
namespace {

HeadFacts facts(std::int64_t layer, std::int64_t head) {
  HeadFacts facts;
  facts.layer = layer;
  facts.head = head;
  return facts;
}

TEST(HeadFilter, AllWordsMustHold) {
  EXPECT_TRUE(HeadFilter("").empty());
  EXPECT_TRUE(HeadFilter("").matches(facts(3, 1)));
  const HeadFilter filter("L10-L20, H3");
  EXPECT_TRUE(filter.matches(facts(10, 3)));
  EXPECT_TRUE(filter.matches(facts(20, 3)));
  EXPECT_FALSE(filter.matches(facts(21, 3)));
  EXPECT_FALSE(filter.matches(facts(10, 2)));
  EXPECT_TRUE(HeadFilter("l4 h0-2").matches(facts(4, 2)));
  EXPECT_TRUE(HeadFilter("not L4").matches(facts(5, 0)));
  EXPECT_FALSE(HeadFilter("not L4").matches(facts(4, 0)));
}

TEST(HeadFilter, WhatIsNotKnownDoesNotMatch) {
  HeadFacts known = facts(0, 0);
  EXPECT_FALSE(HeadFilter("lazy").matches(known));
  EXPECT_FALSE(HeadFilter("not lazy").matches(known));
  known.lazy = false;
  EXPECT_FALSE(HeadFilter("lazy").matches(known));
  EXPECT_TRUE(HeadFilter("not lazy").matches(known));
  EXPECT_FALSE(HeadFilter("sink>0.5").matches(known));
  known.sink = 0.5;
  EXPECT_FALSE(HeadFilter("sink>0.5").matches(known));
  EXPECT_TRUE(HeadFilter("sink>=0.5").matches(known));
  EXPECT_TRUE(HeadFilter("SINK<0.6").matches(known));
  known.budget = 200;
  EXPECT_TRUE(HeadFilter("budget<=200").matches(known));
  EXPECT_TRUE(HeadFilter("sink>0.5").needs_measures());
  EXPECT_FALSE(HeadFilter("budget>5 lazy").needs_measures());
}

TEST(HeadFilter, OtherWordsAreRefused) {
  for (const char* text : {"sink", "sink>", "sink>x", "sink>inf", "depth>1", "L", "L1-", "Lx",
                           "L1-H2", "hazy", "L99999999999999999999"})
    EXPECT_THAT(testing_support::error_of([&] { HeadFilter filter(text); }),
                ::testing::HasSubstr("has no word"))
        << text;
  EXPECT_THAT(testing_support::error_of([] { HeadFilter filter("lazy not"); }),
              ::testing::HasSubstr("ends with 'not'"));
}

}  // namespace
}  // namespace kvatlas::viewer
