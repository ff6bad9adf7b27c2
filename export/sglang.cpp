// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/str.hpp"
#include "export/shared_impl.hpp"
#include "export/sidecar_impl.hpp"

namespace kvatlas::exporting {

using nlohmann::json;

namespace {

/// The scales are given in a file that has one number for the keys and the values of a layer, or in
/// a folder over the checkpoint, which has them apart.
Exported formats(const PartRequest& request, const calibrate::Precision& part) {
  const auto format = calibrate::layer_formats(part, request.document.model.layers).front().keys;
  const bool e5m2 = format == calibrate::KvFormat::fp8_e5m2;
  require_scalable(request, format);
  json options = {{"kv-cache-dtype", e5m2 ? "fp8_e5m2" : "fp8_e4m3"}};
  Exported out;
  out.use = "python -m sglang.launch_server --model-path $MODEL --config sglang.yaml";
  if (!request.scales) {
    out.notes = {
        str("Without scales in the checkpoint SGLang takes 1 for all of them: numbers beyond ",
            e5m2 ? 57344 : 448, " are cut to that.")};
  } else if (request.checkpoint) {
    if (is_by_head(request.scales->scales))
      fail(ErrorCode::usage, "SGLang has no scales of heads, only of layers");
    add_sidecar(request, false, out);
    out.use = str("python -m sglang.launch_server --model-path ", kSidecarFolder,
                  " --config sglang.yaml");
    out.notes = {request.scales->origin};
  } else {
    json scales = json::object();
    const auto of_layers = calibrate::shared_scales(request.scales->scales);
    for (std::size_t layer = 0; layer < of_layers.size(); ++layer)
      scales[std::to_string(layer)] = of_layers[layer];
    const json file = {
        {"model_type", architecture_of(request)},
        {"kv_cache", {{"dtype", "float8_e4m3fn"}, {"scaling_factor", {{"0", scales}}}}}};
    out.files.push_back({"kv_cache_scales.json", file.dump(2) + '\n'});
    options["quantization-param-path"] = "kv_cache_scales.json";
    std::string cost =
        "The file has one number for the keys and the values of a layer, the greater of the two "
        "scales, and of one rank of tensor parallelism.";
    if (const auto& apart = request.scales->errors, &shared = request.scales->shared_errors;
        apart && shared)
      cost += str(" What values lose by rounding goes from ",
                  calibrate::three_digits_percent(apart->values), " to ",
                  calibrate::three_digits_percent(shared->values),
                  " of their squares, what keys lose from ",
                  calibrate::three_digits_percent(apart->keys), " to ",
                  calibrate::three_digits_percent(shared->keys), '.');
    cost += " With --checkpoint a folder is written that has the two apart.";
    out.notes = {cost, request.scales->origin};
  }
  out.files.insert(out.files.begin(), {"sglang.yaml", yaml_text(options)});
  return out;
}

}  // namespace

Exported export_sglang(const PartRequest& request) {
  if (const auto* part = std::get_if<calibrate::Precision>(&request.part))
    return formats(request, *part);
  auto windows = windows_of(request);
  const auto recent = windows.size;
  // SGLang's window does not include the query's own position.
  --windows.size;
  json changes = window_fields(windows);
  changes["is_hybrid_swa"] = true;
  changes["hybrid_layer_pattern"] = windows.layers;
  const double needed = static_cast<double>(recent) / static_cast<double>(request.length);
  const double ratio = std::clamp(std::ceil(100 * needed) / 100, 0.01, 1.0);
  Exported out;
  out.files.push_back(
      {"sglang.yaml", yaml_text({{"model-impl", "transformers"},
                                 {"json-model-override-args", placed_in_config(request, changes)},
                                 {"swa-full-tokens-ratio", ratio}})});
  out.use = "python -m sglang.launch_server --model-path $MODEL --config sglang.yaml";
  out.notes = {
      str("sliding_window is ", windows.size,
          ", for SGLang counts the query's own position beside "
          "it: ",
          recent, " tokens are seen."),
      str("swa-full-tokens-ratio is the share that the pool of the windows has of the full one's "
          "tokens, here for prompts of ",
          request.length,
          " tokens. For shorter prompts or many at once raise it; its default is 0.8."),
      "Of the runtimes with windows this combination is the least tried: compare its answers with "
      "those of the model without the file."};
  return out;
}

}  // namespace kvatlas::exporting
