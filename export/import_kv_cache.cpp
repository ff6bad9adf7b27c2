// SPDX-License-Identifier: Apache-2.0
// How a checkpoint says that its cache is stored: by llm-compressor's kv_cache_scheme, by Model
// Optimizer's formats of all layers or of each, and by the scales among its tensors.
#include <algorithm>

#include "base/error.hpp"
#include "calibrate/policy/method.hpp"
#include "export/import_impl.hpp"

namespace kvatlas::importing {
namespace {

using calibrate::KvFormat;
using calibrate::KvFormats;
using nlohmann::json;

/// The format of this word, if it is known here.
KvFormat format_of(std::string_view word, const std::string& theirs) {
  const auto& all = calibrate::kKvFormats;
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& facts) { return facts.word == word; });
  if (found == all.end())
    fail(ErrorCode::unsupported, "the format ", quoted(theirs), " is not simulated");
  return static_cast<KvFormat>(found - all.begin());
}

/// Of one of Model Optimizer's words.
KvFormats formats_of(const json& word, const std::string& place) {
  const std::string theirs = word.is_string() ? word.get<std::string>() : "";
  const auto one = [&](std::string_view ours) { return format_of(ours, theirs); };
  if (theirs == "FP8") return {one("fp8"), one("fp8")};
  if (theirs == "NVFP4") return {one("nvfp4"), one("nvfp4")};
  if (theirs == "FP8_K_NVFP4_V") return {one("fp8"), one("nvfp4")};
  fail(ErrorCode::unreadable, place, ": found ", printable(word.dump(-1, ' ', true), 60),
       ", expected FP8, NVFP4 or FP8_K_NVFP4_V");
}

/// The formats of layers by name; those that are left out stay in 16 bits.
std::vector<KvFormats> mixed(const exporting::Checkpoint& checkpoint, const json& recipe) {
  const auto version = recipe.find("kv_cache_schema_version");
  if (version != recipe.end() && *version != 1)
    fail(ErrorCode::unsupported, "'kv_cache_schema_version': found ",
         printable(version->dump(-1, ' ', true), 60), ", expected 1");
  const auto layers = recipe.find("kv_cache_quantized_layers");
  if (layers == recipe.end() || !layers->is_object())
    fail(ErrorCode::unreadable,
         "'kv_cache_quantized_layers' is no object, and 'kv_cache_quant_algo' is MIXED_PRECISION");
  std::vector<KvFormats> out(checkpoint.attention.size());
  for (const auto& [name, entry] : layers->items()) {
    const auto at = std::find(checkpoint.attention.begin(), checkpoint.attention.end(), name + '.');
    if (at == checkpoint.attention.end())
      fail(ErrorCode::unreadable, "'kv_cache_quantized_layers': the model has no layer ",
           quoted(name), "; its first is ",
           quoted(checkpoint.attention.front().substr(0, checkpoint.attention.front().size() - 1)));
    const std::string place = str("'kv_cache_quantized_layers', ", quoted(name));
    if (!entry.is_object() || !entry.contains("quant_algo"))
      fail(ErrorCode::unreadable, place, " has no 'quant_algo'");
    out[static_cast<std::size_t>(at - checkpoint.attention.begin())] =
        formats_of(entry.at("quant_algo"), place);
  }
  return out;
}

/// What one of the two files says; nothing if it says nothing.
std::optional<std::vector<KvFormats>> recipe_of(const exporting::Checkpoint& checkpoint,
                                                const json& recipe) {
  if (!recipe.is_object()) return std::nullopt;
  const auto of_all = [&](const KvFormats& formats) {
    return std::vector<KvFormats>(checkpoint.attention.size(), formats);
  };
  if (const auto algo = recipe.find("kv_cache_quant_algo");
      algo != recipe.end() && !algo->is_null()) {
    if (*algo == "MIXED_PRECISION") return mixed(checkpoint, recipe);
    return of_all(formats_of(*algo, "'kv_cache_quant_algo'"));
  }
  const auto scheme = recipe.find("kv_cache_scheme");
  if (scheme == recipe.end() || scheme->is_null()) return std::nullopt;
  const bool fp8 = scheme->is_object() && scheme->value("num_bits", json()) == 8 &&
                   scheme->value("type", json()) == "float";
  if (!fp8 || scheme->value("dynamic", json(false)) != false)
    fail(ErrorCode::unsupported, "'kv_cache_scheme' is ",
         printable(scheme->dump(-1, ' ', true), 200),
         ", expected 8 bits of the type float, not dynamic");
  return of_all({KvFormat::fp8, KvFormat::fp8});
}

calibrate::Document precision_document(const calibrate::ModelInfo& model,
                                       const calibrate::Precision& part,
                                       const std::string& tool_version) {
  calibrate::Document document;
  document.model = model;
  document.provenance.tool_version = tool_version;
  document.sections[calibrate::method::kPrecision.name] = calibrate::section_of(part);
  return calibrate::parse_document(calibrate::document_text(document));
}

}  // namespace

calibrate::Document import_kv_cache(const exporting::Checkpoint& checkpoint,
                                    const json& hf_quant_config,
                                    const std::optional<calibrate::Fp8Scales>& scales,
                                    const ImportRequest& request) {
  calibrate::ModelInfo model = model_of_config(checkpoint.config);
  if (!request.model.name.empty()) model.name = request.model.name;
  if (model.name.empty()) model.name = checkpoint.folder.filename().string();
  model.layers = std::ssize(checkpoint.attention);
  model.layer_numbers = checkpoint.layer_numbers;
  calibrate::Precision part;
  part.rounded_prefill = true;  // as in servers
  part.scales = scales;
  part.fixed = hf_quant_config.is_object() && hf_quant_config.contains("quantization")
                   ? recipe_of(checkpoint, hf_quant_config.at("quantization"))
                   : std::nullopt;
  if (!part.fixed && checkpoint.config.contains("quantization_config"))
    part.fixed = recipe_of(checkpoint, checkpoint.config.at("quantization_config"));
  if (!part.fixed && !scales)
    fail(
        ErrorCode::unreadable,
        "the checkpoint does not say how its cache is stored: it has neither 'kv_cache_scheme' nor "
        "'kv_cache_quant_algo', and no scales of keys and values");
  if (part.fixed && std::adjacent_find(part.fixed->begin(), part.fixed->end(),
                                       std::not_equal_to<>()) == part.fixed->end()) {
    part.everywhere = part.fixed->front();
    part.fixed.reset();
  }
  return precision_document(model, part, request.tool_version);
}

calibrate::Document import_ranges(const calibrate::ModelInfo& model, calibrate::Fp8Scales scales,
                                  const ImportRequest& request) {
  calibrate::Precision part;
  part.rounded_prefill = true;
  part.scales = std::move(scales);
  return precision_document(model, part, request.tool_version);
}

}  // namespace kvatlas::importing
