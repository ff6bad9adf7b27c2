// SPDX-License-Identifier: Apache-2.0
// MInference reads a pattern for each query head, which it uses in the prefill.
#include "base/str.hpp"
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {

Exported export_minference(const PartRequest& request) {
  const auto& model = request.document.model;
  const auto keep = proximal(request);
  const auto group = static_cast<std::size_t>(model.heads / model.kv_heads);
  std::string text = "[";
  const auto lazy = lazy_heads(request);
  bool some_full = false;
  for (std::size_t l = 0; l < lazy.size(); ++l) {
    nlohmann::ordered_json layer = nlohmann::ordered_json::object();
    for (std::size_t q = 0; q < static_cast<std::size_t>(model.heads); ++q) {
      auto& pattern = layer[str(q)];
      const bool full = lazy[l][q / group] == 0;
      some_full = some_full || full;
      if (full)
        pattern = {"vertical_and_slash", 1000, 6096, 1};
      else
        pattern = {"stream_llm", keep.initial, keep.recent, 1};
    }
    text += (l == 0 ? "\n" : ",\n") + layer.dump();
  }
  text += "\n]\n";
  Exported exported;
  exported.files = {{"kvatlas_best_pattern.json", text}};
  exported.use =
      "pip install minference==0.1.6.0\n"
      "\n"
      "# in Python, in this folder:\n"
      "from minference import MInference\n"
      "patch = MInference(\"minference\", \"$MODEL\", config_path=\"kvatlas_best_pattern.json\")\n"
      "model = patch(model)\n";
  exported.notes = {
      "The prefill alone is faster: decoding reads the whole cache, and no memory is freed."};
  if (some_full)
    exported.notes.emplace_back(
        "Heads that the policy keeps whole have the pattern vertical_and_slash 1000 6096, which "
        "MInference gives every head that its files do not name: sparse too, by the prompt.");
  if (keep.initial == 0)
    exported.notes.emplace_back(
        "stream_llm without initial tokens is in none of MInference's own files: try it before you "
        "rely on it, or calibrate with initial tokens.");
  return exported;
}

}  // namespace kvatlas::exporting
