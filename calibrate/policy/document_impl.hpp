// SPDX-License-Identifier: Apache-2.0
// What the sources that read and write documents share.
#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json.hpp>

#include "calibrate/policy/policy.hpp"

namespace kvatlas::calibrate {

inline constexpr int kDeepestDocument = 24;
inline constexpr std::size_t kLargestDocument = std::size_t{64} << 20;

/// The first thing that the schema finds wrong, with its place ("simlayerkv.settings.recent: ...").
/// "" if the document meets the schema.
std::string schema_complaint(const nlohmann::json& json);

}  // namespace kvatlas::calibrate
