// SPDX-License-Identifier: Apache-2.0
// What pairs of answers say beside their scores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "calibrate/endpoint/did_it_run.hpp"
#include "calibrate/endpoint/pairs.hpp"
#include "calibrate/rules/certainty.hpp"

namespace kvatlas::calibrate {

/// A median over pairs, and how many there are.
struct RatioMedian {
  Quantile ratio;  // compressed over full
  std::size_t pairs = 0;
  double full_seconds = std::numeric_limits<double>::quiet_NaN();  // medians of each side
  double compressed_seconds = std::numeric_limits<double>::quiet_NaN();
};

struct ServedFigures {
  std::size_t pairs = 0, same = 0;  // both answered; the answers are equal
  std::size_t full_failed = 0, compressed_failed = 0, both_failed = 0;
  std::string full_problem, compressed_problem;  // the first of each
  std::size_t full_cut = 0, compressed_cut = 0;  // by the most tokens that were asked for
  std::int64_t cached_tokens = 0;
  bool forced = false;
  /// From the low end of what is sure to the high end of what is possible; over texts.
  std::size_t agreement_pairs = 0, divergence_pairs = 0;
  Estimate agreement, tv, js;                           // `mean` is that of the lower bounds
  double agreement_high = 1, tv_high = 1, js_high = 0;  // means of the upper bounds
  Quantile kl;                                          // the median of lower bounds
  std::int64_t places = 0;
  RatioMedian first_token, per_token;
  std::size_t controls = 0, controls_same = 0;
};
/// The pairs in the order in which texts are looked at, with the names of their texts' groups.
ServedFigures figures_of(std::span<const AskedPair> pairs, std::span<const std::string> groups,
                         bool forced);

/// What else a report is made of.
struct ServedRun {
  std::vector<Sign> signs;
  std::vector<LoadLevel> full_load, compressed_load;
  Estimate control_loss;  // in points: the full server's second answers
};

/// Sentences for people, without full stops.
std::vector<std::string> figures_text(const ServedFigures& figures, const ServedRun& run);
nlohmann::json figures_json(const ServedFigures& figures, const ServedRun& run);

}  // namespace kvatlas::calibrate
