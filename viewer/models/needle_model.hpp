// SPDX-License-Identifier: Apache-2.0
// Whether a model finds what is hidden in a prompt: scores, also of digits, by prompt length and
// depth, of the full cache and of policies, as evaluation wrote them to documents.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "calibrate/policy/policy.hpp"
#include "viewer/models/chart.hpp"
#include "viewer/models/measured.hpp"

namespace kvatlas::viewer {

struct NeedleModel {
  struct Map {
    std::string policy;
    std::vector<calibrate::DepthScore> cells;
  };
  std::vector<Map> maps;  // the full cache comes first
  /// Whether some prompts ask for pass keys, whose digits are counted.
  bool has_digits() const;
};
/// Error(usage) if no document has scores by length and depth; it says how they are measured.
NeedleModel needle_model(std::span<const calibrate::Document> documents);

/// A matrix for each policy, with depths as rows and lengths as columns. With `difference` the full
/// cache's score is subtracted. Where the model has no digits, or the attention is asked for, the
/// share of right answers is shown.
Chart needle_chart(const NeedleModel& model, ShownScore score, bool difference);

}  // namespace kvatlas::viewer
