// SPDX-License-Identifier: Apache-2.0
#include "calibrate/methods/rehearsal.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "calibrate/methods/trial_journal.hpp"
#include "calibrate/policy/read_apart.hpp"

namespace kvatlas::calibrate {

RunTrials Rehearsal::trials() {
  return [this](std::span<const Policy> policies, std::span<const std::size_t> samples,
                Measure measure) {
    ++calls_;
    TrialRound round;
    round.measure = measure;
    struct Tried {
      std::string key;
      std::size_t draws;
      bool apart, in_place;
      std::optional<Repetition> repetition;
    };
    // Beside other policies the full cache is tried anyway.
    const bool full_alone = std::all_of(policies.begin(), policies.end(), is_full);
    std::vector<Tried> tried;
    for (const Policy& policy : policies)
      if (full_alone || !is_full(policy))
        tried.push_back({policy_key(policy), draws_of({&policy, 1}).size(),
                         reads_prompt_apart(policy), reads_in_place(policy),
                         repetition_of(policy)});
    for (const auto sample : samples) {
      // What was asked before is in the journal, and is not run again.
      std::size_t fresh = 0, apart = 0, in_place = 0;
      std::set<Repetition> repetitions;
      for (const Tried& one : tried)
        if (asked_.emplace(one.key, sample, measure).second) {
          fresh += one.draws;
          if (one.apart) apart += one.draws;
          if (one.in_place) in_place += one.draws;
          if (one.repetition) repetitions.insert(*one.repetition);
        }
      if (fresh == 0) continue;
      round.samples.push_back(sample);
      round.policies = std::max(round.policies, full_alone ? 0 : fresh);
      round.apart = std::max(round.apart, apart);
      round.in_place = std::max(round.in_place, full_alone ? 0 : in_place);
      round.repeated = std::max(round.repeated, repetitions.size());
    }
    if (!round.samples.empty()) rounds_.push_back(std::move(round));
    return std::vector<std::vector<Trial>>(
        policies.size(),
        std::vector<Trial>(samples.size(), Trial{.score = 1, .kl = 0, .kept_share = 0}));
  };
}

}  // namespace kvatlas::calibrate
