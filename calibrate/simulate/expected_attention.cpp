// SPDX-License-Identifier: Apache-2.0
// ExpectedAttention: the attention that a token would take from queries behind the prompt, if these
// were spread as the prompt's own.
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include "analyzer/capture/mean_rotation-inl.hpp"
#include "analyzer/capture/tensors-inl.hpp"
#include "calibrate/simulate/plan_impl.hpp"

namespace kvatlas::calibrate {
namespace {

at::Tensor expected_scores(const ExpectedAttention& part, const Draft& draft, std::int64_t layer) {
  const model::Config& config = draft.config;
  const std::int64_t n = draft.facts.n, groups = draft.kv_heads(), d = config.head_dim;
  const auto cache = draft.prompt.cache(layer);
  const auto behind_sink = [&](const AnyView<3>& rows) {
    return capture::tensor_of(rows).narrow(1, part.sink, n - part.sink).to(at::kFloat);
  };
  const at::Tensor keys = behind_sink(cache.key), values = behind_sink(cache.value);
  const QuerySpread& queries = draft.facts.queries_of(part.sink, layer);
  const at::Tensor rotation =
      capture::mean_rotation(config, layer, n, part.future, queries.mean.device());
  const at::Tensor mean = at::matmul(queries.mean, rotation).view({groups, -1, d});
  at::Tensor logits = at::matmul(mean, keys.transpose(1, 2)) * config.attention_scale;
  if (part.covariance) {
    const at::Tensor turned =
        at::matmul(rotation.t(), at::matmul(queries.covariance, rotation)).view({groups, -1, d, d});
    const at::Tensor columns = keys.transpose(1, 2).unsqueeze(1);  // [KV head, 1, head_dim, token]
    logits = logits + (columns * at::matmul(turned, columns)).sum(2) *
                          (config.attention_scale * config.attention_scale / 2);
  }
  at::Tensor scores = at::softmax(logits, -1).mean(1);
  if (part.values) scores = (scores + part.epsilon) * values.norm(2, -1);
  // The first tokens are kept, as if they scored best.
  const at::Tensor sink =
      at::full({groups, part.sink}, std::numeric_limits<float>::infinity(), scores.options());
  return at::cat({sink, scores}, 1);
}

}  // namespace

PartPlanner planner_of(const ExpectedAttention& part) {
  Needs needs;
  needs.queries_without_first = {part.sink};
  return best_scored(needs, part.budget, [&part](const Draft& draft, std::int64_t layer) {
    require_turning_queries(draft);
    return expected_scores(part, draft, layer);
  });
}

}  // namespace kvatlas::calibrate
