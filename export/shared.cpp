// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {

using calibrate::DynamicKv;
using calibrate::LazyHeads;
using calibrate::Proximity;
using calibrate::SimLayerKv;
using nlohmann::json;

LazyHeads lazy_heads(const Order& order) {
  const auto heads = static_cast<std::size_t>(order.document.model.kv_heads);
  const auto layers = static_cast<std::size_t>(order.document.model.layers);
  const auto* part = std::get_if<SimLayerKv>(&order.part);
  if (!part) return LazyHeads(layers, std::vector<std::uint8_t>(heads, 1));
  LazyHeads lazy = part->fixed.value();
  for (auto& row : lazy)
    if (row.size() == 1) row.assign(heads, row.front());
  return lazy;
}

std::vector<std::uint8_t> lazy_layers(const Order& order) {
  std::vector<std::uint8_t> lazy;
  for (const auto& row : lazy_heads(order)) lazy.push_back(row.front());
  return lazy;
}

Proximity proximal(const Order& order) { return calibrate::proximal(order.part); }

const std::vector<std::int64_t>& budgets(const Order& order) {
  return std::get<DynamicKv>(order.part).fixed.value();
}

double removed_ratio(std::int64_t keep, std::int64_t length) {
  if (keep >= length) return 0;
  return 1 - (static_cast<double>(keep) + 0.5) / static_cast<double>(length);
}

json layer_types(const std::vector<std::uint8_t>& lazy) {
  json words = json::array();
  for (const auto flag : lazy) words.push_back(flag != 0 ? "sliding_attention" : "full_attention");
  return words;
}

ExportFile config_file(const Order& order, const json& changes) {
  const json placed = placed_in_config(order, changes);
  if (!order.config) return {"config_overrides.json", calibrate::canonical_json(placed)};
  json whole = *order.config;
  whole.merge_patch(placed);
  // Not canonical: 1.0 must stay a float for readers that check types.
  return {"config.json", whole.dump(2) + '\n'};
}

}  // namespace kvatlas::exporting
