// SPDX-License-Identifier: Apache-2.0
// What a profile alone says about a setting of SimLayerKV. Calibration and the viewer both write
// it.
#pragma once

#include <cstdint>
#include <vector>

#include "calibrate/report/report.hpp"
#include "calibrate/rules/rules.hpp"

namespace kvatlas::calibrate {

struct LazyEvidence {
  const SampleMasses& masses;
  /// Masses of the generated tokens; empty if they were not captured.
  const StepMasses& steps;
  CacheShape shape;
  Proximity keep;
};
/// Adds what a profile alone can tell: "lazy_rates", "static", "per_head", "opposite", "savings" at
/// these prompt lengths, "samples", and "consistency" if more than one generated token is known.
void add_lazy_report(const LazyEvidence& evidence, double threshold, const LazyChoice& choice,
                     const std::vector<std::int64_t>& lengths, SimLayerKvReport& report);

}  // namespace kvatlas::calibrate
