// SPDX-License-Identifier: Apache-2.0
// What trying policies takes, before any of it is done.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "analyzer/capture/run_speed.hpp"
#include "calibrate/methods/trials.hpp"
#include "calibrate/search/evaluate.hpp"

namespace kvatlas::calibrate {

struct TrialCost {
  double seconds = 0;
  std::size_t prompts = 0;  // that are read at least once
  std::size_t answers = 0;  // that are generated, or followed
};

/// The rounds' samples are positions in `questions`. A prompt that several rounds try is read in
/// the first of them, and is kept for the others. So many prompts are held at a time.
TrialCost trial_cost(const capture::RunSpeed& speed, std::span<const Question> questions,
                     std::span<const TrialRound> rounds, std::size_t prompts_together);

/// "about 2 min 5 s: 12 prompts are read, and 84 answers generated".
std::string cost_text(const TrialCost& cost);

}  // namespace kvatlas::calibrate
