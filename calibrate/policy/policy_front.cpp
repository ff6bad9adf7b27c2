// SPDX-License-Identifier: Apache-2.0
#include "calibrate/policy/policy_front.hpp"

#include "base/error.hpp"

namespace kvatlas::calibrate {

using nlohmann::json;

Document with_front_point(const Document& document, std::size_t point) {
  if (point >= document.pareto.size())
    fail(ErrorCode::usage, "there is no point ", point, " in the front, which has ",
         document.pareto.size());
  const json& entry = document.pareto[point];
  Document out = document;
  try {
    out.sections = entry.at("sections");
    out.compose = entry.value("compose", out.compose);
    out.kv_bits = entry.value("kv_bits", 16);
    out.kv_residual = 0;  // no search tries one
    // A name that no section may have would be refused when the document is written.
    if (!out.sections.is_object()) fail(ErrorCode::unreadable, "'sections' is no object");
    if (const auto measured = entry.find("measured"); measured != entry.end())
      add_measured(out, *measured, document.runtime);
    for (std::size_t i = 0; i < out.pareto.size(); ++i) out.pareto[i]["chosen"] = i == point;
    return parse_document(document_text(out));
  } catch (const std::exception& error) {
    fail(ErrorCode::unreadable, "point ", point,
         " of the front is no policy of this model: ", error.what());
  }
}

void add_measured(Document& document, const json& measured, const std::string& runtime) {
  for (auto& [name, section] : document.sections.items())
    if (runtime.empty())
      section["measured"] = measured;
    else
      section["runtimes"][runtime] = measured;
}

}  // namespace kvatlas::calibrate
