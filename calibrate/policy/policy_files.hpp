// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace kvatlas::calibrate {

/// Where a calibration keeps its trials until it ends: "p.json" -> "p.trials.jsonl".
std::filesystem::path trials_beside(const std::filesystem::path& output);

}  // namespace kvatlas::calibrate
