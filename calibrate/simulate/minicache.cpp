// SPDX-License-Identifier: Apache-2.0
// MiniCache: of the upper half, two neighbouring layers share the directions of their keys and
// values, and each keeps its norms. The most recent tokens are not merged.
#include <ATen/ops/empty.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "base/error.hpp"
#include "calibrate/simulate/continuations_impl.hpp"
#include "calibrate/simulate/plan_impl.hpp"
#include "kernels/minicache_merge.hpp"

namespace kvatlas::calibrate {

using capture::any_view;
using capture::view_of;

PartPlanner planner_of(const MiniCache& part) {
  PartPlanner planner;
  planner.cut = [&part](Draft& draft) {
    draft.plan.minicache = part;
    for (std::int64_t layer = 0; layer < draft.layers(); ++layer) draft.copy_layer(layer);
  };
  return planner;
}

namespace {

/// Rows of two layers, in place.
void merge(const at::Tensor& below, const at::Tensor& above, double t) {
  const at::Tensor a = below.unsqueeze(0), b = above.unsqueeze(0);
  const at::Tensor merged_a = at::empty(a.sizes(), a.options().dtype(at::kFloat));
  const at::Tensor merged_b = at::empty(a.sizes(), merged_a.options());
  kernels::minicache_merge({any_view<3>(a), any_view<3>(b), t, view_of<float, 3>(merged_a),
                            view_of<float, 3>(merged_b)});
  a.copy_(merged_a);
  b.copy_(merged_b);
}

}  // namespace

bool is_merged(std::int64_t layer, std::int64_t layers) {
  const std::int64_t first = layers / 2;
  return layer >= first && first + (layer - first) / 2 * 2 + 1 < layers;
}

void Continuations::State::merge_layers(const Stream& stream) const {
  for (std::int64_t l = config.n_layers / 2; l + 1 < config.n_layers; l += 2)
    for (std::int64_t g = 0; g < K(); ++g) {
      const CopiedRows &lower = stream.head(l, g).copied, &upper = stream.head(l + 1, g).copied;
      if (!lower.tokens || !upper.tokens || *lower.tokens != *upper.tokens)
        fail(ErrorCode::usage,
             "minicache merges layers that keep the same tokens: it cannot be "
             "composed with a policy that selects other tokens in each layer");
      const std::int64_t count = lower.length() - stream.plan->minicache->recent;
      if (count <= 0) continue;
      const auto run = [&](const at::Tensor& below, const at::Tensor& above) {
        merge(below.narrow(0, lower.start, count), above.narrow(0, upper.start, count),
              stream.plan->minicache->t);
      };
      run(copies.keys(l), copies.keys(l + 1));
      run(copies.values(l), copies.values(l + 1));
    }
}

}  // namespace kvatlas::calibrate
