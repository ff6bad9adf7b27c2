// SPDX-License-Identifier: Apache-2.0
// Two profiles compared: what their layers do, and where they differ most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "viewer/models/head_changes.hpp"
#include "viewer/models/method_models.hpp"

namespace kvatlas::viewer {

/// What is compared of one profile. Lists of what it lacks are empty, and `missing` says why.
struct ProfileNumbers {
  std::string name;
  std::int64_t layers = 0;
  std::pair<std::int64_t, std::int64_t> lengths;  // tokens of the shortest and longest prompt
  std::vector<double> mass;                       // [layer], mean over samples
  std::vector<double> budget;                     // [layer], share of all tokens kept
  std::vector<double> similarity;                 // [layer, layer], mean over heads
  std::vector<std::string> missing;
  MapMeasures maps;  // of no heads if the profile has no maps
};
/// `models` are those of the samples at `positions`.
ProfileNumbers read_profile_numbers(const profile::Reader& profile, const std::string& name,
                                    const std::vector<std::size_t>& positions,
                                    const MethodModels& models, const BudgetSettings& budgets);

enum class DiffForm : std::uint8_t { side_by_side, difference };
struct DiffSettings {
  DiffForm form = DiffForm::side_by_side;
  bool by_depth = false;  // layers at the same relative depth are compared
};

struct DiffView {
  Chart masses, budgets, similarity;
  struct Change {
    std::string what;
    std::int64_t layer = 0;  // a layer of the first profile
    double first = 0, second = 0;
  };
  std::vector<Change> changes;    // the largest come first
  Table table;                    // the same changes as a table
  std::vector<HeadChange> heads;  // the heads whose maps differ most
};
/// Differences are the second profile less the first. Error(usage) if the numbers of layers differ
/// and `by_depth` is off.
DiffView diff_view(const ProfileNumbers& first, const ProfileNumbers& second,
                   const DiffSettings& settings);

}  // namespace kvatlas::viewer
