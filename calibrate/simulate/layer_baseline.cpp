// SPDX-License-Identifier: Apache-2.0
// The baselines of SimLayerKV: as much is trimmed as it would trim, but of higher layers more, or
// of the highest layers alone, or of layers drawn by a seed.
#include <algorithm>
#include <numeric>

#include "base/random.hpp"
#include "calibrate/rules/rules.hpp"
#include "calibrate/simulate/plan_impl.hpp"

namespace kvatlas::calibrate {
namespace {

std::vector<std::int64_t> chosen_layers(const LayerBaseline& part, std::int64_t layers,
                                        std::int64_t count) {
  const bool random = part.choose == LayerBaseline::Choose::random;
  std::int64_t begin = 0, end = layers;
  if (random && part.from == LayerBaseline::From::lower) end = layers / 2;
  if (random && part.from == LayerBaseline::From::upper) begin = layers / 2;
  std::vector<std::int64_t> order(static_cast<std::size_t>(end - begin));
  std::iota(order.begin(), order.end(), begin);
  if (random)
    Random(part.seed, "random layers").shuffle(order);
  else
    std::reverse(order.begin(), order.end());
  order.resize(std::min(order.size(), static_cast<std::size_t>(count)));
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace

PartPlanner planner_of(const LayerBaseline& part) {
  PartPlanner planner;
  if (!part.layers) planner.needs.decode_masses = {part.keep};
  planner.cut = [&part](Draft& draft) {
    if (!part.layers)
      draft.plan.mass = group_means(draft.facts.decode_mass_of(part.keep), draft.config.n_heads);
    const std::int64_t count =
        part.layers ? *part.layers : count_lazy(lazy_layers(draft.plan.mass, part.threshold));
    if (part.choose == LayerBaseline::Choose::pyramid &&
        part.shape == LayerBaseline::Shape::linear) {
      const auto windows = shrinking_windows(draft.layers(), count, draft.n, part.keep);
      for (std::int64_t l = 0; l < draft.layers(); ++l)
        if (windows[l].initial + windows[l].recent < draft.n) draft.trim_layer(l, windows[l]);
      return;
    }
    for (const auto layer : chosen_layers(part, draft.layers(), count))
      draft.trim_layer(layer, part.keep);
  };
  return planner;
}

}  // namespace kvatlas::calibrate
