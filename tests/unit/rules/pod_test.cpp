// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/random.hpp"
#include "calibrate/rules/rules.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::ElementsAre;
using testing::Optional;

Similarity random_similarity(std::int64_t heads, std::int64_t layers, std::uint64_t seed) {
  Random random(seed, "similarity");
  Similarity out{heads, layers, {}};
  out.values.assign(static_cast<std::size_t>(heads * layers * layers), 1);
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t a = 0; a < layers; ++a)
      for (std::int64_t b = 0; b < a; ++b) {
        const double value = random.share();
        out.values[(h * layers + a) * layers + b] = value;
        out.values[(h * layers + b) * layers + a] = value;
      }
  return out;
}

TEST(LayerSimilarity, OneMinusTheMeanDivergence) {
  const std::vector<std::vector<float>> divergences = {{0, 0.5f, 0.5f, 0}, {0, 0.25f, 0.25f, 0}};
  const Similarity similarity = layer_similarity(divergences, 1, 2);
  EXPECT_DOUBLE_EQ(similarity.at(0, 0, 1), 0.625);
  EXPECT_DOUBLE_EQ(similarity.at(0, 1, 1), 1);
  EXPECT_THROW(layer_similarity({}, 1, 2), Error);
  EXPECT_THROW(layer_similarity(divergences, 2, 2), Error);
}

TEST(LayerSimilarity, OfAKvHeadIsTheSmallestOfItsGroup) {
  Similarity similarity{4, 2, {1, .5, .5, 1, 1, .4, .4, 1, 1, .3, .3, 1, 1, .6, .6, 1}};
  const Similarity grouped = of_kv_heads(similarity, 2);
  EXPECT_DOUBLE_EQ(grouped.at(0, 0, 1), 0.4);
  EXPECT_DOUBLE_EQ(grouped.at(1, 1, 0), 0.3);
}

TEST(LayerBlocks, ALayerMustResembleEveryOne) {
  // Layer 2 resembles 1 but not 0; layer 3 resembles 2.
  const Similarity similarity{1, 4, {1, .9, .2, .9, .9, 1, .9, .9, .2, .9, 1, .5, .9, .9, .5, 1}};
  EXPECT_THAT(layer_blocks(similarity, 0.5), ElementsAre(ElementsAre(0, 0, 2, 2)));
  EXPECT_THAT(layer_blocks(similarity, 0.6), ElementsAre(ElementsAre(0, 0, 2, 3)));
  EXPECT_THAT(layer_blocks(similarity, 0), ElementsAre(ElementsAre(0, 0, 0, 0)));
}

TEST(LayerBlocks, NeverMoreAsDeltaFalls) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Similarity similarity = random_similarity(4, 9, seed);
    std::int64_t blocks = 4 * 9;
    double dropped = 0;
    for (int step = 100; step >= 0; --step) {
      EXPECT_LE(pod_point(similarity, 2, true, step / 100.0).blocks, blocks);
      blocks = pod_point(similarity, 2, true, step / 100.0).blocks;
      const double kv_head = pod_point(similarity, 2, false, step / 100.0).dropped;
      EXPECT_GE(kv_head, dropped);
      dropped = kv_head;
    }
    EXPECT_EQ(blocks, 4);
    EXPECT_DOUBLE_EQ(dropped, 8.0 / 9);
  }
}

TEST(KeysDropped, OnlyWhatNoHeadOfTheGroupReads) {
  const Blocks blocks = {{0, 0, 0, 3}, {0, 0, 2, 2}, {0, 0, 0, 0}, {0, 0, 0, 0}};
  // Group 0 reads layers 0, 2, 3; group 1 layer 0.
  EXPECT_THAT(keys_dropped(blocks, 2), ElementsAre(0, 1, 0.5, 0.5));
  EXPECT_DOUBLE_EQ(pod_point(0.5, blocks, 2).dropped, 4.0 / 8);
  EXPECT_DOUBLE_EQ(pod_point(0.5, blocks, 4).dropped, 10.0 / 16);
  EXPECT_EQ(count_blocks(blocks), 6);
}

TEST(PodSaving, HalfOfTheKeysOfDistantTokens) {
  const CacheShape shape{2, 2, 8};  // 128 bytes a token
  const std::vector<double> upper = {0, 1};
  EXPECT_DOUBLE_EQ(pod_saved(upper, shape, 1024, {16, 240}), 0.5 / 2 * 768 / 1024);
  EXPECT_DOUBLE_EQ(pod_saved(upper, shape, 200, {16, 240}), 0);
  // A window of 300 tokens holds 60 distant ones, and none of the first.
  EXPECT_DOUBLE_EQ(pod_saved(upper, {2, 2, 8, {0, 300}}, 1024, {16, 240}), 60.0 / 2 / 1324);
  EXPECT_EQ(greatest_batch(128 * 1000, shape, 100), 10);
  EXPECT_EQ(greatest_batch(128 * 1000, shape, 100, 0.25), 13);
  EXPECT_EQ(greatest_batch(100, shape, 100), 0);
  // Nothing is saved of nothing, and no number of such prompts is the greatest.
  EXPECT_EQ(pod_saved(upper, shape, 0, {16, 240}), 0);
  EXPECT_EQ(greatest_batch(100, shape, 0), 0);
}

TEST(PodSaving, HundredthsAreThePointsOfEachDelta) {
  const Similarity similarity = random_similarity(4, 5, 9);
  for (const bool per_query_head : {true, false}) {
    const auto points = pod_hundredths(similarity, 2, per_query_head);
    ASSERT_EQ(points.size(), 101u);
    for (std::size_t i = 0; i < points.size(); ++i) {
      const double delta = static_cast<double>(i) / 100;
      const PodPoint alone = pod_point(similarity, 2, per_query_head, delta);
      EXPECT_EQ(points[i].delta, delta);
      EXPECT_EQ(points[i].dropped, alone.dropped);
      EXPECT_EQ(points[i].blocks, alone.blocks);
    }
  }
}

TEST(PodSaving, DeltaForAShareOfTheCache) {
  const Similarity similarity{1, 3, {1, .8, .3, .8, 1, .3, .3, .3, 1}};
  const CacheShape shape{3, 1, 8};  // half of 100 tokens are distant
  const auto points = pod_hundredths(similarity, 1, true);
  EXPECT_THAT(delta_for(points, shape, 100, {0, 50}, 0.3 / 4), Optional(0.8));
  EXPECT_THAT(delta_for(points, shape, 100, {0, 50}, 0.6 / 4), Optional(0.3));
  EXPECT_THAT(delta_for(points, shape, 100, {0, 50}, 0), Optional(1.0));
  EXPECT_EQ(delta_for(points, shape, 100, {0, 50}, 0.9 / 4), std::nullopt);
}

TEST(Gate, ReadsDistantKeysOfTheLowestLayer) {
  // Two layers in one block, one head, two rows; the second layer's own distant scores play no
  // part.
  const std::vector<float> proximal = {0, 0, 2, 0}, distant = {2, 0, 100, 100};
  GateCurve curve(Blocks{{0, 0}});
  curve.add({proximal, distant, 2, 1, 2});
  EXPECT_EQ(curve.rows(), 4);
  // g of the upper layer is 1/2 in both rows; the lowest layer never skips.
  EXPECT_DOUBLE_EQ(curve.skipped(0), 0.5);
  EXPECT_DOUBLE_EQ(curve.skipped(0.5), 0.5);
  EXPECT_DOUBLE_EQ(curve.skipped(0.501), 0);
  EXPECT_DOUBLE_EQ(curve.skipped(1), 0);
}

TEST(Gate, OfZeroSkipsAtZeroAndOfOneNeverAtOne) {
  for (const float distant : {800.0f, -800.0f}) {  // exp(-800) is 0
    GateCurve curve(Blocks{{0, 0}});
    curve.add({std::vector<float>{0, 0}, std::vector<float>{distant, 0}, 2, 1, 1});
    EXPECT_EQ(curve.skipped(0), 0.5);
    EXPECT_EQ(curve.skipped(0.999), distant < 0 ? 0.5 : 0);
    EXPECT_EQ(curve.skipped(1), 0);
  }
  GateCurve lowest(Blocks{{0}});
  lowest.add({std::vector<float>{0}, std::vector<float>{0}, 1, 1, 1});
  EXPECT_EQ(lowest.skipped(0), 0) << "one row, which has no layer below to skip";
}

TEST(Gate, SumsNeitherOverflowNorVanish) {
  const double far = 4000;  // exp(far) is no double, exp(-far) is zero
  for (const double shift : {-far, 0.0, far})
    EXPECT_DOUBLE_EQ(log_sum_exp(std::vector{shift, shift}), shift + std::log(2.0));
  EXPECT_DOUBLE_EQ(gate_of(log_sum_exp(std::vector{far}), log_sum_exp(std::vector{far})), 0.5);
  const double none = log_sum_exp({});
  EXPECT_EQ(none, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(log_sum_exp(std::vector{none, none}), none);
  EXPECT_DOUBLE_EQ(log_sum_exp(std::vector{none, 1.0}), 1.0);
}

TEST(Gate, NeverSkipsMoreAsTauRises) {
  Random random(1, "gate");
  std::vector<float> proximal(5 * 2 * 30), distant(proximal.size());
  for (auto* values : {&proximal, &distant})
    for (float& value : *values) value = static_cast<float>(8 * random.share());
  proximal[0] = std::nanf("");                           // before the prompt
  distant[1] = -std::numeric_limits<float>::infinity();  // no distant keys
  GateCurve curve({{0, 0, 2, 2, 2}, {0, 1, 1, 1, 4}});
  curve.add({proximal, distant, 5, 2, 30});
  EXPECT_EQ(curve.rows(), 5 * 2 * 30 - 3);  // rows 0 and 1 of layer 0, and what reads row 1 there
  double before = 1;
  for (int step = 0; step <= 100; ++step) {
    EXPECT_LE(curve.skipped(step / 100.0), before);
    before = curve.skipped(step / 100.0);
  }
  EXPECT_EQ(before, 0);
  EXPECT_TRUE(std::isnan(GateCurve(Blocks{{0}}).skipped(0.5)));
}

}  // namespace
}  // namespace kvatlas::calibrate
