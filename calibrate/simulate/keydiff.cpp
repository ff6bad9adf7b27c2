// SPDX-License-Identifier: Apache-2.0
// KeyDiff: the less a key is like the mean of all keys, each at length 1, the longer it stays.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cosine_similarity.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "calibrate/simulate/plan_impl.hpp"

namespace kvatlas::calibrate {

PartPlanner planner_of(const KeyDiff& part) {
  return best_scored({}, part.budget, [](const Draft& draft, std::int64_t layer) {
    const at::Tensor keys = capture::tensor_of(draft.prompt.cache(layer).key)
                                .narrow(1, 0, draft.facts.n)
                                .to(at::kFloat);  // [n_kv_heads, n, head_dim]
    const at::Tensor mean = (keys / keys.norm(2, -1, true).clamp_min(1e-12)).mean(1, true);
    return at::cosine_similarity(keys, mean, -1).neg();
  });
}

}  // namespace kvatlas::calibrate
