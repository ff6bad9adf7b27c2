// SPDX-License-Identifier: Apache-2.0
// Tasks that the full model cannot do: what a policy loses of their answers says nothing.
#pragma once

#include <string>
#include <vector>

#include "calibrate/methods/trials.hpp"
#include "calibrate/rules/evidence.hpp"

namespace kvatlas::calibrate {

struct FailedTasks {
  std::vector<std::string> names;
  std::vector<std::string> said;  // what a user should know, a sentence each
};
/// The tasks that the full cache scores below kLeastFullScore on, by the samples of the choice.
/// None if there is no other task with answers.
FailedTasks failed_tasks(const Evidence& evidence, const RunTrials& run);

}  // namespace kvatlas::calibrate
