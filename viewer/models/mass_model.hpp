// SPDX-License-Identifier: Apache-2.0
// The heatmap of proximal mass, layer x token: where in a prompt, and in what follows it, a layer
// looks at the proximal tokens alone (SimLayerKV's figures 4 and 7).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "calibrate/rules/rules.hpp"
#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

/// Which rows of attention are the columns.
enum class MassRows : std::uint8_t {
  along,  // strided over the prompt; captured on request
  last,   // the last of the prompt, then the generated tokens
};

struct MassModel {
  std::string sample;  // its name
  kernels::Proximity keep;
  MassRows rows = MassRows::along;
  std::int64_t layers = 0, prompt_tokens = 0;
  std::vector<std::int64_t> positions;  // ascending; generated tokens follow the prompt's
  std::vector<double> masses;           // [layer][position]; NaN: not captured
};
/// Which of both kinds of rows the profile has.
bool has_mass_rows(const profile::Reader& profile, MassRows rows);
/// Error(usage) for what was not captured, saying how it is.
MassModel read_mass_model(const profile::Reader& profile, std::size_t position,
                          kernels::Proximity keep, MassRows rows);

/// Its columns of these tokens (one past the last), at least the one at or before the first.
MassModel part_of(const MassModel& model, std::int64_t first, std::int64_t last);

struct MassView {
  std::vector<double> lazy_shares;  // [layer], of the positions whose mass is above the threshold
  Chart heatmap;                    // the threshold is a handle and a contour
  Chart shares;                     // a bar a layer
};
/// `texts`: of the prompt's tokens, for hovering; may be empty.
MassView mass_view(const MassModel& model, double threshold,
                   const std::vector<std::string>& texts = {});

}  // namespace kvatlas::viewer
