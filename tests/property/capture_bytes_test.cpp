// SPDX-License-Identifier: Apache-2.0
// What the plan of a profile counts for its statistics.
#include <gtest/gtest.h>

#include "analyzer/capture/sample_capture.hpp"
#include "base/parallel.hpp"

namespace kvatlas::capture {
namespace {

std::int64_t working_bytes(int threads) {
  model::Config config;  // Llama 3.1 8B's shapes
  config.n_layers = 32;
  config.n_heads = 32;
  config.n_kv_heads = 8;
  config.head_dim = 128;
  const int before = thread_count();
  set_thread_count(threads);
  const CaptureBytes bytes = capture_bytes({}, config, 32768, false);
  set_thread_count(before);
  return bytes.working;
}

TEST(CaptureBytes, ThreadsThatLookAtLayersTogetherAreCounted) {
  // 36 selections of LagKV keep a third of the tokens in the mean: 8 bytes for each, and KV head.
  const double thread = 36.0 * 32768 / 3 * 8 * 8;
  const auto grown = static_cast<double>(working_bytes(32) - working_bytes(16));
  EXPECT_GT(grown, 16 * 0.5 * thread);
  EXPECT_LT(grown, 16 * 1.5 * thread);
  EXPECT_EQ(working_bytes(64), working_bytes(32)) << "there are 32 layers";
}

}  // namespace
}  // namespace kvatlas::capture
