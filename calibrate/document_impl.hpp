// SPDX-License-Identifier: Apache-2.0
// What the document's sources share.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include <nlohmann/json.hpp>

#include "calibrate/policy.hpp"

namespace kvatlas::calibrate {

inline constexpr int kDeepestDocument = 24;
inline constexpr std::size_t kLargestDocument = std::size_t{64} << 20;
inline constexpr std::array<const char*, 6> kSections = {"simlayerkv", "pod",      "dynamickv",
                                                         "lagkv",      "baseline", "heads"};

/// Keys sorted, lists of plain values in one line, two spaces of indentation, numbers with at most
/// 9 significant digits. Error(internal), naming the place, for a number that is not finite, text
/// that is not UTF-8, and what nests deeper than a document may.
std::string canonical_json(const nlohmann::json& json);

/// What the schema finds wrong first, with its place ("simlayerkv.settings.recent: ..."); "" if
/// nothing is.
std::string schema_complaint(const nlohmann::json& json);

}  // namespace kvatlas::calibrate
