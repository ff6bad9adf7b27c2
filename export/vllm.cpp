// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.hpp"
#include "calibrate/runtimes/runtimes.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {
namespace {

/// Says what memory is lost because vLLM puts layers of a kind into groups of equal size, and pads
/// the last group.
std::string padding_note(const std::vector<bool>& layers) {
  const auto lazy = std::count(layers.begin(), layers.end(), true);
  const auto full = static_cast<std::ptrdiff_t>(layers.size()) - lazy;
  if (full == 0) return "";
  const auto padding = calibrate::padded_layers(full, lazy);
  const std::string groups = str("vLLM puts the ", full, " full and ", lazy,
                                 " lazy layers into groups of ", padding.group);
  const auto padded = padding.full + padding.sliding;
  if (padded == 0) return groups + ", and none is padded.";
  return str(groups, " and pads them by ", padded, padded == 1 ? " layer" : " layers",
             ": memory that holds nothing. A set of lazy layers whose number divides that of the "
             "full ones, or is a multiple of it, wastes none.");
}

/// The lazy layers, without those whose window of the model's own is the narrower one anyway.
std::vector<bool> layers_to_trim(const PartRequest& request) {
  const auto lazy = lazy_layers(request);
  const auto& own = request.document.model.windows;
  const std::int64_t recent = proximal(request).recent;
  std::vector<bool> layers(lazy.size());
  for (std::size_t l = 0; l < lazy.size(); ++l) {
    const std::int64_t window = own.empty() ? 0 : own[l];
    if (lazy[l] != 0 && window > recent)
      fail(ErrorCode::usage, request.runtime.title, " cannot run the policy: layer ", l,
           " has a window of the model's own, of ", window, " tokens, which the policy's of ",
           recent, " would narrow, and vLLM frees it by itself: leave the layer full");
    layers[l] = lazy[l] != 0 && window == 0;
  }
  if (std::find(layers.begin(), layers.end(), true) == layers.end())
    fail(ErrorCode::usage, "the policy trims no layer, so there is nothing to tell ",
         request.runtime.title);
  return layers;
}

Exported formats_of_layers(const PartRequest& request, const calibrate::Precision& part) {
  std::vector<std::string> plain;
  for (std::int64_t layer = 0; layer < request.document.model.layers; ++layer)
    if (part.fixed && part.fixed->at(static_cast<std::size_t>(layer)).plain())
      plain.push_back(std::to_string(layer));
  nlohmann::json options = {{"kv-cache-dtype", "fp8"},
                            {"block-size", request.runtime.formats_taken.page_tokens}};
  if (!plain.empty()) options["kv-cache-dtype-skip-layers"] = plain;
  Exported out;
  out.files.push_back({"vllm.yaml", yaml_text(options)});
  out.use = "vllm serve $MODEL --config vllm.yaml";
  out.notes = {
      "No plugin is needed. fp8 is E4M3 with the scale 1, which vLLM takes where the checkpoint "
      "has "
      "no scales of its own: numbers beyond 448 are cut to that.",
      "On CPUs vLLM wants AVX-512 or AMX for it, and heads of a multiple of 32 numbers. It cuts "
      "numbers toward zero there, where kvatlas rounds to the nearest."};
  return out;
}

}  // namespace

Exported export_vllm(const PartRequest& request) {
  if (const auto* formats = std::get_if<calibrate::Precision>(&request.part))
    return formats_of_layers(request, *formats);
  const auto layers = layers_to_trim(request);
  const auto keep = proximal(request);
  const auto& model = request.document.model;
  const nlohmann::json policy = {{"model",
                                  {{"layers", model.layers},
                                   {"heads", model.heads},
                                   {"kv_heads", model.kv_heads},
                                   {"head_dim", model.head_dim}}},
                                 {"lazy_layers", layers},
                                 {"initial", keep.initial},
                                 {"recent", keep.recent},
                                 {"rolling", request.theirs.policy.rolling}};
  Exported out;
  out.files.push_back(
      {"vllm.yaml", yaml_text({{"additional-config", {{"kvatlas", policy}}},
                               {"block-size", request.runtime.page_tokens},
                               {"worker-extension-cls", "kvatlas_vllm.worker.KvatlasPolicy"}})});
  out.use =
      "pip install kvatlas_vllm-0.1.0-py3-none-any.whl   # './dev wheel' leaves it in build/\n"
      "vllm serve $MODEL --config vllm.yaml";
  if (const auto note = padding_note(layers); !note.empty()) out.notes.push_back(note);
  out.notes.push_back(
      "Without the plugin vLLM ends at start, for 'worker-extension-cls' names a class of it. Do "
      "not add --disable-hybrid-kv-cache-manager, with which no memory is freed.");
  return out;
}

}  // namespace kvatlas::exporting
