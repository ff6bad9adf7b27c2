// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "analyzer/capture/feed_forward_impl.hpp"
#include "analyzer/capture/ops_impl.hpp"

namespace kvatlas::capture {
namespace {

/// The dense block runs on pieces of so many rows: few enough that their widest intermediate stays
/// in a cache, where the model is small, but enough to make reading the weights worth it.
std::int64_t dense_rows(const model::Config& c) {
  constexpr std::int64_t kCacheBytes = 12 << 20;
  return std::max<std::int64_t>(1024, kCacheBytes / (2 * c.intermediate_size * 4));
}

/// Experts share the rows of a piece, so that it must be long to give each of them many.
constexpr std::int64_t kExpertRows = 16384;

/// What lies above so many standard deviations from the mean of a row, in place; else 0.
void cut_gates(const at::Tensor& gates, double deviations) {
  const at::Tensor least =
      gates.mean(-1, true) + gates.std(-1, /*unbiased=*/false, true) * deviations;
  gates.sub_(least).clamp_min_(0);
}

at::Tensor mlp(const at::Tensor& rows, const at::Tensor& gate_up, const at::Tensor& gate_up_bias,
               const at::Tensor& down, const at::Tensor& down_bias, const model::Config& c,
               const at::Tensor& activation = {}, std::optional<double> least_gate = {}) {
  const at::Tensor wide = linear(rows, gate_up, gate_up_bias);
  if (least_gate) cut_gates(wide.narrow(1, 0, wide.size(1) / 2), *least_gate);
  return linear(c.gated ? gated_activation(wide, c) : activated(wide, c.activation, activation),
                down, down_bias);
}

/// Which experts each row goes to, and with what weights: [n, active] each.
struct Routes {
  at::Tensor experts, weights;
};

/// Phi's: the best expert with its share of those that come near it, then the same of the others.
Routes sparse_mixer(const at::Tensor& logits, double jitter) {
  const double lowest = -std::numeric_limits<double>::infinity();
  std::vector<at::Tensor> experts, weights;
  at::Tensor left = logits;
  for (int choice = 0; choice < 2; ++choice) {
    const auto [best, index] = left.max(-1, /*keepdim=*/true);
    const at::Tensor far = ((best - logits) / logits.abs().maximum(best)) > 2 * jitter;
    const at::Tensor shares = at::softmax(left.masked_fill(far, lowest), -1);
    experts.push_back(index);
    weights.push_back(shares.gather(-1, index));
    left = logits.scatter(-1, index, lowest);
  }
  return {at::cat(experts, -1), at::cat(weights, -1)};
}

/// Scores of experts outside the best groups become so low that none of them is chosen.
at::Tensor of_best_groups(const at::Tensor& scores, const model::Experts& experts) {
  if (experts.active_groups == experts.groups) return scores;
  const std::int64_t n = scores.size(0), in_group = experts.count / experts.groups;
  const at::Tensor grouped = scores.view({n, experts.groups, in_group});
  const at::Tensor of_groups = std::get<0>(grouped.topk(experts.best_of_group, -1)).sum(-1);
  const at::Tensor chosen = std::get<1>(of_groups.topk(experts.active_groups, -1));
  const at::Tensor kept = at::zeros_like(of_groups).scatter(1, chosen, 1.0).to(at::kBool);
  return grouped
      .masked_fill(kept.logical_not().unsqueeze(-1), -std::numeric_limits<double>::infinity())
      .view({n, experts.count});
}

Routes route(const at::Tensor& rows, const LayerTensors& w, const model::Experts& experts) {
  const at::Tensor logits = capture::linear(rows, w.router, w.router_bias).to(at::kFloat);
  if (experts.score == model::Experts::Score::sparse_mixer)
    return sparse_mixer(logits, experts.jitter);
  const at::Tensor scores = experts.score == model::Experts::Score::sigmoid
                                ? at::sigmoid(logits)
                                : at::softmax(logits, -1);
  const at::Tensor choice = w.router_correction.defined() ? scores + w.router_correction : scores;
  const at::Tensor index = std::get<1>(of_best_groups(choice, experts).topk(experts.active, -1));
  at::Tensor weights = scores.gather(-1, index);
  if (experts.normalised) weights = weights / weights.sum(-1, true).clamp_min(1e-20);
  if (w.router_scale.defined()) weights = weights * w.router_scale.index({index});
  return {index, weights * experts.scale};
}

/// The rows of each expert together, so that its weights are read once.
at::Tensor run_experts(const at::Tensor& rows, const Routes& routes, const LayerTensors& w,
                       const model::Config& c) {
  const model::Experts& experts = c.experts;
  const auto [sorted, order] = routes.experts.flatten().sort(/*stable=*/true, /*dim=*/0, false);
  const at::Tensor counts = sorted.bincount({}, experts.count).cpu();
  const at::Tensor weights = routes.weights.flatten().index_select(0, order);
  const at::Tensor of_rows = order.floor_divide(experts.active);
  at::Tensor out = at::zeros_like(rows, rows.options().dtype(at::kFloat));
  const auto* count = counts.const_data_ptr<std::int64_t>();
  for (std::int64_t e = 0, begin = 0; e < experts.count; begin += count[e], ++e) {
    if (count[e] == 0) continue;
    const at::Tensor which = of_rows.narrow(0, begin, count[e]);
    const auto own = [&](const at::Tensor& of_all, std::int64_t each) {
      return of_all.defined() ? of_all.narrow(0, e * each, each) : at::Tensor();
    };
    const std::int64_t wide = 2 * experts.size;
    const at::Tensor weight = weights.narrow(0, begin, count[e]).unsqueeze(-1);
    at::Tensor read = rows.index_select(0, which);
    if (experts.weighs_inputs) read = read * weight.to(read.scalar_type());
    const at::Tensor made =
        mlp(read, own(w.expert_gate_up, wide), own(w.expert_gate_up_bias, wide),
            own(w.expert_down, c.hidden_size), own(w.expert_down_bias, c.hidden_size), c);
    const at::Tensor given = made.to(at::kFloat);
    out.index_add_(0, which, experts.weighs_inputs ? given : given * weight);
  }
  if (w.shared_down.defined()) {
    at::Tensor shared = mlp(rows, w.shared_gate_up, {}, w.shared_down, {}, c);
    if (w.shared_gate.defined())
      shared = shared * at::sigmoid(capture::linear(rows, w.shared_gate));
    out.add_(shared);
  }
  return out.to(rows.scalar_type());
}

/// A dense block and one of experts read the same hidden states, each under norms of its own; the
/// router sees them under another, which also divides by the root of their width.
at::Tensor dense_and_experts(const at::Tensor& hidden, const at::Tensor& normed,
                             const LayerTensors& w, const model::Config& c) {
  const at::Tensor seen = rms_norm(hidden, w.router_norm, c.norm_eps, 0.0) /
                          std::sqrt(static_cast<double>(c.hidden_size));
  const at::Tensor dense = mlp(normed, w.gate_up, {}, w.down, {}, c);
  const at::Tensor of_experts =
      run_experts(norm(hidden, w.expert_norm, {}, c), route(seen, w, c.experts), w, c);
  return norm(dense, w.dense_norm, {}, c) + norm(of_experts, w.post_expert_norm, {}, c);
}

}  // namespace

std::int64_t feed_forward_values(const model::Config& c, std::int64_t tokens) {
  const std::int64_t dense = 3 * std::min(dense_rows(c), tokens) * c.intermediate_size;
  if (c.experts.count == 0) return dense;
  const std::int64_t rows = std::min(kExpertRows, tokens);
  // At worst all rows go to one expert.
  return std::max(dense,
                  rows * (4 * c.hidden_size + 3 * std::max(c.experts.size, c.experts.shared_size)));
}

void feed_forward(const model::Config& c, const LayerTensors& w, const at::Tensor& hidden,
                  std::optional<double> least_gate) {
  const std::int64_t n = hidden.size(0);
  const std::int64_t piece = w.router.defined() ? kExpertRows : dense_rows(c);
  for (std::int64_t start = 0; start < n; start += piece) {
    at::Tensor rows = hidden.narrow(0, start, std::min(piece, n - start));
    const at::Tensor normed = norm(rows, w.mlp_norm, w.mlp_norm_bias, c);
    const at::Tensor out = c.experts.beside_dense ? dense_and_experts(rows, normed, w, c)
                           : w.router.defined()
                               ? run_experts(normed, route(normed, w, c.experts), w, c)
                               : mlp(normed, w.gate_up, w.gate_up_bias, w.down, w.down_bias, c,
                                     w.activation, least_gate);
    rows.add_(norm(out, w.post_mlp_norm, {}, c), c.residual_scale);
  }
}

}  // namespace kvatlas::capture
