// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "analyzer/model/config.hpp"
#include "calibrate/policy/policy.hpp"

namespace kvatlas::calibrate {

/// Finds the blocks of a Pod part that names a file: of a profile by the divergence it holds, of a
/// policy document as they stand there. Error(usage) if they are of a model of another shape.
void load_blocks(Policy& policy, const model::Config& config);

}  // namespace kvatlas::calibrate
