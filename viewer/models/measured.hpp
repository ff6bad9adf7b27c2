// SPDX-License-Identifier: Apache-2.0
// What calibration or evaluation measured of a policy on the model and wrote to a document.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/rules/certainty.hpp"
#include "viewer/models/document_numbers.hpp"

namespace kvatlas::viewer {

/// What is shown of answers: the share that is right; of pass keys the share of digits that are
/// right up to the first wrong one, or at their place; or the attention that the kept keys had.
enum class ShownScore : std::uint8_t { score, digits_prefix, digits_in_place, attention };
const char* score_word(ShownScore score);

struct Measured {
  std::int64_t samples = 0;
  std::int64_t texts = 0;  // that the samples are made of; 0 if that is not known
  bool held_out = false;   // from the choice of the policy
  Interval score, full;    // 0 to 1
  Interval change;         // score less that of the full cache, in points
  double kept_share = kNoNumber;
  double read_share = kNoNumber;  // of what the full cache reads in a decode step
  calibrate::Divergence kl;
  Interval agreement;
  /// Score of each task; empty if there is only one task.
  std::map<std::string, Interval> tasks;
  struct At {
    std::int64_t length = 0;
    double depth = kNoNumber;
    std::int64_t samples = 0;
    double score = kNoNumber, digits_prefix = kNoNumber, digits_in_place = kNoNumber;
    /// NaN where it is not known, as the attention is.
    double shown(ShownScore what) const;
  };
  /// Scores of prompts for which a length and a depth are known.
  std::vector<At> depths, full_depths;
  struct Turn {
    std::int64_t turn = 0;
    Interval score;
  };
  /// Of contexts with several questions: the score of each turn.
  std::vector<Turn> turns, full_turns;
  struct Held {
    double tokens = 0, bytes = 0;  // generated so far; of keys and values then
  };
  /// While answers were generated, in the mean over those that are so long.
  std::vector<Held> held, full_held;
};

/// Reads a member "measured"; none if it holds no score.
std::optional<Measured> measured_of(const nlohmann::json& measured);

/// "10 prompts of 5 texts, held out"; empty if it is not known how many they are.
std::string prompts_text(std::int64_t samples, std::int64_t texts, bool held_out = false);

/// "30.0 points lost [0.0, 60.0] on 10 samples of 5 texts": how many points were lost or won, with
/// the interval. What is not known is left out.
std::string change_text(const Measured& measured);

}  // namespace kvatlas::viewer
