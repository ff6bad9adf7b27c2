// SPDX-License-Identifier: Apache-2.0
// What trials a calibration will ask for, found by letting it run on trials that cost nothing.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "calibrate/methods/trials.hpp"

namespace kvatlas::calibrate {

/// Answers trials as if no policy lost anything, and notes what was asked. What a calibration asks
/// for later depends on the answers a little, so the rounds are about those of the real run.
class Rehearsal {
 public:
  /// The rehearsal must outlive the function.
  RunTrials trials();
  const std::vector<TrialRound>& rounds() const { return rounds_; }
  /// How often trials were asked for.
  std::size_t calls() const { return calls_; }

 private:
  std::vector<TrialRound> rounds_;
  std::size_t calls_ = 0;
  std::set<std::tuple<std::string, std::size_t, Measure>> asked_;
};

}  // namespace kvatlas::calibrate
