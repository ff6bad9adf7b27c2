// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "analyzer/config/config.hpp"
#include "calibrate/policy/policy.hpp"

namespace kvatlas::calibrate {

/// Finds the blocks of a Pod part that names a file. From a profile they are computed, by the
/// divergence of its layers; from a policy document they are taken as they are. Error(usage) if the
/// file is of a model of another shape.
void load_blocks(Policy& policy, const model::Config& config);

}  // namespace kvatlas::calibrate
