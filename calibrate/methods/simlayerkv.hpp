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
  SimLayerKv policy;                // its threshold is not read
  std::optional<double> threshold;  // if not given, trials find it; without a model the published
  double tolerance = 0;             // share of the score that may be lost
  double static_share = 0.5;  // share of samples from which a layer is lazy in the static view
  bool fixed = false;         // makes the static view the policy
};

/// Without a model (`run` is null) nothing is tried. Error(usage) says what the profile lacks.
Calibrated calibrate_simlayerkv(const Evidence& evidence, const SimLayerRequest& request,
                                const RunTrials& run);

}  // namespace kvatlas::calibrate
