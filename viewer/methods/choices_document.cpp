// SPDX-License-Identifier: Apache-2.0

#include "viewer/methods/choices_document.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "calibrate/rules/policy_reports.hpp"
#include "viewer/methods/method_row.hpp"

namespace kvatlas::viewer {
namespace {

using calibrate::Document;
using nlohmann::json;

/// As it is written: numbers have nine digits there.
json as_written(const json& value) { return json::parse(calibrate::canonical_json(value)); }

/// The same policy: settings and result.
bool same_policy(const json& a, const json& b) {
  return as_written(a.value("settings", json())) == as_written(b.value("settings", json())) &&
         as_written(a.value("result", json())) == as_written(b.value("result", json()));
}

}  // namespace

void take_settings(Choices& choices, const profile::Header& header,
                   std::span<const Document> documents) {
  for (const MethodRow& row : method_rows()) {
    const json& section = section_in(documents, row.method->name);
    if (section.is_null()) {
      row.take(nullptr, header, choices);
    } else {
      const calibrate::Part part = calibrate::part_of(row.method->name, section);
      row.take(&part, header, choices);
    }
  }
}

Choices initial_choices(const profile::Header& header, const std::vector<profile::Sample>& samples,
                        std::span<const Document> documents) {
  Choices choices;
  take_settings(choices, header, documents);
  std::int64_t longest = 0;
  for (const auto& sample : samples) longest = std::max(longest, sample.n_tokens);
  set_length(choices, longest);
  return choices;
}

std::vector<std::string> possible_sections(const profile::Reader& profile,
                                           std::span<const Document> documents) {
  std::vector<std::string> possible;
  for (const MethodRow& row : method_rows())
    if (row.can_be_saved(profile, documents)) possible.emplace_back(row.method->name);
  return possible;
}

Document choices_document(const profile::Reader& profile, const std::vector<std::size_t>& positions,
                          const Choices& choices, const MethodModels& models,
                          std::span<const Document> documents,
                          std::span<const std::string> sections) {
  if (sections.empty()) fail(ErrorCode::usage, "no policy is chosen to be saved");
  const Source source{models, choices, documents};
  Document document;
  document.model = calibrate::model_info(profile.header());
  document.provenance = calibrate::provenance_of(profile, positions);
  document.provenance.tool_version = KVATLAS_VERSION;
  for (const auto& section : sections) {
    const MethodRow* row = find_row(section);
    if (!row) fail(ErrorCode::usage, "no policy is called ", quoted(section));
    json made = row->section(source);
    const json known = section_alone_in(documents, section);
    document.sections[section] = known.is_object() && same_policy(known, made) ? known : made;
  }
  return document;
}

}  // namespace kvatlas::viewer
