// SPDX-License-Identifier: Apache-2.0
// Policies tried on samples, beside the full cache: scores, losses and their intervals.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calibrate/methods/trials.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/report/report.hpp"
#include "calibrate/rules/calibrated.hpp"
#include "calibrate/rules/evidence.hpp"
#include "calibrate/rules/rules.hpp"

namespace kvatlas::calibrate {

/// The policy that has this part alone, called by its text.
Policy policy_of(Part part);

/// A trial's KL divergence. A cache that makes the model's numbers no numbers is as far from it as
/// can be.
double divergence_of(const Trial& trial);

/// The least share of the cache's bytes that a policy saves. What saves less rounds to 0 %.
constexpr double kLeastSaving = 0.005;

/// What policies did on samples that have answers.
class Verdict {
 public:
  /// Calls `run` once, with the full cache before the policies, on the samples in their hashed
  /// order. Samples that get no score under the full cache are left out.
  Verdict(const Evidence& evidence, const RunTrials& run, std::span<const Policy> policies,
          const std::vector<std::size_t>& positions, Measure measure = Measure::score);

  const std::vector<std::size_t>& samples() const { return samples_; }  // positions in the profile
  const std::vector<std::string>& groups() const { return groups_; }    // their groups' names
  const std::vector<std::string>& tasks() const { return tasks_; }      // and their tasks
  const std::vector<double>& full() const { return full_; }
  /// A policy's score on each of samples().
  const std::vector<double>& scores(std::size_t policy) const { return scores_[policy]; }
  const std::vector<Trial>& trials(std::size_t policy) const { return trials_[policy]; }

  /// The mean of the tasks' means over groups, with its 95 % interval.
  Estimate score(std::size_t policy) const;
  Estimate full_score() const;
  double kept_share(std::size_t policy) const;  // of the cache's bytes, in the mean
  SampleCount count() const;
  /// Of `policies` policies from the first on, each of which keeps more than the one before: the
  /// one that keeps least and whose score is not below the full one by more than the tolerance, nor
  /// that of any after it. None if there is none, or if it saves nothing.
  std::optional<std::size_t> least_that_holds(double tolerance, std::size_t first,
                                              std::size_t policies) const;
  /// Error(usage) if too few samples have a score, or the full cache's is too low. With --force
  /// both become notes. The full cache alone, on no policies, tells it before any of them is tried.
  void require_answers(bool force, Calibrated& out) const;
  /// Compares a policy with the full cache, over all samples and by task. Documents hold this under
  /// "measured".
  Measured measured(std::size_t policy, bool held_out) const;

 private:
  std::vector<std::size_t> samples_;
  std::vector<std::string> groups_, tasks_;
  std::vector<double> full_;
  std::vector<std::vector<double>> scores_;
  std::vector<std::vector<Trial>> trials_;
};

/// What a method found: the section of its part, with its report.
Calibrated with_section(nlohmann::json section, const nlohmann::json& report, Calibrated found);

/// What a method hands back that found no setting that saves and keeps the score: its tables, one
/// more that says so in its title, and its notes.
Calibrated without_policy(const Method& method, Calibrated found);

/// Says what was held out, and how many texts make the interval of a policy's loss +-5 points where
/// it is wider.
void note_precision(const Evidence& evidence, const Split& split, const Verdict& verdict,
                    std::size_t policy, Calibrated& out);

}  // namespace kvatlas::calibrate
