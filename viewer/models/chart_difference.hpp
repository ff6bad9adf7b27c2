// SPDX-License-Identifier: Apache-2.0
// A chart less the same chart of a baseline.
#pragma once

#include <string>

#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

/// Lines and bars by label and x, boxes by their medians, matrices cell by cell; bands, scattered
/// points and handles have no difference. Tokens of prompts of other lengths are compared at the
/// same share of the prompt, which the notes say; layers of models of other depths are not. What
/// cannot be compared leaves a chart of a title and notes that say why.
Chart chart_difference(const Chart& mine, const std::string& name, const Chart& baseline,
                       const std::string& baseline_name);

}  // namespace kvatlas::viewer
