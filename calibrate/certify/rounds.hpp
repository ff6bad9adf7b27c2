// SPDX-License-Identifier: Apache-2.0
// How far a gate goes on while its verdict is open, and what it says of that beforehand.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "calibrate/certify/gate.hpp"

namespace kvatlas::calibrate {

/// How many more seeds the undecided need, after `seeds` of them have made `prompts`: at most as
/// many again as there were, for their losses may change, and no more prompts than `most_prompts`.
std::int64_t seeds_for(std::span<const GateVerdict> verdicts, std::int64_t seeds,
                       std::int64_t prompts, std::int64_t most_prompts);

/// What the asked loss needs, before anything is run: sentences without full stops.
std::vector<std::string> limit_needs(const Gate& gate);

}  // namespace kvatlas::calibrate
