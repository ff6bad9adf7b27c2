// SPDX-License-Identifier: Apache-2.0
// What the CUDA bodies refuse and the others take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/kernels.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/tensor.hpp"

namespace kvatlas::kernels {
namespace {

using namespace testing_support;
using testing::HasSubstr;

TEST(EmulatedCudaLimits, HeadsThatSharedMemoryCannotHoldAreRefused) {
  const std::int64_t dim = 640, value_dim = 641;
  const auto zeros = [](std::int64_t count) {
    return std::vector<float>(static_cast<std::size_t>(count));
  };
  const Tensor<3> queries(zeros(dim), {1, 1, dim}, Memory::device);
  const Tensor<2> keys(zeros(dim), {1, dim}, Memory::device),
      values(zeros(value_dim), {1, value_dim}, Memory::device);
  const Output<std::int64_t, 2> starts({1, 1}, Memory::device, Layout::dense, 0),
      lengths({1, 1}, Memory::device, Layout::dense, 1);
  const Output<float, 3> out({1, 1, value_dim}, Memory::device);
  RaggedDecode io;
  io.queries = queries.view;
  io.keys = keys.view;
  io.values = values.view;
  io.starts = starts.view;
  io.lengths = lengths.view;
  io.out = out.view;
  EXPECT_THAT(error_of([&] { ragged_decode(io); }),
              HasSubstr("head sizes 640 and 641, it takes at most 1280 together"));
}

TEST(EmulatedCudaLimits, MoreHeadsThanAGridIsHighAreRefused) {
  const std::int64_t heads = 65536;
  const Tensor<3> keys(std::vector<float>(static_cast<std::size_t>(heads * 4)), {heads, 2, 2},
                       Memory::device);
  const Output<float, 2> scores({heads, 1}, Memory::device);
  LagScores io;
  io.keys = io.values = keys.view;
  io.sink = 0;
  io.lags = {1};
  io.scores = {scores.view};
  EXPECT_THAT(error_of([&] { lag_scores(io); }), HasSubstr("at most 65535 heads"));

  const Output<std::int64_t, 2> positions({heads, 2}, Memory::device);
  LagKept kept;
  kept.scores = scores.view;
  kept.n_tokens = 2;
  kept.sink = 0;
  kept.lag = kept.keep = 1;
  kept.positions = positions.view;
  EXPECT_THAT(error_of([&] { lag_kept(kept); }), HasSubstr("at most 65535 heads"));
}

TEST(EmulatedCudaLimits, MoreChannelsThanAWarpKeepsAreRefused) {
  const Tensor<3> keys(std::vector<float>(2 * 1025), {1, 2, 1025}, Memory::device);
  const Output<float, 2> scores({1, 1}, Memory::device);
  LagScores io;
  io.keys = io.values = keys.view;
  io.sink = 0;
  io.lags = {1};
  io.scores = {scores.view};
  EXPECT_THAT(error_of([&] { lag_scores(io); }), HasSubstr("at most 1024 channels, got 1025"));
}

TEST(EmulatedCudaLimits, MoreLayersThanAGridHasTilesAreRefused) {
  const std::int64_t layers = 5785;
  const Tensor<4> probs(std::vector<float>(static_cast<std::size_t>(layers)), {layers, 1, 1, 1},
                        Memory::device);
  const Output<float, 3> mean({1, layers, layers}, Memory::device);
  EXPECT_THAT(error_of([&] {
                js_divergence({probs.view, mean.view, {}});
              }),
              HasSubstr("at most 5784 layers, got 5785"));
}

TEST(EmulatedCudaLimits, MoreKThanAGridIsHighAreRefused) {
  const Tensor<3> scores({1}, {1, 1, 1}, Memory::device);
  const Output<std::int64_t, 2> counts({65536, 1}, Memory::device);
  TopCounts io;
  io.scores = {static_cast<const float*>(scores.view.data), scores.view.sizes, scores.view.strides,
               Memory::device};
  io.k.assign(65536, 1);
  io.counts = counts.view;
  EXPECT_THAT(error_of([&] { top_counts(io); }), HasSubstr("at most 65535 k"));
}

}  // namespace
}  // namespace kvatlas::kernels
