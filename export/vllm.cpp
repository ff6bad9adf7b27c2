// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/str.hpp"
#include "calibrate/runtimes/runtimes.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {
namespace {

/// Says what memory is lost because vLLM puts layers of a kind into groups of equal size, and pads
/// the last group.
std::string padding_note(const Windows& windows) {
  const auto lazy = std::count(windows.layers.begin(), windows.layers.end(), 1);
  const auto full = static_cast<std::ptrdiff_t>(windows.layers.size()) - lazy;
  if (full == 0) return "";
  const auto padding = calibrate::padded_layers(full, lazy);
  const std::string groups = str("vLLM puts the ", full, " full and ", lazy,
                                 " sliding layers into groups of ", padding.group);
  const auto padded = padding.full + padding.sliding;
  if (padded == 0) return groups + ", and none is padded.";
  return str(groups, " and pads them by ", padded, padded == 1 ? " layer" : " layers",
             ": memory that holds nothing. A set of lazy layers whose number divides that of the "
             "full ones, or is a multiple of it, wastes none.");
}

}  // namespace

Exported export_vllm(const PartRequest& request) {
  const auto windows = windows_of(request);
  nlohmann::json config = {{"hf-overrides", placed_in_config(request, window_fields(windows))}};
  if (is_qwen(architecture_of(request))) config["model-impl"] = "transformers";
  Exported out;
  out.files.push_back({"vllm.yaml", yaml_text(config)});
  out.use = "vllm serve $MODEL --config vllm.yaml";
  if (const auto note = padding_note(windows); !note.empty()) out.notes.push_back(note);
  out.notes.push_back(
      "Do not add --disable-sliding-window, which drops the windows, nor "
      "--disable-hybrid-kv-cache-manager, with which they free no memory.");
  return out;
}

}  // namespace kvatlas::exporting
