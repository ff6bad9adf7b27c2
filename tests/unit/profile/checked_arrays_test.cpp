// SPDX-License-Identifier: Apache-2.0
// Arrays whose type or sizes are not those that their reader counts on.
#include "analyzer/profile/checked_arrays.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/half.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/unit/profile/samples.hpp"

namespace kvatlas::profile {
namespace {

using namespace testing_samples;
using testing::HasSubstr;
using testing::SizeIs;
using testing_support::error_of;

class CheckedArrays : public testing::Test {
 protected:
  CheckedArrays() {
    Header header = make_header(1);
    header.arrays[3].name = name::kCounts;
    header.arrays[3].axes = {"kind", "budget", "layer"};
    header.arrays[3].sizes = {1, 2, 3};
    Sample sample = make_sample(0);
    sample.arrays.erase("counts/wide");
    Array counts(Type::i64, {1, 2, 3});
    const auto values = counts.values<std::int64_t>();
    // 10 of 4 heads' tokens in each of 3 layers at budget 14 and window 4; nothing at the other.
    const std::int64_t given[] = {60, 40, 20, -1, -1, -1};
    std::copy(std::begin(given), std::end(given), values.begin());
    sample.arrays[name::kCounts] = counts;
    Writer writer(path(), header, {});
    writer.add(sample);
    writer.finish();
  }

  std::filesystem::path path() const { return folder_.path() / "p.h5"; }

 private:
  testing_support::TemporaryFolder folder_;
};

TEST_F(CheckedArrays, Floats) {
  const Reader profile(path());
  EXPECT_THAT(floats_of(profile, 0, "mass", {}, {2}), SizeIs(6));
  EXPECT_THAT(floats_of(profile, 0, "mass", {1}, {3}), SizeIs(3));
  EXPECT_THAT(error_of([&] { floats_of(profile, 0, "flags", {}, {3}); }),
              HasSubstr("array flags of the profile is uint8, expected float32"));
  EXPECT_THAT(error_of([&] { floats_of(profile, 0, "mass", {}, {3}); }),
              HasSubstr("array mass of the profile has sizes [2, 3] in a sample, expected [3]"));
  EXPECT_NE(error_of([&] { floats_of(profile, 0, "mass", {}, {}); }), "") << "an axis too many";
}

TEST_F(CheckedArrays, SharesOfEveryType) {
  Array codes(Type::u8, {5});
  const std::uint8_t stored[] = {0, 6, 246, 254, 255};
  std::copy(std::begin(stored), std::end(stored), codes.values<std::uint8_t>().begin());
  EXPECT_THAT(shares_of(codes, "map"),
              testing::ElementsAre(0, 0x1p-31f, 0.5f, 1, testing::IsNan()));
  Array halves(Type::f16, {2});
  halves.values<std::uint16_t>()[0] = float_to_f16(-3);
  halves.values<std::uint16_t>()[1] = float_to_f16(-INFINITY);
  EXPECT_THAT(shares_of(halves, "map"), testing::ElementsAre(0.125f, 0));
  EXPECT_THAT(shares_of(Array(Type::f32, {1}), "map"), testing::ElementsAre(1));
  EXPECT_THAT(error_of([] { shares_of(Array(Type::i32, {1}), "map"); }),
              HasSubstr("'map' is int32, expected uint8, float16 or float32"));
}

TEST_F(CheckedArrays, WholeNumbersOfLayers) {
  const Reader profile(path());
  EXPECT_THAT(layer_integers(profile, 0, name::kCounts, {0, 0}), testing::ElementsAre(60, 40, 20));
  EXPECT_THAT(error_of([&] { layer_integers(profile, 0, "mass", {0}); }),
              HasSubstr("array mass of the profile is float32, expected int64"));
  EXPECT_THAT(error_of([&] { layer_integers(profile, 0, name::kCounts, {0}); }),
              HasSubstr("has 6 counts, and the model has 3 layers"));
}

TEST_F(CheckedArrays, CountsOfScores) {
  const Reader profile(path());
  const auto counts = [&](std::int64_t row, std::int64_t budget) {
    CountsAt at;
    at.budget_row = row;
    at.window = 4;
    at.budget = budget;
    return window_counts(profile, 0, at);
  };
  ASSERT_TRUE(counts(0, 14).has_value());
  EXPECT_EQ(counts(1, 14), std::nullopt) << "not captured";
  EXPECT_THAT(error_of([&] { counts(0, 15); }),
              HasSubstr("counts of sample 0 for a budget of 15 sum to 120, expected 132"));
}

}  // namespace
}  // namespace kvatlas::profile
