// SPDX-License-Identifier: Apache-2.0
// HeadKV's calibration: how many tokens each KV head keeps (docs/headkv.md).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "calibrate/methods/trials.hpp"
#include "calibrate/rules/evidence.hpp"

namespace kvatlas::calibrate {

/// How heads are given tokens: where these keep most attention, or by how much of its attention a
/// head has on distant tokens.
enum class HeadRule : std::uint8_t { gain, distance };
inline constexpr HeadRule kHeadRules[] = {HeadRule::gain, HeadRule::distance};

/// What a profile says of the heads.
class HeadEvidence {
 public:
  /// Error(usage) if the profile was not taken with the settings of `part`.
  HeadEvidence(const profile::Reader& profile, const HeadKv& part);

  /// The budgets whose curve is known, ascending, the window included.
  const std::vector<std::int64_t>& budgets() const { return budgets_; }
  /// Positions of those of these samples that say something of the heads.
  std::vector<std::size_t> telling(const std::vector<std::size_t>& positions) const;
  /// The budgets of heads for a mean budget, by some samples.
  HeadBudgets find(HeadRule rule, std::int64_t budget,
                   const std::vector<std::size_t>& samples) const;
  /// The attention that the heads lose by such budgets, in the mean over heads and samples.
  double lost(const HeadBudgets& budgets, const std::vector<std::size_t>& samples) const;
  /// [layer][KV head]: the share of its attention that is on distant tokens, in the mean. Near are
  /// the fewest initial and recent tokens of the profile.
  Masses distant(const std::vector<std::size_t>& samples) const;

 private:
  std::vector<std::vector<KeptCurve>> curves(const std::vector<std::size_t>& samples) const;

  const profile::Reader& profile_;
  HeadKv part_;
  Proximity near_;
  std::vector<std::int64_t> budgets_, rows_;  // and their rows among the profile's selections
};

struct HeadRequest {
  HeadKv policy = {};  // its budget is the document's where none is wanted and nothing is tried
  std::optional<HeadRule> rule = {};        // if not given, trials choose it; gain without a model
  std::optional<std::int64_t> budget = {};  // the document's; if not given, trials choose it
  std::vector<std::int64_t> budgets = {};   // that are compared; if empty, those of the profile
  double tolerance = 0;                     // share of the score that may be lost
};

/// Without a model (`run` is null) budgets are found all the same, and nothing is tried.
Calibrated calibrate_headkv(const Evidence& evidence, const HeadRequest& request,
                            const RunTrials& run);

}  // namespace kvatlas::calibrate
