// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/method_models.hpp"

#include "calibrate/policy/method.hpp"

namespace kvatlas::viewer {

using calibrate::Document;
using nlohmann::json;

const json& section_in(std::span<const Document> documents, const std::string& name) {
  static const json none;
  for (const Document& document : documents) {
    const auto found = document.sections.find(name);
    if (found != document.sections.end()) return *found;
  }
  return none;
}

json section_alone_in(std::span<const Document> documents, const std::string& name) {
  for (const Document& document : documents) {
    const auto found = document.sections.find(name);
    if (found == document.sections.end()) continue;
    json section = *found;
    if (document.compose.size() > 1 && section.is_object()) section.erase("measured");
    return section;
  }
  return nullptr;
}

MethodModels read_method_models(const profile::Reader& profile,
                                const std::vector<std::size_t>& positions, const Choices& choices,
                                std::span<const calibrate::Document> documents) {
  const auto section = [&](const calibrate::Method& method) -> const json& {
    return section_in(documents, method.name);
  };
  return {try_read([&] {
            return read_lazy_model(profile, positions, choices.lazy_arrays,
                                   section(calibrate::method::kSimLayerKv));
          }),
          try_read([&] {
            return read_blocks_model(profile, positions, section(calibrate::method::kPod));
          }),
          try_read([&] { return read_budgets_model(profile, positions, choices.budget_counts); })};
}

}  // namespace kvatlas::viewer
