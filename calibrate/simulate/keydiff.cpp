// SPDX-License-Identifier: Apache-2.0
// KeyDiff: the less a key is like the mean of all keys, each at length 1, the longer it stays.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cosine_similarity.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "calibrate/simulate/plan_impl.hpp"

namespace kvatlas::calibrate {

at::Tensor unlike_mean_scores(const at::Tensor& keys) {
  const at::Tensor all = keys.to(at::kFloat);
  const at::Tensor mean = (all / all.norm(2, -1, true).clamp_min(1e-12)).mean(1, true);
  return at::cosine_similarity(all, mean, -1).neg();
}

PartPlanner planner_of(const KeyDiff& part) {
  return best_scored({}, part.budget, [](const Draft& draft, std::int64_t layer) {
    const at::Tensor keys = capture::tensor_of(draft.prompt.cache(layer).key);
    return unlike_mean_scores(keys.narrow(1, 0, draft.facts.n));
  });
}

}  // namespace kvatlas::calibrate
