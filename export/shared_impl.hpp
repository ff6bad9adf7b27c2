// SPDX-License-Identifier: Apache-2.0
// What several exporters need.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "export/exporters.hpp"

namespace kvatlas::exporting {

/// [layer][KV head], 1 for heads that are trimmed. Every row has an entry for each KV head. In
/// streaming, all heads are trimmed.
calibrate::LazyHeads lazy_heads(const PartRequest& request);
/// [layer], 1 for layers that are trimmed. For orders of Form::lazy_layers.
std::vector<std::uint8_t> lazy_layers(const PartRequest& request);
/// The tokens that trimmed heads keep. For streaming and SimLayerKV.
calibrate::Proximity proximal(const PartRequest& request);
/// [layer], the tokens that a layer keeps besides its window. For DynamicKV with budgets.
const std::vector<std::int64_t>& budgets(const PartRequest& request);
/// [layer][KV head], the tokens that a head keeps besides its window. For HeadKV with budgets.
const calibrate::HeadBudgets& head_budgets(const PartRequest& request);
/// The share of KV heads that are lazy.
double lazy_share(const calibrate::LazyHeads& lazy);
/// [layer][KV head], or [layer][0] for budgets of layers: the tokens that are kept of a prompt of
/// the request's length. For streaming, and for parts with fixed lazy layers, lazy heads or
/// budgets.
std::vector<std::vector<std::int64_t>> kept_tokens(const PartRequest& request,
                                                   const calibrate::Part& part);

/// The ratio of tokens to remove, so that a runtime that keeps int(length * (1 - ratio)) tokens
/// keeps `keep` of them. Half a token is added to `keep`, because otherwise rounding could lose a
/// token. The ratio is 0 if all tokens are kept.
double removed_ratio(std::int64_t keep, std::int64_t length);

/// The value as YAML, with sorted keys. Maps are indented blocks, lists of plain values are written
/// as [a, b], and other lists have an item a line.
std::string yaml_text(const nlohmann::json& value);

/// Numbers in row-major order.
struct Tensor {
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};
/// A safetensors file of float32 tensors.
std::string safetensors(const std::vector<std::pair<std::string, Tensor>>& tensors,
                        const nlohmann::json& metadata);

/// The list of layer types in a config.json: "sliding_attention" for lazy layers, otherwise
/// "full_attention".
nlohmann::json layer_types(const std::vector<std::uint8_t>& lazy);

/// What runtimes are given that know windows of one size for all layers.
struct Windows {
  std::vector<std::uint8_t> layers;  // [layer], 1 for layers with the window
  std::int64_t size = 0;             // in tokens, including the query's own
};
/// The windows of the trimmed layers, in the size that the runtime has, and those that the model
/// has by itself. Error(usage) if the two contradict each other.
Windows windows_of(const PartRequest& request);
/// The fields of config.json that hold the windows: "layer_types" and "sliding_window".
nlohmann::json window_fields(const Windows& windows);
/// Whether it is Qwen 2 or 3, which use their windows only if "use_sliding_window" is true.
bool is_qwen(std::string_view architecture);
/// The architecture's name in the checkpoint's config.json, if that is given, or in the document.
std::string architecture_of(const calibrate::ModelInfo& model,
                            const std::optional<nlohmann::json>& config);
std::string architecture_of(const PartRequest& request);
/// The changes at their place in config.json, which is "text_config" in a checkpoint that holds
/// more than a language model.
nlohmann::json placed_in_config(const PartRequest& request, const nlohmann::json& changes);

/// The model's config.json with the changes if the request has it; otherwise config_overrides.json,
/// which holds the changes alone.
ExportFile config_file(const PartRequest& request, const nlohmann::json& changes);

}  // namespace kvatlas::exporting
