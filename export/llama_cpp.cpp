// SPDX-License-Identifier: Apache-2.0
#include "base/embedded_file.hpp"
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

}  // namespace

Exported export_llama_cpp(const PartRequest& request) {
  const auto windows = windows_of(request);
  const auto architecture = architecture_of(request);
  const auto pattern = pattern_of(windows.layers);
  const std::string window_key = architecture + ".attention.sliding_window";
  Exported out;
  out.files = {
      {"gguf_metadata.json",
       calibrate::canonical_json(
           {{"architecture", architecture},
            {"block_count", request.document.model.layers},
            {"metadata", {{window_key, windows.size}, {window_key + "_pattern", pattern}}}})},
      {"set_gguf_metadata.py", std::string(set_gguf_metadata_script())}};
  out.use =
      "pip install gguf\n"
      "python set_gguf_metadata.py gguf_metadata.json $MODEL.gguf $MODEL-windows.gguf\n"
      "llama-server -m $MODEL-windows.gguf";
  // llama.cpp assumes this period without a key in the file.
  if (pattern == (architecture == "gemma3" ? 6 : 2))
    out.use += str("\n# or, without another file:\nllama-server -m $MODEL.gguf --override-kv ",
                   window_key, "=int:", windows.size);
  out.notes = {"Do not add --swa-full: with it the windows free no memory."};
  if (pattern.is_array())
    out.notes.push_back(
        "The layers with a window are listed, for they do not repeat with a period. An older "
        "llama.cpp passes over the list in silence: use one of the version above, or a newer one.");
  return out;
}

}  // namespace kvatlas::exporting
