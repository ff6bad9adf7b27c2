// SPDX-License-Identifier: Apache-2.0
// The difference of a chart and the same chart of a baseline.
#pragma once

#include <string>

#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

/// Lines and bars are compared where both have a value, of the same label at the same x (or of the
/// same name, where places have names), boxes by their medians, matrices cell by cell. Bands,
/// scattered points and handles are left out. If the prompts have different lengths, tokens are
/// compared at the same share of the prompt, and a note says so; layers of models of different
/// depth are not compared. If nothing can be compared, the chart has a title and notes that say
/// why.
Chart chart_difference(const Chart& mine, const std::string& name, const Chart& baseline,
                       const std::string& baseline_name);

}  // namespace kvatlas::viewer
