// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {
namespace {

using nlohmann::json;

/// Each layer has a window as large as its budget.
json budget_windows(const PartRequest& request) {
  const auto window = std::get<calibrate::DynamicKv>(request.part).select.window;
  json layers = json::object();
  std::int64_t layer = 0;
  for (const auto budget : budgets(request))
    layers[std::to_string(layer++)] = {{"sliding_window", budget + window}};
  const std::vector<std::uint8_t> all(static_cast<std::size_t>(layer), 1);
  return {{"layer_types", layer_types(all)}, {"per_layer_config", layers}};
}

json lazy_windows(const PartRequest& request) {
  json changes = window_fields(windows_of(request));
  if (is_qwen(architecture_of(request))) changes["use_sliding_window"] = true;
  return changes;
}

Exported quantised_cache(const PartRequest& request, const calibrate::Precision& part) {
  const auto formats = calibrate::layer_formats(part, request.document.model.layers).front();
  Exported out;
  if (formats.plain())
    fail(ErrorCode::usage, "the policy stores everything in 16 bits, so there is nothing to tell ",
         request.runtime.title);
  out.files.push_back({"generation_config.json",
                       calibrate::canonical_json(
                           {{"cache_implementation", "quantized"},
                            {"cache_config",
                             {{"backend", "quanto"},
                              {"nbits", formats.keys == calibrate::KvFormat::int4 ? 4 : 2}}}})});
  out.use =
      "pip install optimum-quanto\n"
      "from transformers import GenerationConfig\n"
      "generation = GenerationConfig.from_pretrained(\".\")   # this folder\n"
      "model.generate(**inputs, generation_config=generation)";
  return out;
}

}  // namespace

Exported export_transformers(const PartRequest& request) {
  if (const auto* formats = std::get_if<calibrate::Precision>(&request.part))
    return quantised_cache(request, *formats);
  const bool by_budget = request.form == calibrate::Form::dynamickv;
  Exported out;
  out.files.push_back(
      config_file(request, by_budget ? budget_windows(request) : lazy_windows(request)));
  out.use = "from transformers import AutoConfig, AutoModelForCausalLM\n";
  if (request.config)
    out.use +=
        "config = AutoConfig.from_pretrained(\"config.json\")\n"
        "model = AutoModelForCausalLM.from_pretrained(\"$MODEL\", config=config)\n"
        "# or put config.json in the place of the checkpoint's";
  else
    out.use +=
        "import json\n"
        "fields = AutoConfig.from_pretrained(\"$MODEL\").to_dict()\n"
        "fields.update(json.load(open(\"config_overrides.json\")))\n"
        "config = AutoConfig.for_model(**fields)\n"
        "model = AutoModelForCausalLM.from_pretrained(\"$MODEL\", config=config)";
  if (by_budget)
    out.notes.push_back(
        "A version before 5.23 reads no per_layer_config and says nothing: check that "
        "model.config.per_layer_config is there.");
  if (architecture_of(request) == "llama")
    out.notes.push_back(
        "In Llama the cache drops what is behind a layer's window and the mask knows nothing of "
        "it: give one prompt without padding, prefill it in one piece, and leave "
        "attn_implementation at sdpa. That it works so is no promise of the library.");
  return out;
}

}  // namespace kvatlas::exporting
