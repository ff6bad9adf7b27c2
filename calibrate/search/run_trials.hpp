// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "calibrate/methods/trials.hpp"

namespace kvatlas::calibrate {

/// The MakeTrials that simulates policies on the model. Error(usage) if the profile was taken from
/// another model.
RunTrials make_trials(const TrialOptions& options, const profile::Reader& profile,
                      const AroundTrials& around);

/// What the planned trials take, in words. It fails where make_trials() does.
std::string planned_cost(const TrialOptions& options, const profile::Reader& profile);

}  // namespace kvatlas::calibrate
