// SPDX-License-Identifier: Apache-2.0
#include <ATen/TensorOperators.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include "analyzer/capture/projection_impl.hpp"

namespace kvatlas::capture {
namespace {

/// Positions that the mean query and the mean key are put at, as in kvpress.
constexpr std::int64_t kPositions = 500;

/// The mean over tokens, [n, heads, size], at each of the positions.
at::Tensor mean_everywhere(const at::Tensor& heads) {
  return heads.mean(0, true, at::kDouble)
      .to(heads.scalar_type())
      .expand({kPositions, -1, -1})
      .contiguous();
}

}  // namespace

at::Tensor head_reach(const model::Config& c, std::int64_t layer, const LayerTensors& w,
                      const Projected& before_rope) {
  const std::int64_t kv_heads = before_rope.key.size(1), group = c.n_heads / kv_heads;
  Projected mean;
  mean.query = mean_everywhere(before_rope.query);
  mean.key = mean_everywhere(before_rope.key);
  turn(c, layer, w, rotations(c, 0, kPositions, mean.query.device()), mean);
  const at::Tensor
      query = mean.query.select(0, kPositions - 1).to(at::kFloat).view({kv_heads, group, -1}),
      key = mean.key.to(at::kFloat).permute({1, 2, 0});
  const at::Tensor shares = at::softmax(at::matmul(query, key) * c.attention_scale, -1);
  return at::cumsum(shares, -1)
      .mean(at::IntArrayRef{1, 2})
      .repeat_interleave(c.n_kv_heads / kv_heads);
}

}  // namespace kvatlas::capture
