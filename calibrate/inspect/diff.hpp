// SPDX-License-Identifier: Apache-2.0
// What changed between two profiles, or between two policy documents.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "analyzer/profile/profile.hpp"
#include "base/plain_text.hpp"
#include "base/table.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/rules.hpp"

namespace kvatlas::calibrate {

/// One figure, or one setting, that differs.
struct Change {
  std::string what;   // "layer mass, initial=4,recent=256", "pod.settings.delta"
  std::string where;  // "layer 12", "layer 3, KV head 1"; may be empty
  nlohmann::json first, second;
  /// The second less the first, with the 95 % interval if there are samples for one.
  std::optional<Estimate> difference;
  /// Changes are sorted by this: a difference of shares, or a difference divided by the first.
  double size = 0;
};

struct Diff {
  std::vector<Change> changes;     // beyond their interval, the largest first
  std::size_t compared = 0;        // figures with an interval
  std::vector<std::string> notes;  // say what could not be compared, and how samples were paired
};

/// Compares masses of layers and heads, similarities of layers, the attention that selections keep,
/// and norms. Samples with the same tokens are compared one by one, others by their means.
/// Error(usage) if the models differ in shape.
Diff diff_profiles(const profile::Reader& first, const profile::Reader& second);

/// Compares settings, results and figures. Measured figures differ only if their intervals say so.
Diff diff_documents(const Document& first, const Document& second);

Table diff_table(const Diff& diff, std::size_t most);
nlohmann::json diff_json(const Diff& diff);

}  // namespace kvatlas::calibrate
