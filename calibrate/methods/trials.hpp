// SPDX-License-Identifier: Apache-2.0
// What calibration asks of the model: how policies do on the samples of a profile. A simulation
// answers; in tests a table does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "base/model_options.hpp"
#include "calibrate/policy/policy.hpp"
#include "data/scores.hpp"

namespace kvatlas::profile {
class Reader;
}

namespace kvatlas::calibrate {

/// What trials measure: how good the policy's answers are, how far its next tokens are from the
/// full model's along the full model's own continuation, or both.
enum class Measure : std::uint8_t { score, divergence, both };

/// What one policy did on one sample. What was not measured is NaN.
struct Trial {
  double score = std::numeric_limits<double>::quiet_NaN();  // 0 to 1; NaN also without answers
  double kl = std::numeric_limits<double>::quiet_NaN();     // nats a token
  std::optional<data::DigitScores> digits = {};             // of a pass key
  double kept_share = 1;  // bytes of the KV cache after the cut / bytes of the full one
};

/// So many prompts are tried together at most, so that a step of the model decodes rows of all of
/// them. An interruption loses as many.
constexpr std::size_t kPromptsTogether = 4;
/// The samples that are tried together from number `first` of a list on.
inline std::span<const std::size_t> tried_together(std::span<const std::size_t> samples,
                                                   std::size_t first) {
  return samples.subspan(first, std::min(kPromptsTogether, samples.size() - first));
}

/// Runs every policy on every sample of the list, which holds positions in the profile. The result
/// is [policy][sample].
using RunTrials = std::function<std::vector<std::vector<Trial>>(
    std::span<const Policy> policies, std::span<const std::size_t> samples, Measure measure)>;

/// Trials that a command asks for together.
struct TrialRound {
  std::size_t policies = 0;  // beside the full cache
  std::size_t apart = 0;     // of them, those that need a reading of the prompt of their own
  std::vector<std::size_t> samples;  // positions in the profile
  Measure measure = Measure::score;
  std::size_t repeated = 0;  // how often a prompt is repeated behind itself
  std::size_t in_place = 0;  // policies that read the prompt's cache where it lies
};

/// How the model is run for trials.
struct TrialOptions : ModelOptions {
  std::int64_t max_new = 0;  // tokens generated; 0 means as many as the answers of the task need
  bool progress = true;      // is shown, if stderr is a terminal
  /// The file, such as the profile, beside which prompts that were read and do not fit into memory
  /// are kept while the command runs.
  std::string keep_beside;
  /// What will be asked for, as a rehearsal found it. What that costs is said before it begins.
  std::vector<TrialRound> planned;
  bool resumed = false;  // some of it was done before
};

/// What is to stand around the trials on the model, such as a journal.
using AroundTrials = std::function<RunTrials(RunTrials)>;

/// Opens the model and checks that the profile was taken from it. The profile must outlive the
/// function that is returned, and so must all that `around` refers to.
using MakeTrials = std::function<RunTrials(const TrialOptions&, const profile::Reader&,
                                           const AroundTrials& around)>;

}  // namespace kvatlas::calibrate
