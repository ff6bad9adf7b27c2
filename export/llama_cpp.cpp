// SPDX-License-Identifier: Apache-2.0
#include "base/embedded_file.hpp"
#include "base/error.hpp"
#include "base/str.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {

KVATLAS_EMBEDDED_FILE(set_gguf_metadata_script, "set_gguf_metadata.py")

namespace {

/// Whether the layers have llama.cpp's period: of so many layers, all but the last have the window.
/// With the period 0 all layers have it.
bool has_period(const std::vector<std::uint8_t>& layers, std::size_t period) {
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    if ((period == 0 || layer % period < period - 1) != (layers[layer] != 0)) return false;
  return true;
}

/// The layers with a window, as llama.cpp's key holds them: the period, or a list where they do not
/// repeat.
nlohmann::json pattern_of(const std::vector<std::uint8_t>& layers) {
  for (std::size_t period = 0; period <= layers.size(); ++period)
    if (period != 1 && has_period(layers, period)) return period;
  return std::vector<bool>(layers.begin(), layers.end());
}

/// What llama.cpp calls an architecture, and the period that it assumes without a key in the file.
struct InLlamaCpp {
  std::string_view name;
  std::size_t period = 4;
};

InLlamaCpp in_llama_cpp(std::string_view architecture) {
  if (architecture == "gemma2") return {architecture, 2};
  if (architecture == "gemma3") return {architecture, 6};
  if (architecture == "gpt_oss") return {"gpt-oss", 2};
  if (architecture == "olmo3") return {"olmo2"};
  return {architecture};
}

/// The type in llama.cpp's options.
std::string cache_type(calibrate::KvFormat format) {
  return format == calibrate::KvFormat::f16 ? "f16" : std::string(facts_of(format).word);
}

Exported cache_types(const PartRequest& request, const calibrate::Precision& part) {
  const auto head_dim = request.document.model.head_dim;
  if (head_dim % 32 != 0)
    fail(ErrorCode::usage, request.runtime.title,
         " stores numbers in blocks of 32, and heads of the model have ", head_dim);
  const auto formats = calibrate::layer_formats(part, request.document.model.layers).front();
  const std::string keys = cache_type(formats.keys), values = cache_type(formats.values);
  Exported out;
  out.model = "the model's GGUF file";
  out.files.push_back(
      {"cache_types.env", str("LLAMA_ARG_CACHE_TYPE_K=", keys, "\nLLAMA_ARG_CACHE_TYPE_V=", values,
                              "\nLLAMA_ARG_FLASH_ATTN=on\n")});
  out.use =
      str("llama-server -m $MODEL --cache-type-k ", keys, " --cache-type-v ", values,
          " --flash-attn on\n# or, with the file:\nenv $(cat cache_types.env) llama-server -m "
          "$MODEL");
  out.notes = {
      "Values in a type of fewer bits need --flash-attn.",
      "Before it rounds them, llama.cpp rotates keys and values whose heads have a multiple of 64 "
      "numbers, which spreads what is large over all of them. 'kvatlas evaluate' does the same. Do "
      "not set LLAMA_ATTN_ROT_DISABLE.",
      "Queries are rounded to 8 bits for the products, which kvatlas does not do."};
  return out;
}

}  // namespace

Exported export_llama_cpp(const PartRequest& request) {
  if (const auto* formats = std::get_if<calibrate::Precision>(&request.part))
    return cache_types(request, *formats);
  const auto windows = windows_of(request);
  const auto model_type = architecture_of(request);
  constexpr std::int64_t kExaoneLayers = 64;
  if (model_type == "exaone4" && request.document.model.layers != kExaoneLayers)
    fail(ErrorCode::usage, request.runtime.title, " reads windows of EXAONE 4 with ", kExaoneLayers,
         " layers alone, and the policy is of one with ", request.document.model.layers);
  const auto [architecture, own_period] = in_llama_cpp(model_type);
  const auto pattern = pattern_of(windows.layers);
  const std::string window_key = str(architecture, ".attention.sliding_window");
  Exported out;
  out.model = "the model's GGUF file";
  out.files = {
      {"gguf_metadata.json",
       calibrate::canonical_json(
           {{"architecture", architecture},
            {"block_count", request.document.model.layers},
            {"metadata", {{window_key, windows.size}, {window_key + "_pattern", pattern}}}})},
      {"set_gguf_metadata.py", std::string(set_gguf_metadata_script())}};
  out.use =
      "pip install gguf\n"
      "python set_gguf_metadata.py gguf_metadata.json $MODEL windows.gguf\n"
      "llama-server -m windows.gguf";
  if (pattern == own_period)
    out.use += str("\n# or, without another file:\nllama-server -m $MODEL --override-kv ",
                   window_key, "=int:", windows.size);
  out.notes = {"Do not add --swa-full: with it the windows free no memory."};
  if (pattern.is_array())
    out.notes.push_back(
        "The layers with a window are listed, for they do not repeat with a period. An older "
        "llama.cpp passes over the list in silence: use one of the version above, or a newer one.");
  return out;
}

}  // namespace kvatlas::exporting
