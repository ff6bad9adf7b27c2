// SPDX-License-Identifier: Apache-2.0
// What every calibration is asked, and what it hands back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/plain_text.hpp"
#include "base/table.hpp"
#include "calibrate/rules/policy_reports.hpp"
#include "calibrate/rules/rules.hpp"

namespace kvatlas::calibrate {

/// What is the same for all methods.
struct Request {
  std::vector<std::string> tasks = {};    // samples of these alone; empty: all
  std::vector<std::string> without = {};  // and none of these, by their whole names
  /// Prompt tokens that savings are given at; empty: the samples'.
  std::vector<std::int64_t> lengths = {};
  double held_out = 0.4;  // share of the samples that the choice does not see
  std::uint64_t seed = 0;
  bool force = false;  // calibrate where too little or too poor evidence is refused
};

/// A method's section of the policy document (null if no policy saves and keeps the score), its
/// tables, and what a user should know, a sentence each.
struct Calibrated {
  nlohmann::json section = nlohmann::json::object();
  std::vector<Table> tables;
  std::vector<std::string> notes;
};

std::string estimate_text(const Estimate& estimate, int digits = 3);  // "0.900 [0.833, 0.967]"
/// "0.010 [0.005, 0.020]", or "0.010 [at least 0.005]" where there is no upper end.
std::string quantile_text(const Quantile& quantile, int digits = 3);
/// "median 0.010 [0.005, 0.020], 90th percentile 0.050 [at least 0.020], mean 0.015"; of an older
/// document the mean alone, and "" where nothing is known.
std::string divergence_text(const Divergence& divergence);

}  // namespace kvatlas::calibrate
