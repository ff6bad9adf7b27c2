// SPDX-License-Identifier: Apache-2.0
// The models of the methods that a profile is evidence for, or the reasons why there are none.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "viewer/models/choices.hpp"

namespace kvatlas::viewer {

/// A model, or the reason why there is none. Without both it is still being read.
template <class Model>
struct OrReason {
  std::shared_ptr<const Model> model;
  std::string reason;
  ErrorCode code = ErrorCode::usage;  // of the reason
  /// Error with the reason if there is no model.
  const Model& value() const {
    if (!model) fail(code, reason);
    return *model;
  }
};

/// What `read` returns, or the text of the error that it throws.
template <class Read>
auto try_read(Read read) -> OrReason<decltype(read())> {
  try {
    return {std::make_shared<const decltype(read())>(read()), {}};
  } catch (const Error& error) {
    return {nullptr, error.what(), error.code()};
  }
}

struct MethodModels {
  OrReason<LazyModel> lazy;
  OrReason<BlocksModel> blocks;
  OrReason<BudgetsModel> budgets;
};
/// Reads them from the samples at `positions`, each when it is asked for first. Scores come from
/// the documents. What it is given must outlive it.
class MethodReader {
 public:
  MethodReader(const profile::Reader& profile, const std::vector<std::size_t>& positions,
               const Choices& choices, std::span<const calibrate::Document> documents)
      : profile_(profile), positions_(positions), choices_(choices), documents_(documents) {}
  const OrReason<LazyModel>& lazy();
  const OrReason<BlocksModel>& blocks();
  const OrReason<BudgetsModel>& budgets();
  const MethodModels& all();

 private:
  const profile::Reader& profile_;
  const std::vector<std::size_t>& positions_;
  const Choices& choices_;
  std::span<const calibrate::Document> documents_;
  MethodModels read_;  // those that were asked for
};

/// The section of this name in the first document that has it, or null.
const nlohmann::json& section_in(std::span<const calibrate::Document> documents,
                                 const std::string& name);
/// The same, but without "measured" if the document is a composition: then the score is that of all
/// its sections together.
nlohmann::json section_alone_in(std::span<const calibrate::Document> documents,
                                const std::string& name);

}  // namespace kvatlas::viewer
