// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "base/str.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {

using nlohmann::json;

Exported export_sglang(const PartRequest& request) {
  if (std::holds_alternative<calibrate::Precision>(request.part))
    return {
        {{"sglang.yaml", yaml_text({{"kv-cache-dtype", "fp8_e4m3"}})}},
        "python -m sglang.launch_server --model-path $MODEL --config sglang.yaml",
        {"Without scales in the checkpoint SGLang takes 1 for all of them: numbers beyond 448 are "
         "cut to that."}};
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
