// SPDX-License-Identifier: Apache-2.0
// What a profile with given settings holds, as data: for software that takes the statistics where
// this engine does not run, and writes the file itself.
#pragma once

#include <string>

#include "analyzer/profile/statistics.hpp"

namespace kvatlas::profile {

/// The sizes that descriptions depend on, from "layers=30,heads=9,kv_heads=3,head_dim=64,vocab=100"
/// and, where RoPE turns fewer channels, "rotary=32". Error(usage) says what is wrong or missing.
model::Config shape_from(const std::string& text);

/// One JSON object: the version of the format, the `capture` record, the tables of axes, the
/// descriptions of all arrays, and what the settings come to in numbers.
std::string description_json(const CaptureSettings& settings, const model::Config& shape,
                             const std::string& version);

}  // namespace kvatlas::profile
