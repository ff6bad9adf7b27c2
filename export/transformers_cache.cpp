// SPDX-License-Identifier: Apache-2.0
// kvatlas_transformers is the package in export/python. It reads the policy document itself.
#include "export/shared_impl.hpp"

namespace kvatlas::exporting {

Exported export_transformers_cache(const PartRequest& request) {
  const auto& policy = request.theirs.policy;
  calibrate::Document document;
  document.model = request.document.model;
  document.provenance = request.document.provenance;
  document.kv_bits = policy.kv_bits;
  document.kv_residual = policy.kv_residual;
  document.runtime = request.document.runtime;
  for (const auto& part : policy.parts) {
    const bool heads = policy.section == "heads";
    const std::string name = heads ? policy.section : calibrate::section_name(part);
    auto section = calibrate::section_of(part);
    if (heads) {
      const auto& whole = request.document.sections.at(name);
      section = {{"settings", whole.at("settings")}, {"result", whole.at("result")}};
    }
    document.sections[name] = section;
    if (policy.parts.size() > 1) document.compose.push_back(name);
  }
  Exported exported;
  exported.files = {{"policy.json", calibrate::document_text(document)}};
  exported.use =
      "pip install kvatlas_transformers-0.1.0-py3-none-any.whl   # './dev wheel' leaves it in "
      "build/\n"
      "\n"
      "# in Python, in this folder:\n"
      "import kvatlas_transformers\n"
      "policy = kvatlas_transformers.load(\"policy.json\")\n"
      "model.generate(**inputs, past_key_values=policy.cache(model))\n";
  exported.notes = {
      "One prompt at a time, without padding; a new cache for each. The cache holds the kept "
      "tokens alone: cache.bytes() says how much that is, cache.kept() which."};
  return exported;
}

}  // namespace kvatlas::exporting
