// SPDX-License-Identifier: Apache-2.0
// The rules of calibration on a real model's statistics, against what other software computed.
#include "calibrate/rules/rules.hpp"

#include <cmath>
#include <fstream>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/layer_budgets.hpp"
#include "tests/support/golden.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;
using testing_support::golden_path;

testing_support::GoldenArray read(const std::string& name) {
  return testing_support::read_golden(golden_path("smollm2.h5"), name);
}

json read_json(const char* name) {
  std::ifstream file(golden_path(name));
  return json::parse(file);
}

Similarity similarity_of(const std::string& prompt) {
  const auto divergence = read(prompt + "/js_divergence_q16");
  const std::vector<std::vector<float>> samples = {divergence.floats()};
  return layer_similarity(samples, divergence.shape[0], divergence.shape[1]);
}

class GoldenRules : public testing::TestWithParam<const char*> {};

TEST_P(GoldenRules, PodBlocks) {
  const Similarity similarity = similarity_of(GetParam());
  for (const char* delta : {"0.5", "0.7", "0.9"}) {
    const auto block = read(std::string(GetParam()) + "/pod_block_of_layer_" + delta).integers();
    const Blocks lowest = layer_blocks(similarity, std::stod(delta));
    for (std::int64_t head = 0; head < similarity.heads; ++head) {
      // Where a similarity is that close to delta, rounding decides.
      bool close = false;
      for (std::int64_t a = 0; a < similarity.layers; ++a)
        for (std::int64_t b = 0; b < a; ++b)
          close = close || std::abs(similarity.at(head, a, b) - std::stod(delta)) < 2e-5;
      if (close) continue;
      std::int64_t number = -1;
      for (std::int64_t layer = 0; layer < similarity.layers; ++layer) {
        number += lowest[head][layer] == layer;
        ASSERT_EQ(number, block[head * similarity.layers + layer])
            << "delta " << delta << ", head " << head << ", layer " << layer;
      }
    }
  }
}

TEST_P(GoldenRules, LayerBudgets) {
  const std::int64_t n = read(std::string(GetParam()) + "/tokens").shape[0];
  for (const std::int64_t budget : {64, 128, 256})
    for (const char* pooling : {"avg", "max"}) {
      const std::string folder = std::string(GetParam()) + "/dynamickv_wt" +
                                 std::to_string(budget) + "_ws16_k7_" + pooling + "_rmax10/";
      const auto counts = read(folder + "counts").integers();
      const auto got = kernels::layer_budgets(counts, budget - 16, n - 16, 10);
      EXPECT_EQ(got.raw, read(folder + "raw").integers()) << folder;
      EXPECT_EQ(got.scaled, read(folder + "scaled").integers()) << folder;
      EXPECT_EQ(got.exact, read(folder + "exact").integers()) << folder;
      // One sample's summary is the sample itself.
      EXPECT_EQ(summarise_budgets({got.exact}).budgets, got.exact) << folder;
    }
}

INSTANTIATE_TEST_SUITE_P(SmolLM2, GoldenRules, testing::Values("prose", "code"),
                         [](const auto& prompt) { return std::string(prompt.param); });

TEST(GoldenRules, LagKvLengths) {
  const auto n = read("prose/tokens").shape[0];
  EXPECT_EQ(lag_kept_tokens(n, {16, 128, 32}),
            read("prose/lagkv_layer0/kept_S16_L128_r0.25_lag").shape[1]);
  EXPECT_EQ(lag_kept_tokens(n, {16, 256, 128}),
            read("prose/lagkv_layer0/kept_S16_L256_r0.5_lag").shape[1]);
}

TEST(GoldenRules, PodKeysDropped) {
  const Similarity similarity = similarity_of("prose");
  const json cases = read_json("pod_smollm2.json");
  ASSERT_EQ(cases.size(), 15u);
  for (const json& entry : cases) {
    const double delta = entry.at("policy").at("delta");
    const Blocks blocks = pod_blocks(similarity, 3, true, delta);
    EXPECT_EQ(blocks, entry.at("lowest_layer").get<Blocks>()) << delta;
    const PodPoint point = pod_point(similarity, 3, true, delta);
    EXPECT_EQ(point.blocks, entry.at("query_head_blocks").get<std::int64_t>()) << delta;
    EXPECT_NEAR(point.dropped, entry.at("keys_dropped").get<double>(), 1e-12) << delta;
  }
}

TEST(GoldenRules, LazyLayers) {
  int compared = 0;
  for (const json& entry : read_json("policies_smollm2.json")) {
    if (entry.at("policy").at("name") != "simlayerkv") continue;
    const double threshold = entry.at("policy").at("threshold");
    const auto masses = entry.at("mass").get<std::vector<double>>();
    std::vector<std::int64_t> lazy;
    const LayerFlags flags = lazy_layers(masses, threshold);
    for (std::size_t l = 0; l < flags.size(); ++l)
      if (flags[l]) lazy.push_back(static_cast<std::int64_t>(l));
    EXPECT_EQ(lazy, entry.at("lazy").get<std::vector<std::int64_t>>()) << threshold;
    ++compared;
  }
  EXPECT_GT(compared, 10);
}

}  // namespace
}  // namespace kvatlas::calibrate
