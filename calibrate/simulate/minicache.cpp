// SPDX-License-Identifier: Apache-2.0
// MiniCache: of the upper half, two neighbouring layers share the directions of their keys and
// values, and each keeps its norms. The tokens whose directions differ most are not merged.
#include <ATen/TensorOperators.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "base/error.hpp"
#include "calibrate/simulate/continuations_impl.hpp"
#include "calibrate/simulate/plan_impl.hpp"

namespace kvatlas::calibrate {

PartPlanner planner_of(const MiniCache& part) {
  PartPlanner planner;
  planner.cut = [&part](Draft& draft) {
    draft.plan.minicache = part;
    for (std::int64_t layer = 0; layer < draft.layers(); ++layer) draft.copy_layer(layer);
  };
  return planner;
}

namespace {

at::Tensor length_of(const at::Tensor& rows) {
  return at::linalg_vector_norm(rows, 2, {-1}, /*keepdim=*/true);
}

}  // namespace

std::pair<at::Tensor, at::Tensor> merged_directions(const at::Tensor& below,
                                                    const at::Tensor& above, double t) {
  const at::Tensor a = below.to(at::kDouble), b = above.to(at::kDouble);
  const at::Tensor length_a = length_of(a), length_b = length_of(b);
  const at::Tensor unit_a = at::where(length_a == 0, a, a / length_a),
                   unit_b = at::where(length_b == 0, b, b / length_b);
  const at::Tensor cosine = (unit_a * unit_b).sum(-1, true).clamp(-1, 1);
  const at::Tensor angle = cosine.acos(), sine = angle.sin();
  const auto share = [&](double part, double nearer, const at::Tensor& others_length) {
    const at::Tensor along = at::where(cosine > 0, part, nearer);
    const at::Tensor turned = at::where(sine < 1e-3, along, (angle * part).sin() / sine);
    return at::where(others_length == 0, 1.0, turned);
  };
  const at::Tensor direction = share(1 - t, t >= 0.5 ? 0 : 1, length_b) * unit_a +
                               share(t, t >= 0.5 ? 1 : 0, length_a) * unit_b;
  return {direction * length_a, direction * length_b};
}

namespace {

/// The rows that are merged, ascending: all but the `retain` whose directions in the two layers are
/// farthest apart, of equal ones the earlier. A zero vector has no direction that could differ.
at::Tensor rows_to_merge(const at::Tensor& below, const at::Tensor& above, std::int64_t retain) {
  const at::Tensor a = below.to(at::kDouble), b = above.to(at::kDouble);
  const at::Tensor cosine =
      ((a * b).sum(-1, true) / (length_of(a) * length_of(b))).nan_to_num(1).squeeze(-1);
  const at::Tensor farthest_first = at::argsort(cosine, /*stable=*/true, /*dim=*/0);
  const std::int64_t retained = std::min(retain, below.size(0));
  return std::get<0>(at::sort(farthest_first.slice(0, retained)));
}

/// Merges rows of two layers in place, and gives the positions of those that were.
std::vector<std::int64_t> merge(const at::Tensor& below, const at::Tensor& above,
                                const std::vector<std::int64_t>& positions, const MiniCache& part) {
  const at::Tensor rows = rows_to_merge(below, above, part.retain);
  if (rows.size(0) == 0) return {};
  const auto [merged_below, merged_above] =
      merged_directions(below.index_select(0, rows), above.index_select(0, rows), part.t);
  below.index_copy_(0, rows, merged_below.to(below.scalar_type()));
  above.index_copy_(0, rows, merged_above.to(above.scalar_type()));
  std::vector<std::int64_t> out;
  const at::Tensor on_host = rows.cpu();
  for (std::int64_t i = 0; i < rows.size(0); ++i)
    out.push_back(positions[static_cast<std::size_t>(on_host.data_ptr<std::int64_t>()[i])]);
  return out;
}

}  // namespace

void Continuations::State::merge_layers(Stream& stream) const {
  for (std::int64_t l = config.n_layers / 2; l + 1 < config.n_layers; l += 2)
    for (std::int64_t g = 0; g < K(); ++g) {
      Head &below = stream.layer(l).heads[g], &above = stream.layer(l + 1).heads[g];
      const CopiedRows &lower = below.copied, &upper = above.copied;
      if (!lower.tokens || !upper.tokens || *lower.tokens != *upper.tokens)
        fail(ErrorCode::usage,
             "minicache merges layers that keep the same tokens: it cannot be "
             "composed with a policy that selects other tokens in each layer");
      const auto run = [&](const at::Tensor& of_lower, const at::Tensor& of_upper) {
        return merge(of_lower.narrow(0, lower.start, lower.length()),
                     of_upper.narrow(0, upper.start, upper.length()), *lower.tokens,
                     *stream.plan->minicache);
      };
      below.merged_keys = above.merged_keys = run(copies.keys(l), copies.keys(l + 1));
      below.merged_values = above.merged_values = run(copies.values(l), copies.values(l + 1));
    }
}

}  // namespace kvatlas::calibrate
