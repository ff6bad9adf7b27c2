// SPDX-License-Identifier: Apache-2.0
// What the plan of a profile counts for its statistics.
#include <gtest/gtest.h>

#include "analyzer/capture/sample_capture.hpp"

namespace kvatlas::capture {
namespace {

std::int64_t working_bytes(std::int64_t layers_together) {
  model::Config config;  // Llama 3.1 8B's shapes
  config.n_layers = 32;
  config.n_heads = 32;
  config.n_kv_heads = 8;
  config.head_dim = 128;
  return capture_bytes({}, config, 32768, false, layers_together).working;
}

TEST(CaptureBytes, LayersThatAreLookedAtTogetherAreCounted) {
  // 36 selections of LagKV keep a third of the tokens in the mean: 8 bytes for each, and KV head.
  const double layer = 36.0 * 32768 / 3 * 8 * 8;
  const auto grown = static_cast<double>(working_bytes(32) - working_bytes(16));
  EXPECT_GT(grown, 16 * 0.5 * layer);
  EXPECT_LT(grown, 16 * 1.5 * layer);
  EXPECT_EQ(working_bytes(64), working_bytes(32)) << "there are 32 layers";
}

}  // namespace
}  // namespace kvatlas::capture
