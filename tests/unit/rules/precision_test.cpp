// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/precision.hpp"

#include <limits>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/random.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::ElementsAre;

constexpr KvFormat kFormats[] = {KvFormat::q8_0, KvFormat::int4};
const std::vector<double> kBytes = {1.0625, 0.625};  // of a number

TEST(Precision, TheCheapestStepComesFirst) {
  const std::vector<StoredItem> items = {{1, {0.1, 0.2}, kBytes}, {1, {0.01, 5}, kBytes}};
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
  const std::vector<StoredItem> items = {{3, {0.5, 0.4}, kBytes}};
  const auto all = allocations(items, kFormats);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].formats[0], KvFormat::int4);
}

/// What a step costs is divided by the bytes that it saves, 0.9375 and then 0.4375 a value, and not
/// by what it leaves: 0.107 is less than 0.114. The order of the formats does not matter, and of
/// two with the same bytes the cheaper one counts.
TEST(Precision, StepsAreAsDearAsTheBytesThatTheySave) {
  EXPECT_EQ(allocations(std::vector<StoredItem>{{1, {0.1, 0.15}, kBytes}}, kFormats).size(), 3u);
  constexpr KvFormat kTurned[] = {KvFormat::int4, KvFormat::q8_0};
  const auto turned =
      allocations(std::vector<StoredItem>{{1, {0.15, 0.1}, {0.625, 1.0625}}}, kTurned);
  ASSERT_EQ(turned.size(), 3u);
  EXPECT_THAT(turned[1].formats, ElementsAre(KvFormat::q8_0));
  constexpr KvFormat kAlike[] = {KvFormat::int4, KvFormat::int4};
  const auto alike = allocations(std::vector<StoredItem>{{1, {0.3, 0.2}, {0.625, 0.625}}}, kAlike);
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
                        static_cast<double>(random.integer(0, 200)) / 7},
                       kBytes});
    const auto all = allocations(items, kFormats);
    for (int other = 0; other < 243; ++other) {
      double bytes = 0, plain = 0, cost = 0;
      for (int i = 0, rest = other; i < 5; ++i, rest /= 3) {
        const auto& item = items[static_cast<std::size_t>(i)];
        plain += 2 * item.values;
        bytes += item.values * (rest % 3 == 0 ? 2 : kBytes[static_cast<std::size_t>(rest % 3 - 1)]);
        if (rest % 3 > 0) cost += item.cost[static_cast<std::size_t>(rest % 3 - 1)];
      }
      for (const Allocation& one : all)
        EXPECT_FALSE(bytes / plain <= one.size + 1e-12 && cost < one.cost - 1e-9)
            << "seed " << seed << ", size " << one.size << ", cost " << one.cost << " against "
            << cost;
    }
  }
}

/// In one format at a time, or in runs from the first and the last layer, no other choice of the
/// kind that lies on the hull of all costs less at the size of an allocation; and all are of it.
TEST(Precision, AllocationsOfOneFormatAndOfEnds) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    testing_support::Random random(seed);
    std::vector<StoredItem> items;
    for (int i = 0; i < 10; ++i)
      items.push_back({1,
                       {static_cast<double>(random.integer(1, 50)) / 7,
                        static_cast<double>(random.integer(1, 200)) / 7},
                       kBytes});
    items[2].cost[1] = std::numeric_limits<double>::infinity();
    const auto changes = [](const Allocation& one, std::size_t first) {
      int count = 0;
      for (std::size_t i = first + 2; i < one.formats.size(); i += 2)
        count += one.formats[i] != one.formats[i - 2];
      return count;
    };
    const auto check = [&](const std::vector<Allocation>& all) {
      EXPECT_EQ(all.front().size, 1);
      for (std::size_t i = 0; i < all.size(); ++i) {
        double bytes = 0, cost = 0;
        for (std::size_t k = 0; k < items.size(); ++k) {
          const auto format = all[i].formats[k];
          bytes += format == KvFormat::f16 ? 2 : kBytes[format == KvFormat::int4 ? 1 : 0];
          cost += format == KvFormat::f16 ? 0 : items[k].cost[format == KvFormat::int4 ? 1 : 0];
        }
        EXPECT_NEAR(all[i].size, bytes / 20, 1e-12);
        EXPECT_NEAR(all[i].cost, cost, 1e-9);
        EXPECT_NE(all[i].formats[2], KvFormat::int4);
        if (i > 0) {
          EXPECT_LT(all[i].size, all[i - 1].size);
          EXPECT_GT(all[i].cost, all[i - 1].cost);
        }
      }
    };
    const auto one_format = allocations_in_one_format(items, kFormats);
    check(one_format);
    for (const Allocation& one : one_format) {
      std::set<KvFormat> used(one.formats.begin(), one.formats.end());
      used.erase(KvFormat::f16);
      EXPECT_LE(used.size(), 1U);
    }
    const auto ends = allocations_by_ends(items, kFormats);
    check(ends);
    for (const Allocation& one : ends)
      for (const std::size_t side : {0, 1}) EXPECT_LE(changes(one, side), 2);
    // What is free of the rule is never dearer.
    const auto free = allocations(items, kFormats);
    for (const Allocation& one : ends)
      for (const Allocation& other : free)
        EXPECT_FALSE(one.size <= other.size - 1e-12 && one.cost < other.cost - 1e-9);
  }
}

}  // namespace
}  // namespace kvatlas::calibrate
