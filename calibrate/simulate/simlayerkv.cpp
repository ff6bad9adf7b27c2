// SPDX-License-Identifier: Apache-2.0
// SimLayerKV: layers or KV heads that mostly look at the initial and the recent tokens are lazy,
// and keep nothing else. They are known beforehand, or found by their masses on this prompt.
#include <algorithm>
#include <functional>

#include "base/error.hpp"
#include "calibrate/rules/rules.hpp"
#include "calibrate/simulate/plan_impl.hpp"

namespace kvatlas::calibrate {
namespace {

void trim_fixed(const SimLayerKv& part, Draft& draft) {
  const LazyHeads& fixed = *part.fixed;
  if (static_cast<std::int64_t>(fixed.size()) != draft.layers())
    fail(ErrorCode::usage, draft.policy.name, ": the policy is for ", fixed.size(),
         " layers, the model has ", draft.layers());
  for (std::int64_t layer = 0; layer < draft.layers(); ++layer) {
    const auto& row = fixed[layer];
    if (row.size() == 1) {
      if (row[0] != 0) draft.trim_layer(layer, part.keep);
      continue;
    }
    if (static_cast<std::int64_t>(row.size()) != draft.kv_heads())
      fail(ErrorCode::usage, draft.policy.name, ": layer ", layer, " has ", row.size(),
           " KV heads in the policy and ", draft.kv_heads(), " in the model");
    for (std::int64_t g = 0; g < draft.kv_heads(); ++g)
      if (row[g] != 0) draft.trim(layer, g, part.keep);
  }
}

/// Trims what is lazy by the masses [layer * head].
void trim_lazy(const SimLayerKv& part, const std::vector<double>& mass, Draft& draft) {
  Plan& plan = draft.plan;
  const std::int64_t heads = draft.config.n_heads, kv_heads = draft.kv_heads();
  if (part.per_head) {
    plan.mass = group_means(mass, heads / kv_heads);
    draft.for_full_heads([&](std::int64_t layer, std::int64_t g) {
      if (is_lazy(plan.mass[layer * kv_heads + g], part.threshold)) draft.trim(layer, g, part.keep);
    });
    return;
  }
  plan.mass = group_means(mass, heads);
  if (part.without_own_key && draft.n <= part.keep.initial + part.keep.recent + 2) return;
  const LayerFlags lazy = lazy_layers(plan.mass, part.threshold);
  const LayerFlags trimmed = part.opposite ? opposite_layers(plan.mass, lazy) : lazy;
  for (std::int64_t layer = 0; layer < draft.layers(); ++layer)
    if (trimmed[layer] != 0) draft.trim_layer(layer, part.keep);
}

PartPlanner fixed_planner(const SimLayerKv& part) {
  PartPlanner planner;
  planner.cut = [&part](Draft& draft) { trim_fixed(part, draft); };
  planner.window_of = [&part](std::int64_t layer) -> std::optional<Proximity> {
    if (layer >= static_cast<std::int64_t>(part.fixed->size())) return std::nullopt;
    const auto& row = part.fixed->at(layer);
    if (std::find(row.begin(), row.end(), 0) != row.end()) return std::nullopt;
    return part.keep;
  };
  return planner;
}

}  // namespace

PartPlanner planner_of(const SimLayerKv& part) {
  if (part.fixed) return fixed_planner(part);
  PartPlanner planner;
  if (part.identify == SimLayerKv::Identify::decode) {
    planner.needs.decode_masses = {part.keep};
    planner.cut = [&part](Draft& draft) {
      trim_lazy(part, draft.facts.decode_mass_of(part.keep), draft);
    };
    return planner;
  }
  // The mass of `counted`, and without the row's own key that of `own` taken off.
  const Proximity own{0, 1};
  const Proximity counted =
      part.without_own_key ? Proximity{part.keep.initial, part.keep.recent + 2} : part.keep;
  planner.needs.prefill_masses = {{counted, part.w_last}};
  if (part.without_own_key) planner.needs.prefill_masses.push_back({own, part.w_last});
  planner.cut = [&part, counted, own](Draft& draft) {
    auto mass = draft.facts.prefill_mass_of(counted, part.w_last);
    if (part.without_own_key) {
      const auto& of_own = draft.facts.prefill_mass_of(own, part.w_last);
      std::transform(mass.begin(), mass.end(), of_own.begin(), mass.begin(), std::minus<>());
    }
    trim_lazy(part, mass, draft);
  };
  return planner;
}

}  // namespace kvatlas::calibrate
