// SPDX-License-Identifier: Apache-2.0
// What changed between two profiles, or between two policy documents, largest first.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "analyzer/profile/profile.hpp"
#include "base/plain_text.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/rules.hpp"

namespace kvatlas::calibrate {

/// One figure, or one setting, that differs.
struct Change {
  std::string what;   // "layer mass, initial=4,recent=256", "pod.settings.delta"
  std::string where;  // "layer 12", "layer 3, KV head 1"; may be empty
  nlohmann::json first, second;
  /// Second less first, with its 95 % interval where samples give one.
  std::optional<Estimate> difference;
  /// What it is sorted by: a share, or a change by shares of the first.
  double size = 0;
};

struct Diff {
  std::vector<Change> changes;     // beyond their interval, largest first
  std::size_t compared = 0;        // figures with an interval
  std::vector<std::string> notes;  // what could not be compared, and how samples were paired
};

/// Layer and head masses, similarities of layers, attention kept by selections, and norms. Samples
/// with the same tokens are compared one by one, others by their means. Error(usage) for models of
/// other shapes.
Diff diff_profiles(const profile::Reader& first, const profile::Reader& second);

/// Settings, results and figures; measured ones differ where their intervals say so.
Diff diff_documents(const Document& first, const Document& second);

Table diff_table(const Diff& diff, std::size_t most);
nlohmann::json diff_json(const Diff& diff);

}  // namespace kvatlas::calibrate
