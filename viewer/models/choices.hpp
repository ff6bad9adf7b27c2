// SPDX-License-Identifier: Apache-2.0
// All that a user can set in the window: what undo takes back, what a saved document holds.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "viewer/models/blocks_model.hpp"
#include "viewer/models/budgets_model.hpp"
#include "viewer/models/lazy_model.hpp"
#include "viewer/models/sweep_model.hpp"

namespace kvatlas::viewer {

struct Choices {
  std::string task;         // of the samples that are looked at; empty: all
  std::int64_t length = 0;  // prompt tokens that savings hold for; 0: the longest profiled
  LazyChoices lazy_arrays;
  LazySettings lazy;
  BlocksSettings blocks;
  BudgetChoices budget_counts;
  BudgetSettings budgets;
  SweepSettings sweep;
  int lag_candidate = -1;  // of the sweep; -1: the recommended one
  /// A point of a search's front, chosen as the policy as it is; none once a setting is changed.
  struct Front {
    std::shared_ptr<const calibrate::Document> document = {};
    std::string policy = {};  // "lagkv:lag=64"
  };
  Front front;
};

/// As the documents have it, and within what the profile holds (samples and a grid of settings).
Choices initial_choices(const profile::Header& header, const std::vector<profile::Sample>& samples,
                        std::span<const calibrate::Document> documents);
/// Prompt tokens that all savings are for.
void set_length(Choices& choices, std::int64_t length);
/// The settings of the first of the documents that has each method; others stay.
void take_settings(Choices& choices, const profile::Header& header,
                   std::span<const calibrate::Document> documents);

}  // namespace kvatlas::viewer
