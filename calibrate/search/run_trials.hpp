// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "calibrate/methods/trials.hpp"

namespace kvatlas::calibrate {

/// MakeTrials by simulation on the model. Error(usage) if the profile is of another model.
RunTrials make_trials(const TrialOptions& options, const profile::Reader& profile);

}  // namespace kvatlas::calibrate
