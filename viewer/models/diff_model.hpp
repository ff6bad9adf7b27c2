// SPDX-License-Identifier: Apache-2.0
// Two profiles beside each other: what their layers do, where they differ most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "viewer/models/choices.hpp"
#include "viewer/models/head_changes.hpp"

namespace kvatlas::viewer {

/// What is compared of one profile; what it lacks is empty, and said in `missing`.
struct ProfileNumbers {
  std::string name;
  std::int64_t layers = 0;
  std::pair<std::int64_t, std::int64_t> lengths;  // tokens of the shortest and longest prompt
  std::vector<double> mass;                       // [layer], mean over samples
  std::vector<double> budget;                     // [layer], share of all tokens kept
  std::vector<double> similarity;                 // [layer, layer], mean over heads
  std::vector<std::string> missing;
  MapMeasures maps;  // of no heads without maps
};
ProfileNumbers read_profile_numbers(const profile::Reader& profile, const std::string& name,
                                    const std::vector<std::size_t>& positions,
                                    const Choices& choices);

enum class DiffForm : std::uint8_t { side_by_side, difference };
struct DiffSettings {
  DiffForm form = DiffForm::side_by_side;
  bool by_depth = false;  // layers of models of other depths pair by relative depth
};

struct DiffView {
  Chart masses, budgets, similarity;
  struct Change {
    std::string what;
    std::int64_t layer = 0;  // of the first profile
    double first = 0, second = 0;
  };
  std::vector<Change> changes;    // the largest first
  Table table;                    // of them
  std::vector<HeadChange> heads;  // whose maps differ most
};
/// Second less first. Error(usage) for other numbers of layers, unless they pair by depth.
DiffView diff_view(const ProfileNumbers& first, const ProfileNumbers& second,
                   const DiffSettings& settings);

}  // namespace kvatlas::viewer
