// SPDX-License-Identifier: Apache-2.0
// What evaluation measures of a policy, with numbers that are known.
#pragma once

#include <nlohmann/json.hpp>

namespace kvatlas::testing_support {

inline nlohmann::json estimate_around(double mean, double margin = 0.1) {
  return {{"mean", mean}, {"low", mean - margin}, {"high", mean + margin}};
}

/// On 8 prompts where the full cache scores `full`.
inline nlohmann::json measured_json(double score, double kept_share, double full = 1) {
  return {{"samples", 8},
          {"score", estimate_around(score)},
          {"full", estimate_around(full)},
          {"loss", estimate_around(full - score)},
          {"kept_share", kept_share}};
}

}  // namespace kvatlas::testing_support
