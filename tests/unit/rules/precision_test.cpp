// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/precision.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/random.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::ElementsAre;

constexpr KvFormat kFormats[] = {KvFormat::q8_0, KvFormat::int4};

TEST(Precision, TheCheapestStepComesFirst) {
  const std::vector<StoredItem> items = {{1, {0.1, 0.2}}, {1, {0.01, 5}}};
  const auto all = allocations(items, kFormats);
  ASSERT_EQ(all.size(), 5u);
  EXPECT_THAT(all[0].formats, ElementsAre(KvFormat::f16, KvFormat::f16));
  EXPECT_THAT(all[1].formats, ElementsAre(KvFormat::f16, KvFormat::q8_0));
  EXPECT_THAT(all[2].formats, ElementsAre(KvFormat::q8_0, KvFormat::q8_0));
  EXPECT_THAT(all[3].formats, ElementsAre(KvFormat::int4, KvFormat::q8_0));
  EXPECT_THAT(all[4].formats, ElementsAre(KvFormat::int4, KvFormat::int4));
  EXPECT_DOUBLE_EQ(all[0].size, 1);
  EXPECT_DOUBLE_EQ(all[3].cost, 0.21);
  EXPECT_DOUBLE_EQ(all[4].size, 0.625 / 2);
  EXPECT_EQ(&first_within(all, 0.8), &all[1]);
  EXPECT_EQ(&first_within(all, 1), &all[0]);
  EXPECT_EQ(&first_within(all, 0.01), &all[4]);
}

/// A format that costs more than one of fewer bits is never chosen.
TEST(Precision, WhatIsWorseIsPassedOver) {
  const std::vector<StoredItem> items = {{3, {0.5, 0.4}}};
  const auto all = allocations(items, kFormats);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].formats[0], KvFormat::int4);
}

/// What a step costs is divided by the bytes that it saves, 0.9375 and then 0.4375 a value, and not
/// by what it leaves: 0.107 is less than 0.114. The order of the formats does not matter, and of
/// two with the same bytes the cheaper one counts.
TEST(Precision, StepsAreAsDearAsTheBytesThatTheySave) {
  EXPECT_EQ(allocations(std::vector<StoredItem>{{1, {0.1, 0.15}}}, kFormats).size(), 3u);
  constexpr KvFormat kTurned[] = {KvFormat::int4, KvFormat::q8_0};
  const auto turned = allocations(std::vector<StoredItem>{{1, {0.15, 0.1}}}, kTurned);
  ASSERT_EQ(turned.size(), 3u);
  EXPECT_THAT(turned[1].formats, ElementsAre(KvFormat::q8_0));
  constexpr KvFormat kAlike[] = {KvFormat::int4, KvFormat::int4};
  const auto alike = allocations(std::vector<StoredItem>{{1, {0.3, 0.2}}}, kAlike);
  ASSERT_EQ(alike.size(), 2u);
  EXPECT_EQ(alike[1].cost, 0.2);
}

/// No other choice of formats costs less at the size of an allocation.
TEST(Precision, AllocationsAreTheBestOfTheirSize) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    testing_support::Random random(seed);
    std::vector<StoredItem> items;
    for (int i = 0; i < 5; ++i)
      items.push_back({static_cast<double>(random.integer(1, 9)),
                       {static_cast<double>(random.integer(0, 50)) / 7,
                        static_cast<double>(random.integer(0, 200)) / 7}});
    const auto all = allocations(items, kFormats);
    for (int other = 0; other < 243; ++other) {
      double bytes = 0, plain = 0, cost = 0;
      for (int i = 0, rest = other; i < 5; ++i, rest /= 3) {
        const auto& item = items[static_cast<std::size_t>(i)];
        plain += 2 * item.values;
        bytes +=
            item.values * (rest % 3 == 0 ? 2 : facts_of(kFormats[rest % 3 - 1]).bytes_per_value);
        if (rest % 3 > 0) cost += item.cost[static_cast<std::size_t>(rest % 3 - 1)];
      }
      for (const Allocation& one : all)
        EXPECT_FALSE(bytes / plain <= one.size + 1e-12 && cost < one.cost - 1e-9)
            << "seed " << seed << ", size " << one.size << ", cost " << one.cost << " against "
            << cost;
    }
  }
}

}  // namespace
}  // namespace kvatlas::calibrate
