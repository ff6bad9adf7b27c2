// SPDX-License-Identifier: Apache-2.0
// The numbers of LagKV's screen: score against compression, as calibration wrote them to a
// document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/rules.hpp"
#include "viewer/models/chart.hpp"
#include "viewer/models/measured.hpp"

namespace kvatlas::viewer {

struct SweepModel {
  using Candidate = calibrate::LagCandidate;
  std::int64_t sink = calibrate::LagKv{}.sink;
  std::vector<Candidate> candidates;  // in the order of the document
  std::optional<Estimate> full;
};
/// `section` is the section "lagkv" of a document. Error(usage) if it has no sweep.
SweepModel sweep_model(const nlohmann::json& section);

struct SweepSettings {
  ShownScore score = ShownScore::score;
  /// X is the number of tokens kept of a partition, not the compression.
  bool against_kept = false;
  double least_share = 0.95;  // share of the full cache's score that `smallest` must reach
  double wanted_compression = 0.5;
  std::int64_t length = 0;  // prompt length for which tokens are counted
};

struct SweepView {
  /// Indices of candidates that no other beats, by ascending cost.
  std::vector<std::size_t> front;
  /// The best score that compresses as much as is wanted.
  std::optional<std::size_t> recommended;
  /// Compresses most of those that reach the least share.
  std::optional<std::size_t> smallest;
  /// The candidate of each point in chart.points.
  std::vector<std::vector<std::size_t>> candidates;
  Chart chart;
  /// Which keys the chosen candidate keeps, or the recommended one if none is chosen.
  Chart pattern;
};
/// `chosen` is the index of the candidate that stands out, if there is one. A sweep without what is
/// to be shown, as one that was made without a model has no scores, shows the attention kept.
SweepView sweep_view(const SweepModel& model, const SweepSettings& asked,
                     std::optional<std::size_t> chosen = std::nullopt);

}  // namespace kvatlas::viewer
