// SPDX-License-Identifier: Apache-2.0
// A profile as calibration reads it: which samples count, which settings were captured.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/calibrated.hpp"
#include "calibrate/rules/policy_reports.hpp"
#include "calibrate/rules/read_evidence.hpp"

namespace kvatlas::calibrate {

/// Fewer samples are no ground to choose on.
inline constexpr std::size_t kLeastSamples = 5;
/// Below it what a policy loses drowns in what the full model fails anyway (likewise).
inline constexpr double kLeastFullScore = 0.5;

/// The profile must outlive it.
class Evidence {
 public:
  /// Error(usage) for a task that the profile does not have.
  Evidence(const profile::Reader& profile, const Request& request);

  const profile::Reader& profile() const { return *profile_; }
  const Request& request() const { return request_; }
  const profile::Header& header() const { return profile_->header(); }
  const profile::Sample& sample(std::size_t position) const {
    return profile_->samples()[position];
  }

  /// Positions in the profile of the samples of the wanted tasks.
  const std::vector<std::size_t>& positions() const { return positions_; }
  /// Those of more tokens than that.
  std::vector<std::size_t> longer_than(std::int64_t n_tokens) const {
    return calibrate::longer_than(*profile_, positions_, n_tokens);
  }
  /// Those of a list that have answers.
  std::vector<std::size_t> answered(const std::vector<std::size_t>& positions) const;
  /// Choice and held out, as positions in the profile.
  Split split(const std::vector<std::size_t>& positions) const;

  CacheShape shape() const { return cache_shape(header()); }
  /// Prompt tokens at which savings are given, ascending.
  const std::vector<std::int64_t>& lengths() const { return lengths_; }

 private:
  const profile::Reader* profile_;
  Request request_;
  std::vector<std::size_t> positions_;
  std::vector<std::int64_t> lengths_;
};

/// Error(usage) for fewer than kLeastSamples; with --force a note, and "forced" in the section.
void require_samples(std::size_t count, const std::string& which, bool force, Calibrated& out);
/// For a full model that scores below 0.5.
void require_score(double full, bool force, Calibrated& out);

/// Of the samples that the request asks for; the tool's version is left empty.
Provenance provenance(const Evidence& evidence);

}  // namespace kvatlas::calibrate
