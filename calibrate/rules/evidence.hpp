// SPDX-License-Identifier: Apache-2.0
// The samples of a profile that calibration goes by, and when they are too few or too poor for it.
// Their statistics are read by calibrate/rules/read_evidence.hpp.
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

/// With fewer texts nothing can be chosen.
inline constexpr std::size_t kLeastTexts = 5;
/// If the full model scores less, what a policy loses cannot be told from what the model gets wrong
/// anyway.
inline constexpr double kLeastFullScore = 0.5;

/// How many samples there are, and of how many texts they are made.
struct SampleCount {
  std::size_t samples = 0, texts = 0;
  std::string text() const;  // "20 samples of 10 texts"
};

/// The samples of the wanted tasks. The profile must outlive this object.
class Evidence {
 public:
  /// Error(usage) if a wanted task has no sample in the profile.
  Evidence(const profile::Reader& profile, const Request& request);

  const profile::Reader& profile() const { return *profile_; }
  const Request& request() const { return request_; }
  const profile::Header& header() const { return profile_->header(); }
  const profile::Sample& sample(std::size_t position) const {
    return profile_->samples()[position];
  }

  /// Positions of the samples in the profile.
  const std::vector<std::size_t>& positions() const { return positions_; }
  /// The positions of samples with more tokens than that.
  std::vector<std::size_t> longer_than(std::int64_t n_tokens) const {
    return calibrate::longer_than(*profile_, positions_, n_tokens);
  }
  /// Those of the given positions whose samples have answers.
  std::vector<std::size_t> answered(const std::vector<std::size_t>& positions) const;
  /// The groups of the samples at these positions.
  std::vector<std::string> groups(const std::vector<std::size_t>& positions) const;
  /// These positions in the order in which their samples are judged (hashed_order).
  std::vector<std::size_t> in_hashed_order(const std::vector<std::size_t>& positions) const;
  SampleCount count(const std::vector<std::size_t>& positions) const;
  /// The given positions, split by texts into those for the choice and those held out.
  Split split(const std::vector<std::size_t>& positions) const;
  /// The given positions without the texts that are held out: what decisions may look at if the
  /// held-out samples are to judge them.
  std::vector<std::size_t> apart_from(const std::vector<std::size_t>& held_out,
                                      const std::vector<std::size_t>& positions) const;

  CacheShape shape() const { return cache_shape(header()); }
  /// Prompt lengths for which savings are reported, ascending.
  const std::vector<std::int64_t>& lengths() const { return lengths_; }

 private:
  const profile::Reader* profile_;
  Request request_;
  std::vector<std::size_t> positions_;
  std::vector<std::int64_t> lengths_;
};

/// Error(usage) for samples of fewer texts than kLeastTexts. With --force this becomes a note, and
/// the section says "forced".
void require_samples(const SampleCount& count, const std::string& which, bool force,
                     Calibrated& out);
/// The same for a full model that scores below kLeastFullScore.
void require_score(double full, bool force, Calibrated& out);

/// Where a document comes from: these samples and the request's seed. The tool's version is left
/// empty.
Provenance provenance(const Evidence& evidence);

}  // namespace kvatlas::calibrate
