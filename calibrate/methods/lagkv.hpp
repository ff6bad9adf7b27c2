// SPDX-License-Identifier: Apache-2.0
// LagKV's calibration: which partition size and ratio keep the score (docs/lagkv.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/methods/trials.hpp"
#include "calibrate/rules/evidence.hpp"

namespace kvatlas::calibrate {

struct LagRequest {
  std::int64_t sink = LagKv{}.sink;
  std::vector<std::int64_t> lags = {128, 512, 1024};
  std::vector<std::string> ratios = {"1/2", "1/4", "1/6", "1/8"};
  /// The share of the cache that the recommended setting saves at least. If it is not given, it is
  /// as much as keeps the score, or 0.5 where nothing can be tried.
  std::optional<double> compression = {};
  double tolerance = 0;  // share of the score that may be lost
};

/// Without a model (`run` is null) settings are judged by the attention that they keep according to
/// the profile, in place of the score.
Calibrated calibrate_lagkv(const Evidence& evidence, const LagRequest& request,
                           const RunTrials& run);

}  // namespace kvatlas::calibrate
