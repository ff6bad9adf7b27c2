// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/random.hpp"
#include "calibrate/rules/rules.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::ElementsAre;
using testing::Eq;
using testing::Optional;

Masses random_masses(std::size_t samples, std::size_t layers, std::uint64_t seed) {
  Random random(seed, "masses");
  Masses masses(samples, std::vector<double>(layers));
  for (auto& of_sample : masses)
    for (double& mass : of_sample) mass = random.share();
  return masses;
}

TEST(LazyLayers, StrictlyAboveAndNoneAtOne) {
  const std::vector<double> masses = {0.5, 0.7, 1.0000001};
  EXPECT_THAT(lazy_layers(masses, 0.5), ElementsAre(0, 1, 1));
  EXPECT_THAT(lazy_layers(masses, 1), ElementsAre(0, 0, 0));
}

TEST(LazyLayers, CandidatesAreDistinctMassesAtMostForty) {
  EXPECT_THAT(threshold_candidates({{0.3, 0.1}, {0.3, 0.2}}), ElementsAre(0.1, 0.2, 0.3));
  const auto many = threshold_candidates(random_masses(20, 30, 1));
  EXPECT_EQ(many.size(), 40u);
  EXPECT_TRUE(std::is_sorted(many.begin(), many.end()));
  // Repeated values do not draw candidates to themselves.
  EXPECT_EQ(threshold_candidates(Masses(100, {0.25, 0.75})).size(), 2u);
  // A mass that many samples share counts once.
  Masses repeated = random_masses(20, 30, 1);
  repeated.insert(repeated.end(), 500, repeated.front());
  EXPECT_EQ(threshold_candidates(repeated), many);
}

TEST(LazyLayers, ThresholdsAreReadWithFiveDigitsUpwards) {
  EXPECT_DOUBLE_EQ(readable_threshold(0.123451), 0.12346);
  EXPECT_DOUBLE_EQ(readable_threshold(0.5), 0.5);
  EXPECT_EQ(readable_threshold(0.999999), 1);
}

TEST(LazyLayers, RatesNeverRiseWithTheThreshold) {
  const Masses masses = random_masses(25, 12, 2);
  std::vector<double> before(12, 1);
  double lazy = 12;
  for (int step = 0; step <= 100; ++step) {
    const auto rates = lazy_rates(masses, step / 100.0);
    for (std::size_t l = 0; l < 12; ++l) EXPECT_LE(rates[l], before[l]);
    lazy = std::accumulate(rates.begin(), rates.end(), 0.0);
    before = rates;
  }
  EXPECT_EQ(lazy, 0);
}

TEST(StaticView, MajorityAndItsDisagreement) {
  const Masses masses = {{0.9, 0.9, 0.1}, {0.9, 0.1, 0.1}, {0.9, 0.1, 0.9}, {0.9, 0.9, 0.1}};
  const StaticView view = static_view(masses, 0.5);
  EXPECT_THAT(view.lazy, ElementsAre(1, 1, 0));
  EXPECT_DOUBLE_EQ(view.disagreement, 3.0 / 12);
  EXPECT_THAT(static_view(masses, 0.5, 0.75).lazy, ElementsAre(1, 0, 0));
  EXPECT_THAT(static_view(masses, 1, 0).lazy, ElementsAre(0, 0, 0));
}

TEST(Consistency, ComparesLaterTokensWithTheFirst) {
  const double none = std::nan("");
  const Masses steps = {{0.9, 0.8, 0.2, none}, {0.1, 0.2, 0.3, 0.9}};
  EXPECT_DOUBLE_EQ(consistency(steps, 0.5), 3.0 / 5);
  EXPECT_TRUE(std::isnan(consistency({{0.9}, {0.1}}, 0.5)));
}

TEST(OppositeLayers, AsManyOfTheSmallestMass) {
  const std::vector<double> masses = {0.9, 0.3, 0.8, 0.1, 0.3};
  EXPECT_THAT(opposite_layers(masses, lazy_layers(masses, 0.5)), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(opposite_layers(masses, lazy_layers(masses, 0.2)), ElementsAre(0, 0, 0, 1, 0));
  EXPECT_THAT(opposite_layers(masses, lazy_layers(masses, 1)), ElementsAre(0, 0, 0, 0, 0));
  const std::vector<double> falling = {0.3, 0.9, 0.2}, rising = {0.1, 0.9, 0.2};
  EXPECT_THAT(opposite_layers(falling, lazy_layers(falling, 0.5)), ElementsAre(0, 0, 1));
  EXPECT_THAT(opposite_layers(rising, lazy_layers(rising, 0.5)), ElementsAre(1, 0, 0));
}

TEST(ChooseThreshold, NoLuckyDip) {
  const std::vector<double> scores = {0.2, 0.97, 0.5, 0.96, 0.99, 1.0};
  EXPECT_THAT(choose_threshold(scores, 1, 0.05), Optional(Eq(3u)));
  EXPECT_THAT(choose_threshold(scores, 1, 0.01), Optional(Eq(4u)));
  EXPECT_THAT(choose_threshold(scores, 1, 1), Optional(Eq(0u)));
  EXPECT_EQ(choose_threshold(std::vector<double>{1, 0.5}, 1, 0.1), std::nullopt);
  // One of ten samples lost is a loss of one sample, rounding or not.
  EXPECT_THAT(choose_threshold(std::vector<double>{0.7 + 0.2, 1}, 1, 0.1), Optional(Eq(0u)));
}

TEST(LayerSavings, InLayersAndBytes) {
  const CacheShape shape{30, 3, 64};
  EXPECT_DOUBLE_EQ(shape.bytes_per_token(), 2 * 2 * 30 * 3 * 64);
  const std::vector<double> halves(30, 0.5), all(30, 1);
  const Savings half = layer_savings(halves, shape, 1040, {4, 256});
  EXPECT_DOUBLE_EQ(half.layer_ratio, 2);
  EXPECT_DOUBLE_EQ(half.kv_ratio, 1 / 0.625);  // 260 of 1040 tokens in half of the layers
  EXPECT_DOUBLE_EQ(half.kv_ratio_4bit, 3.2 / 0.625);
  EXPECT_DOUBLE_EQ(half.full_bytes, 1040.0 * 23040);
  EXPECT_DOUBLE_EQ(half.kept_bytes, half.full_bytes * 0.625);
  EXPECT_TRUE(std::isinf(layer_savings(all, shape, 1040, {4, 256}).layer_ratio));
  EXPECT_DOUBLE_EQ(layer_savings(all, shape, 200, {4, 256}).kv_ratio, 1);  // nothing to trim
}

TEST(LayerSavings, WindowsOfTheModelHoldTheirTokensAlone) {
  const CacheShape shape{3, 1, 16, {512, 0, 512}};  // 64 bytes a token and layer
  EXPECT_DOUBLE_EQ(shape.full_bytes(4096), 64.0 * (512 + 4096 + 512));
  EXPECT_DOUBLE_EQ(shape.full_bytes(300), 64.0 * 3 * 300);
  // Layer 0 sees neither the first tokens nor those before its window.
  const Savings first = layer_savings(std::vector<double>{1, 0, 0}, shape, 4096, {4, 256});
  EXPECT_DOUBLE_EQ(first.kept_bytes, 64.0 * (256 + 4096 + 512));
  EXPECT_DOUBLE_EQ(first.layer_ratio, 1.5);
  const Savings middle = layer_savings(std::vector<double>{0, 1, 0}, shape, 4096, {4, 256});
  EXPECT_DOUBLE_EQ(middle.kept_bytes, 64.0 * (512 + 260 + 512));
  const Savings wide = layer_savings(std::vector<double>{1, 0, 1}, shape, 4096, {4, 1024});
  EXPECT_DOUBLE_EQ(wide.kv_ratio, 1);  // the windows are smaller than what is kept
}

TEST(LayerSavings, LayersMayCacheLessThanAKeyAndAValueAKvHead) {
  const CacheShape shape{3, 2, 8, {}, 0, {32, 8, 0}};  // 64, 16 and no bytes a token
  EXPECT_DOUBLE_EQ(shape.share(0), 1);
  EXPECT_DOUBLE_EQ(shape.share(1), 0.25);
  EXPECT_DOUBLE_EQ(shape.bytes_per_token(), 80);
  EXPECT_DOUBLE_EQ(shape.full_bytes(100), 8000);
  const Savings small = layer_savings(std::vector<double>{0, 1, 1}, shape, 100, {0, 50});
  EXPECT_DOUBLE_EQ(small.kept_bytes, 6400 + 800);
  const Savings large = layer_savings(std::vector<double>{1, 0, 0}, shape, 100, {0, 50});
  EXPECT_DOUBLE_EQ(large.kept_bytes, 3200 + 1600);
}

TEST(CodedTokens, AllButTheResidualAtTheCutAndThenWholeGroups) {
  EXPECT_EQ(coded_tokens(100, 100, 0), 100);
  EXPECT_EQ(coded_tokens(100, 100, 30), 70);
  EXPECT_EQ(coded_tokens(100, 131, 30), 70);
  EXPECT_EQ(coded_tokens(100, 132, 30), 102);
  EXPECT_EQ(coded_tokens(100, 195, 30), 134);
  EXPECT_EQ(coded_tokens(20, 40, 30), 0);  // the residual is longer than what was cut
  EXPECT_EQ(coded_tokens(20, 62, 30), 32);
  EXPECT_EQ(coded_tokens(10, 20, 30), 0);
}

TEST(SampleMasses, MeansOfGroupsAndLastRows) {
  // Two layers of two KV heads of two query heads, three rows, of which the last two count.
  std::vector<float> values(2 * 4 * 3);
  std::iota(values.begin(), values.end(), 0.0f);
  const Masses found = kv_head_masses(values, 2, 4, 2, 2);
  EXPECT_THAT(found, ElementsAre(ElementsAre(3, 9), ElementsAre(15, 21)));
  EXPECT_THROW(kv_head_masses(values, 2, 4, 2, 0), Error);
  EXPECT_THROW(kv_head_masses(values, 2, 4, 2, 4), Error);
  SampleMasses samples;
  EXPECT_TRUE(samples.add({{0.2, 0.4}, {0.8, 1}}));
  EXPECT_FALSE(samples.add({{0.2, std::nan("")}, {0.8, 1}}));
  EXPECT_TRUE(samples.add({{0.6, 0.8}, {0.4, 0.2}}));
  ASSERT_EQ(samples.layers.size(), 2u);
  EXPECT_DOUBLE_EQ(samples.layers[0][1], 0.9);
  EXPECT_EQ(samples.decided(false), samples.layers);
  EXPECT_THAT(samples.decided(true),
              ElementsAre(ElementsAre(0.2, 0.4, 0.8, 1), ElementsAre(0.6, 0.8, 0.4, 0.2)));
  const auto means = mean_masses(samples.layers);
  EXPECT_DOUBLE_EQ(means[0], 0.5);
  EXPECT_DOUBLE_EQ(means[1], 0.6);
  EXPECT_TRUE(mean_masses({}).empty());
  const auto shares = [&](bool per_head, bool fixed, double share) {
    LazyChoice choice;
    choice.per_head = per_head;
    choice.fixed = fixed;
    choice.share = share;
    return lazy_shares(samples, 0.75, choice);
  };
  // Above 0.75: layer 1 of the first sample; of heads one of layer 0, once, and both of layer 1.
  EXPECT_THAT(shares(false, false, 0.5), ElementsAre(0, 0.5));
  EXPECT_THAT(shares(true, false, 0.5), ElementsAre(0.25, 0.5));
  EXPECT_THAT(shares(false, true, 0.5), ElementsAre(0, 1));
  EXPECT_THAT(shares(false, true, 0.6), ElementsAre(0, 0));
  EXPECT_THAT(shares(true, true, 0.5), ElementsAre(0.5, 1));
}

TEST(Consistency, OfEachLayerOverTheSamples) {
  StepMasses steps;
  const std::vector<float> first = {0.9f, 0.8f, 0.1f, 0.1f, 0.9f, 0.1f},
                           second = {0.1f, 0.2f, 0.9f, 0.1f, 0.2f, 0.3f};
  add_steps(steps, first, 2);
  add_steps(steps, second, 2);
  // Layer 0: lazy, lazy, not; not, not, lazy. Layer 1: not, lazy, not; not, not, not.
  EXPECT_THAT(layer_consistency(steps, 0.5), ElementsAre(0.5, 0.75));
  const float none = std::nanf("");
  StepMasses some;
  add_steps(some, std::vector<float>{0.9f, none, 0.9f, 0.9f}, 2);
  EXPECT_TRUE(std::isnan(layer_consistency(some, 0.5).at(0)));
  EXPECT_EQ(layer_consistency(some, 0.5).at(1), 1);
  StepMasses nothing;
  add_steps(nothing, std::vector<float>{0.9f, none, 0.9f, none}, 2);
  EXPECT_TRUE(layer_consistency(nothing, 0.5).empty());
}

TEST(HeadView, EachHeadByItself) {
  const std::vector<Masses> masses = {{{0.9, 0.1}, {0.6, 0.4}}, {{0.8, 0.2}, {0.4, 0.4}}};
  const HeadView view = head_view(masses, 0.5);
  EXPECT_THAT(view.rates, ElementsAre(ElementsAre(1, 0), ElementsAre(0.5, 0)));
  EXPECT_THAT(view.streaming, ElementsAre(ElementsAre(1, 0), ElementsAre(1, 0)));
}

}  // namespace
}  // namespace kvatlas::calibrate
