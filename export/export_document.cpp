// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "export/readme_impl.hpp"

namespace kvatlas::exporting {
namespace {

using calibrate::Document;
using calibrate::Policy;
using calibrate::Runtime;

ExportedPolicy exported_policy(const Document& document, const Policy& policy,
                               const Runtime& runtime, const ExportRequest& request) {
  if (policy.parts.empty())
    fail(ErrorCode::usage, runtime.title, " gets no files for a policy of ", policy.kv_bits,
         " bits alone: set the bits where the runtime takes them");
  auto [given, is_static] = calibrate::given_to_runtime(document, policy, runtime, request.fixed);
  const auto form = calibrate::form_of(given.parts.front());
  auto model = document.model;
  model.architecture = architecture_of(model, request.config);
  auto theirs = calibrate::as_runtime_behaves(given, runtime.name, model);
  auto length = request.length;
  if (length == 0 && !document.provenance.lengths.empty())
    length = document.provenance.lengths.back();
  if (length < 1)
    fail(ErrorCode::usage, "the document does not say how long its prompts were: give --length");
  PartRequest part_request{document,          runtime, given.parts.front(), form.value(),
                           std::move(theirs), length,  request.config};
  if (const auto* formats = std::get_if<calibrate::Precision>(&part_request.part)) {
    part_request.scales = request.scales;
    if (!part_request.scales && formats->scales)
      part_request.scales = {*formats->scales, "The scales are those of the policy.", {}, {}};
    part_request.checkpoint = request.checkpoint ? &*request.checkpoint : nullptr;
    part_request.modelopt_names = request.modelopt_names;
  } else if (request.scales) {
    fail(ErrorCode::usage,
         "scales are for policies that store FP8, such as "
         "precision:keys=fp8,values=fp8");
  }
  const Exporter exporter = exporter_of(runtime.name);
  if (!exporter) fail(ErrorCode::internal, runtime.name, " has no exporter");
  Exported exported = exporter(part_request);
  ExportedPolicy out{policy.section, std::move(exported.files), std::move(exported.links), {}};
  if (is_static) out.note = static_text(part_request, document.sections.at(policy.section));
  out.files.push_back(
      {"README.txt", readme_text(part_request, policy.section, is_static, exported)});
  return out;
}

}  // namespace

ExportResult export_document(const Document& document, const ExportRequest& request) {
  const Runtime& runtime = calibrate::runtime_named(request.runtime);
  ExportResult result;
  std::vector<std::string> sections;
  std::vector<std::pair<std::string, std::string>> refused;  // sections, and why
  for (const auto& policy : calibrate::policies_of(document, request.task)) {
    sections.push_back(policy.section);
    if (!request.section.empty() && policy.section != request.section) continue;
    try {
      result.policies.push_back(exported_policy(document, policy, runtime, request));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::usage) throw;
      const auto same = std::find_if(refused.begin(), refused.end(),
                                     [&](const auto& one) { return one.second == error.what(); });
      if (same == refused.end())
        refused.emplace_back(policy.section, error.what());
      else
        same->first += ", " + policy.section;
    }
  }
  for (const auto& [of, why] : refused)
    result.refused.push_back(of.empty() ? why : of + ": " + why);
  if (!request.section.empty() &&
      std::find(sections.begin(), sections.end(), request.section) == sections.end())
    fail(ErrorCode::usage, "the document has no policy ", quoted(request.section), "; it has ",
         list_str(sections));
  if (result.policies.empty()) {
    const std::string reasons = join(result.refused, "; ");
    fail(ErrorCode::usage, reasons.empty() ? "the document holds no policy" : reasons);
  }
  return result;
}

}  // namespace kvatlas::exporting
