// SPDX-License-Identifier: Apache-2.0
// SimLayerKV's calibration: one threshold for all tasks (docs/simlayerkv.md).
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "calibrate/methods/trials.hpp"
#include "calibrate/rules/evidence.hpp"

namespace kvatlas::calibrate {

struct SimLayerRequest {
  SimLayerKv policy;                // which tokens are kept, how layers are told; not the threshold
  std::optional<double> threshold;  // this one; else it is searched for, which needs trials
  std::optional<double> tolerance;  // score that may be lost; else max(1 point, one sample)
  double static_share = 0.5;        // lazy rate from which a layer is lazy in the static view
  bool fixed = false;               // the policy is the static view
};

/// `run` null: no model; then `threshold` must be given. Error(usage) for what the profile lacks.
Calibrated calibrate_simlayerkv(const Evidence& evidence, const SimLayerRequest& request,
                                const RunTrials& run);

}  // namespace kvatlas::calibrate
