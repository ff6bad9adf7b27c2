// SPDX-License-Identifier: Apache-2.0
// What calibration asks of the model: how policies fare on the samples of a profile. The simulation
// answers it; tests answer it from tables.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/model_options.hpp"
#include "calibrate/policy/policy.hpp"

namespace kvatlas::profile {
class Reader;
}

namespace kvatlas::calibrate {

/// One policy on one sample.
struct Trial {
  double score = std::numeric_limits<double>::quiet_NaN();  // 0 to 1; NaN: it has no answers
  double kl = std::numeric_limits<double>::quiet_NaN();     // nats a token; with `compare`
  std::string text;                                         // what was generated
  double tokens_kept = 0;  // prompt tokens a layer and KV head after the cut, the mean
  double kept_share = 1;   // bytes of the KV cache after the cut / bytes of the full one
};

/// Runs every policy on every sample of the list (positions in the profile): [policy][sample].
using RunTrials = std::function<std::vector<std::vector<Trial>>(
    std::span<const Policy> policies, std::span<const std::size_t> samples)>;

/// How the model is run for them.
struct TrialOptions : ModelOptions {
  std::int64_t max_new = 0;  // tokens generated; 0: as many as the task's answers need
  bool progress = true;      // shown on stderr, if that is a terminal
  bool compare = false;      // KL divergence along the full model's continuation is wanted
};

/// Opens the model and checks that the profile is of it. The profile must outlive what it returns.
using MakeTrials = std::function<RunTrials(const TrialOptions&, const profile::Reader&)>;

}  // namespace kvatlas::calibrate
