// SPDX-License-Identifier: Apache-2.0
// Everything that a user can set in the window. Undo takes these choices back, and a saved document
// holds them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "viewer/models/blocks_model.hpp"
#include "viewer/models/budgets_model.hpp"
#include "viewer/models/lazy_model.hpp"
#include "viewer/models/precision_model.hpp"
#include "viewer/models/sweep_model.hpp"

namespace kvatlas::viewer {

struct Choices {
  std::string task;  // The task whose samples are looked at; empty if all are.
  /// Prompt length for which savings are given; 0 stands for the longest prompt of the profile.
  std::int64_t length = 0;
  LazyChoices lazy_arrays;
  LazySettings lazy;
  BlocksSettings blocks;
  BudgetChoices budget_counts;
  BudgetSettings budgets;
  SweepSettings sweep;
  int lag_candidate = -1;    // index of a setting in the sweep; -1 is the recommended one
  int precision_point = -1;  // index in the curve of number formats; -1 is what a document says
  /// The point of a search's front that was chosen as the policy. There is none any more as soon as
  /// a setting is changed.
  struct Front {
    std::shared_ptr<const calibrate::Document> document = {};
    std::string policy = {};  // the point's policy, such as "lagkv:lag=64"
  };
  Front front;
};

/// Sets the prompt length of all methods at once.
inline void set_length(Choices& choices, std::int64_t length) {
  choices.length = choices.lazy.length = choices.blocks.length = choices.sweep.length = length;
}

}  // namespace kvatlas::viewer
