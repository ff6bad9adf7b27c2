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

namespace {

template <class Model, class Read>
const OrReason<Model>& once(OrReason<Model>& kept, Read read) {
  if (!kept.model && kept.reason.empty()) kept = try_read(read);
  return kept;
}

}  // namespace

const OrReason<LazyModel>& MethodReader::lazy() {
  return once(read_.lazy, [&] {
    return read_lazy_model(profile_, positions_, choices_.lazy_arrays,
                           section_in(documents_, calibrate::method::kSimLayerKv.name));
  });
}

const OrReason<BlocksModel>& MethodReader::blocks() {
  return once(read_.blocks, [&] {
    return read_blocks_model(profile_, positions_,
                             section_in(documents_, calibrate::method::kPod.name));
  });
}

const OrReason<BudgetsModel>& MethodReader::budgets() {
  return once(read_.budgets,
              [&] { return read_budgets_model(profile_, positions_, choices_.budget_counts); });
}

const MethodModels& MethodReader::all() {
  lazy();
  blocks();
  budgets();
  return read_;
}

}  // namespace kvatlas::viewer
