// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "export/shared_impl.hpp"
#include "export/sidecar_impl.hpp"

namespace kvatlas::exporting {

using calibrate::HeadScales;
using nlohmann::json;

namespace {

constexpr const char* kScalesFile = "kv_scales.safetensors";

/// config.json that says how the scales are meant.
json patched_config(const Checkpoint& checkpoint, bool by_head) {
  json config = checkpoint.config;
  const json scheme = {{"num_bits", 8},
                       {"type", "float"},
                       {"symmetric", true},
                       {"strategy", by_head ? "attn_head" : "tensor"},
                       {"dynamic", false}};
  json& quantisation = config["quantization_config"];
  if (quantisation.is_null()) {
    quantisation = {{"quant_method", "compressed-tensors"},
                    {"format", "dense"},
                    {"quantization_status", "frozen"},
                    {"config_groups", json::object()},
                    {"ignore", json::array()},
                    {"kv_cache_scheme", scheme}};
    if (by_head) {
      quantisation["total_num_heads"] = checkpoint.heads;
      quantisation["total_num_kv_heads"] = checkpoint.kv_heads;
    }
    return config;
  }
  const auto method = quantisation.find("quant_method");
  const std::string name =
      method != quantisation.end() && method->is_string() ? method->get<std::string>() : "";
  if (name == "fp8") {  // it loads scales by itself
    if (by_head)
      fail(ErrorCode::usage,
           "a checkpoint of the method 'fp8' has one scale a layer, none by head");
    return config;
  }
  if (name != "compressed-tensors")
    fail(
        ErrorCode::usage, "the checkpoint's weights are quantised by ", quoted(name),
        ", which has no scales of keys and values in vLLM: take the unquantised checkpoint, or one "
        "of compressed-tensors or FP8");
  if (quantisation.contains("kv_cache_scheme") && !quantisation.at("kv_cache_scheme").is_null())
    fail(
        ErrorCode::usage,
        "the checkpoint has scales of keys and values already ('kv_cache_scheme'): 'kvatlas import "
        "kv-cache' reads them");
  quantisation["kv_cache_scheme"] = scheme;
  return config;
}

/// One number, or one for each head.
Tensor scale_tensor(const std::vector<double>& row, bool by_head, std::int64_t kv_heads,
                    std::int64_t heads) {
  if (!by_head) return {{1}, {*std::max_element(row.begin(), row.end())}};
  Tensor out{{heads, 1, 1}, {}};
  for (std::int64_t head = 0; head < heads; ++head)
    out.values.push_back(
        row[row.size() == 1 ? 0 : static_cast<std::size_t>(head * kv_heads / heads)]);
  return out;
}

}  // namespace

bool is_by_head(const calibrate::Fp8Scales& scales) {
  const auto wide = [](const HeadScales& side) {
    return std::any_of(side.begin(), side.end(), [](const auto& row) { return row.size() > 1; });
  };
  return wide(scales.keys) || wide(scales.values);
}

void require_scalable(const PartRequest& request, calibrate::KvFormat format) {
  using enum calibrate::KvFormat;
  if (request.scales && format != fp8 && format != fp8_cpu)
    fail(ErrorCode::usage, "scales are for fp8, and the policy stores ",
         calibrate::facts_of(format).word, ", which finds its own or needs none");
}

void add_sidecar(const PartRequest& request, bool queries, Exported& out) {
  if (request.checkpoint == nullptr)
    fail(ErrorCode::usage, request.runtime.title,
         " reads scales from a folder that is laid over the checkpoint: name the checkpoint's with "
         "--checkpoint");
  const Checkpoint& checkpoint = *request.checkpoint;
  const auto& scales = request.scales->scales;
  if (checkpoint.attention.size() != scales.keys.size())
    fail(ErrorCode::usage, "the checkpoint has ", checkpoint.attention.size(),
         " layers with attention, and there are scales of ", scales.keys.size());
  if (std::find(checkpoint.others.begin(), checkpoint.others.end(), kScalesFile) !=
      checkpoint.others.end())
    fail(ErrorCode::usage, "the checkpoint holds ", kScalesFile,
         " already: name the one that it is laid over");
  const bool by_head = is_by_head(scales);
  for (const HeadScales* side : {&scales.keys, &scales.values})
    for (const auto& row : *side)
      if (row.size() != 1 && std::ssize(row) != checkpoint.kv_heads)
        fail(ErrorCode::usage, "the checkpoint has ", checkpoint.kv_heads,
             " KV heads, and there are scales of ", row.size());
  std::vector<std::pair<std::string, Tensor>> tensors;
  json map = checkpoint.files;
  for (std::size_t l = 0; l < scales.keys.size(); ++l) {
    const auto add = [&](const char* name, const char* modelopt, const HeadScales& side,
                         std::int64_t heads) {
      const std::string full = checkpoint.attention[l] + (request.modelopt_names ? modelopt : name);
      if (checkpoint.files.contains(full))
        fail(ErrorCode::usage, "the checkpoint has a tensor ", quoted(full), " already");
      tensors.emplace_back(full, scale_tensor(side[l], by_head, checkpoint.kv_heads, heads));
      map[full] = kScalesFile;
    };
    add("k_scale", "k_proj.k_scale", scales.keys, checkpoint.kv_heads);
    add("v_scale", "v_proj.v_scale", scales.values, checkpoint.kv_heads);
    // ModelOpt has none of queries.
    if (queries && !request.modelopt_names && !scales.queries.empty())
      add("q_scale", "", scales.queries, checkpoint.heads);
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  const std::string at = std::string(kSidecarFolder) + '/';
  for (const auto& name : checkpoint.others)
    out.links.push_back({at + name, checkpoint.folder / name});
  // Without config.json nobody takes the folder for a model: it comes last.
  out.files.push_back({at + kScalesFile, safetensors(tensors, {{"format", "pt"}})});
  out.files.push_back({at + "model.safetensors.index.json",
                       json{{"metadata", json::object()}, {"weight_map", map}}.dump(2) + '\n'});
  out.files.push_back({at + "config.json", patched_config(checkpoint, by_head).dump(2) + '\n'});
}

}  // namespace kvatlas::exporting
