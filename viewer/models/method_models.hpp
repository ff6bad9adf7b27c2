// SPDX-License-Identifier: Apache-2.0
// What a profile tells of the methods that it is evidence for: the models of their screens, or why
// there is none.
#pragma once

#include <memory>
#include <string>

#include "base/error.hpp"
#include "viewer/models/choices.hpp"

namespace kvatlas::viewer {

/// A model, or why there is none. Neither: it is still being read.
template <class Model>
struct OrReason {
  std::shared_ptr<const Model> model;
  std::string reason;
};

/// What `read` returns, or the error that it throws.
template <class Read>
auto try_read(Read read) -> OrReason<decltype(read())> {
  try {
    return {std::make_shared<const decltype(read())>(read()), {}};
  } catch (const Error& error) {
    return {nullptr, error.what()};
  }
}

struct MethodModels {
  OrReason<LazyModel> lazy;
  OrReason<BlocksModel> blocks;
  OrReason<BudgetsModel> budgets;
};

}  // namespace kvatlas::viewer
