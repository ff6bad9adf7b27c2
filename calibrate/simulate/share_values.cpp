// SPDX-License-Identifier: Apache-2.0
// Layers whose values point the same way share them: those above the lowest of a block take its
// values, each at the length of its own.
#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "analyzer/capture/value_cosines.hpp"
#include "calibrate/rules/rules.hpp"
#include "calibrate/simulate/continuations_impl.hpp"
#include "calibrate/simulate/plan_impl.hpp"

namespace kvatlas::calibrate {

PartPlanner planner_of(const ShareValues& part) {
  PartPlanner planner;
  planner.cut = [&part](Draft& draft) {
    const std::int64_t shared = draft.n - part.recent;
    if (shared <= 0) return;
    draft.plan.shared_values = part;
    const auto cosines = capture::value_cosines(draft.prompt, draft.config, shared);
    auto& lowest = draft.plan.shared_values->lowest;
    lowest = layer_blocks({draft.kv_heads(), draft.layers(), {cosines.begin(), cosines.end()}},
                          part.delta);
    for (std::int64_t layer = 0; layer < draft.layers(); ++layer)
      if (std::any_of(lowest.begin(), lowest.end(),
                      [&](const auto& of_head) { return of_head[layer] != layer; }))
        draft.copy_layer(layer);
  };
  return planner;
}

void Continuations::State::share_values(const Stream& stream) const {
  const ShareValues& part = *stream.plan->shared_values;
  const std::int64_t shared = stream.first - part.recent;
  const auto lengths = [](const at::Tensor& rows) {
    return at::linalg_vector_norm(rows, 2, at::IntArrayRef({-1}), true, at::kFloat);
  };
  for (std::int64_t l = 0; l < config.n_layers; ++l)
    for (std::int64_t g = 0; g < K(); ++g) {
      const std::int64_t lowest = part.lowest[g][l];
      if (lowest == l) continue;
      const at::Tensor own = copies.values(l).narrow(0, stream.head(l, g).copied.start, shared);
      const at::Tensor taken =
          capture::tensor_of(prompt.cache(lowest).value)[g].narrow(0, 0, shared).to(at::kFloat);
      own.copy_(taken *
                (lengths(own) / lengths(taken).clamp_min(std::numeric_limits<float>::min())));
    }
}

}  // namespace kvatlas::calibrate
