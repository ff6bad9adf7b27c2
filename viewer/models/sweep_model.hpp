// SPDX-License-Identifier: Apache-2.0
// LagKV's screen: score against compression, as calibration left it in a document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/rules.hpp"
#include "viewer/models/chart.hpp"
#include "viewer/models/document_numbers.hpp"

namespace kvatlas::viewer {

enum class SweepScore : std::uint8_t { score, digits_prefix, digits_in_place, attention };

struct SweepModel {
  struct Candidate {
    std::string variant, ratio;  // "lag", "local" or "l2"; "1/4"
    std::int64_t lag = 0, keep = 0;
    double compression = kNoNumber, full = kNoNumber;
    Interval score = {};
    double digits_prefix = kNoNumber, digits_in_place = kNoNumber, attention = kNoNumber;
    bool own() const { return variant == "lag"; }
  };
  std::int64_t sink = calibrate::LagKv{}.sink;
  std::vector<Candidate> candidates;  // in the document's order
  Interval full;
};
/// `section`: "lagkv" of a document. Error(usage) if it has no sweep.
SweepModel sweep_model(const nlohmann::json& section);

struct SweepSettings {
  SweepScore score = SweepScore::score;
  bool against_kept = false;  // x is the tokens kept of a partition, else the compression
  double least_share = 0.95;  // "at least so much of the full cache's score"
  double wanted_compression = 0.5;
  std::int64_t length = 0;  // prompt tokens
};

struct SweepView {
  std::vector<std::size_t> front;          // candidates, by ascending cost
  std::optional<std::size_t> recommended;  // the best that compresses as much as wanted
  std::optional<std::size_t> smallest;     // compresses most, of those with the least share
  std::vector<std::vector<std::size_t>> candidates;  // of each point, as in chart.points
  Chart chart;
  Chart pattern;  // which keys the chosen candidate keeps, else the recommended one
};
/// `chosen`: a candidate that stands out, if there is one.
SweepView sweep_view(const SweepModel& model, const SweepSettings& settings,
                     std::optional<std::size_t> chosen = std::nullopt);

}  // namespace kvatlas::viewer
