// SPDX-License-Identifier: Apache-2.0
// What several exporters need.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "export/exporters.hpp"

namespace kvatlas::exporting {

/// What is trimmed: [layer][KV head], each row with one entry a KV head. Streaming: everything.
calibrate::LazyHeads lazy_heads(const Order& order);
/// [layer], 1 where the whole layer is trimmed; for Form::lazy_layers.
std::vector<std::uint8_t> lazy_layers(const Order& order);
/// The tokens that what is trimmed keeps: of Streaming and SimLayerKv.
calibrate::Proximity proximal(const Order& order);
/// [layer], the window not counted: the given budgets. For DynamicKv with budgets.
const std::vector<std::int64_t>& budgets(const Order& order);
/// The share of KV heads that are lazy.
double lazy_share(const calibrate::LazyHeads& lazy);
/// [layer][KV head], or [layer][0] for budgets: the tokens that a part with fixed lazy layers,
/// heads or budgets keeps of a prompt of the order's length.
std::vector<std::vector<std::int64_t>> kept_tokens(const Order& order, const calibrate::Part& part);

/// The ratio of tokens to remove so that a runtime that keeps int(length * (1 - ratio)) keeps
/// `keep`: half a token is added, for float rounding would lose one. 0 where all are kept.
double removed_ratio(std::int64_t keep, std::int64_t length);

/// Block YAML: maps by indentation, keys sorted, lists of plain values as [a, b], lists of others
/// item by item. JSON is written by calibrate::canonical_json (policy.hpp).
std::string yaml_text(const nlohmann::json& value);

/// "full_attention" and "sliding_attention", one word a layer.
nlohmann::json layer_types(const std::vector<std::uint8_t>& lazy);

/// For runtimes that give layers a window of one size.
struct Windows {
  std::vector<std::uint8_t> layers;  // [layer], 1 where it has the window
  std::int64_t size = 0;             // tokens, the query's own included
};
/// The windows of the trimmed layers, as the runtime has them. Error(usage) where they contradict
/// windows of the model's own.
Windows windows_of(const Order& order);
/// The fields of config.json that say so: "layer_types" and "sliding_window".
nlohmann::json window_fields(const Windows& windows);
/// Qwen 2 and 3 use windows only if their config.json, or the runtime, is told to.
bool is_qwen(std::string_view architecture);
/// As the checkpoint's config.json calls it, if there is one; otherwise as the document does.
std::string architecture_of(const calibrate::ModelInfo& model,
                            const std::optional<nlohmann::json>& config);
std::string architecture_of(const Order& order);
/// What is changed in config.json, at the place where it is: under "text_config" of a checkpoint
/// that has more than a language model.
nlohmann::json placed_in_config(const Order& order, const nlohmann::json& changes);

/// config.json with `changes` over it where the order has the model's own; otherwise
/// config_overrides.json, of the changes alone.
ExportFile config_file(const Order& order, const nlohmann::json& changes);

}  // namespace kvatlas::exporting
