// SPDX-License-Identifier: Apache-2.0
// PoD's calibration: blocks of layers that share keys of distant tokens, and the gate that skips
// them (docs/pod.md).
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "calibrate/methods/trials.hpp"
#include "calibrate/rules/evidence.hpp"

namespace kvatlas::calibrate {

struct PodRequest {
  Pod policy;  // proximal tokens, granularity, tau; not delta and blocks
  /// This similarity; else with trials the least that keeps the score, without them 0.5.
  std::optional<double> delta;
  /// Or the greatest that saves so much of the KV cache at the longest length.
  std::optional<double> wanted_saving;
  std::vector<double> deltas;       // of the sweep; empty: 0.05 to 0.95
  std::optional<double> tolerance;  // score that may be lost; else max(1 point, one sample)
  double memory_bytes = 24.0 * (std::int64_t{1} << 30);  // that the greatest batch is for
  std::int64_t new_tokens = 128;  // generated after the prompt, for the batch
};

/// `run` null: no model.
Calibrated calibrate_pod(const Evidence& evidence, const PodRequest& request, const RunTrials& run);

}  // namespace kvatlas::calibrate
