// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "export/readme_impl.hpp"
#include "kernels/base/error.hpp"

namespace kvatlas::exporting {
namespace {

using calibrate::Document;
using calibrate::Fit;
using calibrate::Form;
using calibrate::LazyHeads;
using calibrate::Policy;
using calibrate::Runtime;
using calibrate::SimLayerKv;
using nlohmann::json;

/// The static view that calibration left beside a per-input policy.
std::optional<LazyHeads> static_view(const json& section, bool per_head) {
  const char* view = per_head ? "per_head" : "static";
  const char* list = per_head ? "lazy_heads" : "lazy_layers";
  if (!section.contains(view) || !section.at(view).is_object() || !section.at(view).contains(list))
    return std::nullopt;
  // Read as the result it would be, with the checks of one.
  const json as_result = {{"settings", section.at("settings")},
                          {"result", {{list, section.at(view).at(list)}}}};
  return std::get<SimLayerKv>(calibrate::part_of("simlayerkv", as_result)).fixed;
}

/// Whether the runtime is given the static view of this policy.
bool wants_static_view(const Policy& policy, const Runtime& runtime, bool fixed) {
  if (policy.parts.size() != 1) return false;
  const auto* part = std::get_if<SimLayerKv>(&policy.parts.front());
  if (!part || part->fixed || part->opposite) return false;
  if (fixed) return true;
  const bool decides = runtime.form(Form::lazy_by_input).fit != Fit::impossible &&
                       (!part->per_head || runtime.name == "transformers-cache");
  return !decides;
}

class Exporting {
 public:
  Exporting(const Document& document, const ExportRequest& request)
      : document_(document),
        request_(request),
        runtime_(calibrate::runtime_named(request.runtime)) {
    length_ = request.length;
    if (length_ == 0 && !document.provenance.lengths.empty())
      length_ = document.provenance.lengths.back();
  }

  ExportedPolicy one(Policy policy) const {
    bool is_static = false;
    if (wants_static_view(policy, runtime_, request_.fixed)) {
      auto& part = std::get<SimLayerKv>(policy.parts.front());
      part.fixed = static_view(document_.sections.at(policy.section), part.per_head);
      if (!part.fixed)
        fail(ErrorCode::usage, runtime_.title,
             " takes lazy layers fixed beforehand, and the document has no static view of them: "
             "'kvatlas calibrate' writes one");
      is_static = true;
    }
    const auto form = calibrate::form_of(policy.parts.front());
    auto model = document_.model;
    model.architecture = architecture_of(model, request_.config);
    auto theirs = calibrate::as_runtime_behaves(policy, runtime_.name, model);
    Order order{document_,         runtime_, policy.parts.front(), form.value(),
                std::move(theirs), length_,  request_.config};
    if (length_ < 1)
      fail(ErrorCode::usage, "the document does not say how long its prompts were: give --length");
    const Exporter exporter = exporter_of(runtime_.name);
    if (!exporter) fail(ErrorCode::internal, runtime_.name, " has no exporter");
    Exported exported = exporter(order);
    ExportedPolicy out{policy.section, std::move(exported.files), exported.notes};
    out.files.push_back({"README.txt", readme_text(order, policy.section, is_static, exported)});
    return out;
  }

 private:
  const Document& document_;
  const ExportRequest& request_;
  const Runtime& runtime_;
  std::int64_t length_ = 0;
};

}  // namespace

ExportResult export_document(const Document& document, const ExportRequest& request) {
  const Exporting exporting(document, request);
  ExportResult result;
  std::vector<std::string> sections;
  for (auto& policy : calibrate::policies_of(document, request.task)) {
    sections.push_back(policy.section);
    if (!request.section.empty() && policy.section != request.section) continue;
    try {
      result.policies.push_back(exporting.one(policy));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::usage) throw;
      result.refused.push_back(policy.section + ": " + error.what());
    }
  }
  if (!request.section.empty() &&
      std::find(sections.begin(), sections.end(), request.section) == sections.end())
    fail(ErrorCode::usage, "the document has no policy ", quoted(request.section), "; it has ",
         list_str(sections));
  if (result.policies.empty()) {
    std::string reasons;
    for (const auto& reason : result.refused) reasons += (reasons.empty() ? "" : "; ") + reason;
    fail(ErrorCode::usage, reasons.empty() ? "the document holds no policy" : reasons);
  }
  return result;
}

}  // namespace kvatlas::exporting
