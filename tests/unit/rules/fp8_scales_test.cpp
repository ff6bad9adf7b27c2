// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/fp8_scales.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/profile/statistics.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/profile_header.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::calibrate {
namespace {

using profile::kMagnitudeBins;
using testing::HasSubstr;
using testing_support::error_of;
using testing_support::header_of;
using testing_support::refusal;
using testing_support::TemporaryFolder;

Magnitudes of_numbers(const std::vector<float>& numbers) {
  Magnitudes out{0, std::vector<std::int64_t>(kMagnitudeBins, 0)};
  for (const float x : numbers) {
    out.largest = std::max(out.largest, static_cast<double>(std::abs(x)));
    ++out.counts[static_cast<std::size_t>(profile::magnitude_bin(x))];
  }
  return out;
}

std::vector<float> spread(std::int64_t count, float deviation) {
  return testing_support::Random(7).normals(count, deviation);
}

TEST(Fp8Scales, RoundingIsE4m3) {
  const std::pair<double, double> cases[] = {
      {448, 448},     {449, 448},         {1e9, 448},          {-464, -448},     {1.0625, 1},
      {1.1875, 1.25}, {1.19, 1.25},       {240.1, 240},        {0x1p-6, 0x1p-6}, {0x1p-9, 0x1p-9},
      {0x1p-10, 0},   {0x1.8p-9, 0x1p-8}, {0x1.1p-10, 0x1p-9}, {0, 0},           {1.99, 2}};
  for (const auto& [value, stored] : cases) EXPECT_EQ(in_e4m3(value, 1), stored) << value;
  EXPECT_EQ(in_e4m3(10, 0.5), 10);
  EXPECT_EQ(in_e4m3(1000, 2), 896);
}

TEST(Fp8Scales, EveryBinIsWhereItsNumbersAre) {
  testing_support::Random random(3);
  for (int i = 0; i < 2000; ++i) {
    const float x = std::exp2(random.uniform(-22, 18));
    const auto bin = profile::magnitude_bin(x);
    EXPECT_GE(static_cast<double>(x), profile::magnitude_of_bin(bin));
    EXPECT_EQ(profile::magnitude_bin(-x), bin);
    if (bin + 1 == kMagnitudeBins) continue;
    EXPECT_LT(static_cast<double>(x), profile::magnitude_of_bin(bin + 1));
  }
  EXPECT_EQ(profile::magnitude_bin(0), 0);
  EXPECT_EQ(profile::magnitude_bin(std::numeric_limits<float>::infinity()), kMagnitudeBins - 1);
  EXPECT_EQ(profile::magnitude_bin(std::nanf("")), kMagnitudeBins - 1);
}

TEST(Fp8Scales, RulesOrderAsTheyCut) {
  auto numbers = spread(20000, 3);
  numbers[5] = 900;
  const auto of = of_numbers(numbers);
  const double amax = scale_of(of, ScaleRule::parse("amax"));
  EXPECT_FLOAT_EQ(static_cast<float>(amax), 900.0f / 448);
  EXPECT_EQ(scale_of(of, ScaleRule::parse("p100")), amax);
  // The percentile is the end of a bin, an eighth of an octave wide.
  std::vector<float> sorted;
  for (const float x : numbers) sorted.push_back(std::abs(x));
  std::sort(sorted.begin(), sorted.end());
  const double exact = static_cast<double>(sorted[19800 - 1]);
  const double p99 = scale_of(of, ScaleRule::parse("p99")) * kLargestE4m3;
  EXPECT_GE(p99, exact);
  EXPECT_LE(p99, exact * 1.126);
  for (const char* word : {"mse", "kl"}) {
    const double found = scale_of(of, ScaleRule::parse(word));
    EXPECT_LE(found, amax) << word;
    EXPECT_GE(found * kLargestE4m3 * 1.001, p99 / 1.126) << word;
  }
  EXPECT_LE(relative_error(of, scale_of(of, ScaleRule::parse("mse"))), relative_error(of, amax));
  EXPECT_LE(divergence(of, scale_of(of, ScaleRule::parse("kl"))), divergence(of, amax) + 1e-12);
}

/// What the histogram says is what rounding does to the numbers themselves.
TEST(Fp8Scales, TheErrorIsThatOfTheNumbers) {
  for (const float deviation : {1e-4f, 0.01f, 1.0f, 30.0f, 500.0f}) {
    const auto numbers = spread(20000, deviation);
    const auto of = of_numbers(numbers);
    for (const double scale : {1.0, of.largest / 448, of.largest / 900}) {
      double error = 0, all = 0;
      for (const float x : numbers) {
        const double off = in_e4m3(static_cast<double>(x), scale) - static_cast<double>(x);
        error += off * off;
        all += static_cast<double>(x) * static_cast<double>(x);
      }
      EXPECT_NEAR(relative_error(of, scale), error / all, 0.15 * error / all)
          << deviation << ' ' << scale;
    }
  }
}

TEST(Fp8Scales, DivergenceIsNoneWhereNothingIsLost) {
  EXPECT_NEAR(divergence(of_numbers({1, 1, 2, 4}), 1), 0, 1e-12);
  // All of them become 0: a half, a quarter and a quarter, of which a third each is stored.
  EXPECT_NEAR(divergence(of_numbers({1e-4f, 1e-4f, 2e-4f, 3e-5f}), 1),
              0.5 * std::log(1.5) + 0.5 * std::log(0.75), 1e-12);
}

TEST(Fp8Scales, ZerosAndTinyNumbersHaveAScale) {
  EXPECT_EQ(scale_of(of_numbers({0, 0, 0}), ScaleRule::parse("amax")), 1);
  for (const char* word : {"amax", "p99.9", "mse", "kl"}) {
    const double tiny = scale_of(of_numbers({1e-30f, 2e-30f}), ScaleRule::parse(word));
    EXPECT_GE(tiny, 9.9e-31) << word;
    const double huge = scale_of(of_numbers({1e30f, 2e37f}), ScaleRule::parse(word));
    EXPECT_TRUE(std::isfinite(huge) && huge > 0) << word;
  }
}

TEST(Fp8Scales, WordsOfRules) {
  EXPECT_EQ(ScaleRule::parse("p99.99").percent, 99.99);
  for (const char* wrong : {"", "p", "p49", "p101", "pnan", "p99x", "AMAX", "minmax"})
    EXPECT_THAT(refusal([&] { ScaleRule::parse(wrong); }), HasSubstr("choose amax, mse, kl"))
        << wrong;
}

class RangesOfProfile : public testing::Test {
 protected:
  profile::Reader profile(float odd = 3) {
    profile::CaptureSettings settings;
    for (bool* part : {&settings.lazy, &settings.js, &settings.scores, &settings.kept,
                       &settings.norms, &settings.next, &settings.columns, &settings.maps})
      *part = false;
    settings.ranges = captured_;
    const auto path = folder_.path() / "p.h5";
    profile::Writer writer(path, header_of({.layers = 2, .heads = 4, .kv_heads = 2}, settings, 2),
                           {.force = true});
    for (std::int64_t s = 0; s < 2; ++s) {
      profile::Sample sample;
      sample.index = s;
      sample.id = std::to_string(s);
      sample.tokens.assign(4, 7);
      if (captured_) {
        profile::Array largest(profile::Type::f32, {3, 2, 2});
        profile::Array counts(profile::Type::i64, {3, 2, 2, kMagnitudeBins});
        for (std::size_t i = 0; i < 12; ++i) {
          // Of sample s, place i: the number i + 1 + s.
          const auto x = static_cast<float>(i + 1 + static_cast<std::size_t>(s));
          largest.values<float>()[i] = i == 1 && s == 1 ? odd : x;
          counts.values<std::int64_t>()[i * kMagnitudeBins +
                                        static_cast<std::size_t>(profile::magnitude_bin(x))] = 4;
        }
        sample.arrays[profile::name::kLargest] = largest;
        sample.arrays[profile::name::kMagnitudes] = counts;
      }
      writer.add(sample);
    }
    writer.finish();
    return profile::Reader(path);
  }
  TemporaryFolder folder_;
  bool captured_ = true;
};

TEST_F(RangesOfProfile, SamplesAddUp) {
  const auto ranges = read_ranges(profile());
  ASSERT_EQ(ranges.values.size(), 2u);
  EXPECT_EQ(ranges.keys[0][0].largest, 2);
  EXPECT_EQ(ranges.keys[1][1].largest, 5);
  EXPECT_EQ(ranges.values[0][0].largest, 6);
  EXPECT_EQ(ranges.queries[1][1].largest, 13);
  EXPECT_EQ(ranges.queries[1][1].percentile(50),
            profile::magnitude_of_bin(profile::magnitude_bin(12) + 1));
  const auto by_layer = fp8_scales(ranges, {}, ScalesBy::layer);
  EXPECT_FLOAT_EQ(static_cast<float>(by_layer.keys[1][0]), 5.0f / 448);
  const auto by_head = fp8_scales(ranges, {}, ScalesBy::head);
  ASSERT_EQ(by_head.values[1].size(), 2u);
  EXPECT_FLOAT_EQ(static_cast<float>(by_head.values[1][0]), 8.0f / 448);
  EXPECT_EQ(shared_scales(by_head)[0], by_head.values[0][1]);
  EXPECT_THAT(worth_text(ranges, by_layer, "amax"), HasSubstr("gain next to nothing"));
}

TEST_F(RangesOfProfile, WhatIsMissingOrNoNumberIsRefused) {
  EXPECT_THAT(error_of([&] { read_ranges(profile(std::nanf(""))); }), HasSubstr("no magnitude"));
  EXPECT_THAT(error_of([&] { read_ranges(profile(std::numeric_limits<float>::infinity())); }),
              HasSubstr("no magnitude"));
  captured_ = false;
  EXPECT_THAT(refusal([&] { read_ranges(profile()); }), HasSubstr("--capture ranges"));
}

}  // namespace
}  // namespace kvatlas::calibrate
