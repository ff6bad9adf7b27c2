// SPDX-License-Identifier: Apache-2.0
// What was measured of a policy on the model, as calibration or evaluation left it in a document.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "viewer/models/document_numbers.hpp"

namespace kvatlas::viewer {

struct Measured {
  std::int64_t samples = 0;
  Interval score, full;  // 0 to 1
  Interval change;       // score less the full cache's, in points
  double kept_share = kNoNumber;
  Interval kl, agreement;
  std::map<std::string, Interval> tasks;  // scores; empty where there is one task alone
  struct At {
    std::int64_t length = 0;
    double depth = kNoNumber;
    std::int64_t samples = 0;
    double score = kNoNumber;
  };
  std::vector<At> depths, full_depths;  // of prompts that have a length and a depth
};

/// Of a "measured" member; nothing if it says no score.
std::optional<Measured> measured_of(const nlohmann::json& measured);

/// "30.0 points lost [-60.0, 0.0] on 10 samples", the interval of the change; without what is not
/// known.
std::string change_text(const Measured& measured);

}  // namespace kvatlas::viewer
