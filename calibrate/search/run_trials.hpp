// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "calibrate/methods/trials.hpp"

namespace kvatlas::calibrate {

/// The MakeTrials that simulates policies on the model. Error(usage) if the profile was taken from
/// another model.
RunTrials make_trials(const TrialOptions& options, const profile::Reader& profile,
                      const AroundTrials& around);

}  // namespace kvatlas::calibrate
