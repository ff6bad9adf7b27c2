// SPDX-License-Identifier: Apache-2.0
// What the document's sources share.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include <nlohmann/json.hpp>

#include "calibrate/policy/policy.hpp"

namespace kvatlas::calibrate {

inline constexpr int kDeepestDocument = 24;
inline constexpr std::size_t kLargestDocument = std::size_t{64} << 20;
inline constexpr std::array<const char*, 6> kSections = {"simlayerkv", "pod",      "dynamickv",
                                                         "lagkv",      "baseline", "heads"};

/// What the schema finds wrong first, with its place ("simlayerkv.settings.recent: ..."); "" if
/// nothing is.
std::string schema_complaint(const nlohmann::json& json);

}  // namespace kvatlas::calibrate
