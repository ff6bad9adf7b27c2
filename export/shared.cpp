// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {

using calibrate::DynamicKv;
using calibrate::LazyHeads;
using calibrate::Proximity;
using calibrate::SimLayerKv;
using nlohmann::json;

namespace {

LazyHeads lazy_heads_of(const calibrate::Part& part, const calibrate::ModelInfo& model) {
  const auto heads = static_cast<std::size_t>(model.kv_heads);
  const auto* simlayerkv = std::get_if<SimLayerKv>(&part);
  if (!simlayerkv)
    return LazyHeads(static_cast<std::size_t>(model.layers), std::vector<std::uint8_t>(heads, 1));
  LazyHeads lazy = simlayerkv->fixed.value();
  for (auto& row : lazy)
    if (row.size() == 1) row.assign(heads, row.front());
  return lazy;
}

}  // namespace

LazyHeads lazy_heads(const PartRequest& request) {
  return lazy_heads_of(request.part, request.document.model);
}

std::vector<std::uint8_t> lazy_layers(const PartRequest& request) {
  std::vector<std::uint8_t> lazy;
  for (const auto& row : lazy_heads(request)) lazy.push_back(row.front());
  return lazy;
}

Proximity proximal(const PartRequest& request) { return *calibrate::kept_window(request.part); }

const std::vector<std::int64_t>& budgets(const PartRequest& request) {
  return std::get<DynamicKv>(request.part).fixed.value();
}

const calibrate::HeadBudgets& head_budgets(const PartRequest& request) {
  return std::get<calibrate::HeadKv>(request.part).fixed.value();
}

double lazy_share(const LazyHeads& lazy) {
  double count = 0, heads = 0;
  for (const auto& row : lazy) {
    count += static_cast<double>(std::count(row.begin(), row.end(), 1));
    heads += static_cast<double>(row.size());
  }
  return count / heads;
}

std::vector<std::vector<std::int64_t>> kept_tokens(const PartRequest& request,
                                                   const calibrate::Part& part) {
  std::vector<std::vector<std::int64_t>> kept;
  if (const auto* dynamic = std::get_if<DynamicKv>(&part)) {
    for (const auto budget : dynamic->fixed.value())
      kept.push_back({std::min(budget + dynamic->select.window, request.length)});
    return kept;
  }
  if (const auto* by_head = std::get_if<calibrate::HeadKv>(&part)) {
    kept = by_head->fixed.value();
    for (auto& row : kept)
      for (auto& tokens : row) tokens = std::min(tokens + by_head->select.window, request.length);
    return kept;
  }
  const auto keep = *calibrate::kept_window(part);
  const auto trimmed = std::min(keep.initial + keep.recent, request.length);
  for (const auto& row : lazy_heads_of(part, request.document.model)) {
    auto& layer = kept.emplace_back();
    for (const auto lazy : row) layer.push_back(lazy != 0 ? trimmed : request.length);
  }
  return kept;
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

std::string safetensors(const std::vector<std::pair<std::string, Tensor>>& tensors,
                        const json& metadata) {
  json header = {{"__metadata__", metadata}};
  std::size_t end = 0;
  for (const auto& [key, tensor] : tensors) {
    const std::size_t begin = end;
    end += tensor.values.size() * sizeof(float);
    header[key] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  file += text;
  for (const auto& [key, tensor] : tensors)
    for (const double value : tensor.values) {
      const auto number = static_cast<float>(value);
      file.append(reinterpret_cast<const char*>(&number), sizeof number);
    }
  return file;
}

ExportFile config_file(const PartRequest& request, const json& changes) {
  const json placed = placed_in_config(request, changes);
  if (!request.config) return {"config_overrides.json", calibrate::canonical_json(placed)};
  json whole = *request.config;
  whole.merge_patch(placed);
  // The canonical form would write 1.0 as 1, and some readers check that it is a float.
  return {"config.json", whole.dump(2) + '\n'};
}

}  // namespace kvatlas::exporting
