// SPDX-License-Identifier: Apache-2.0
// The heatmap of proximal mass by layer and token. It shows where in a prompt, and in the answer
// after it, a layer looks at the proximal tokens alone (figures 4 and 7 of SimLayerKV's paper).
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "calibrate/rules/rules.hpp"
#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

/// Which rows of attention become columns of the heatmap.
enum class MassRows : std::uint8_t {
  along,  // rows at even distances along the prompt, which are captured on request
  last,   // the last rows of the prompt, then those of the generated tokens
};

struct MassModel {
  std::string sample;  // id of the sample
  kernels::Proximity keep;
  MassRows rows = MassRows::along;
  std::int64_t layers = 0, prompt_tokens = 0;
  /// Ascending; generated tokens are counted on from the end of the prompt.
  std::vector<std::int64_t> positions;
  Eigen::ArrayXXd masses;  // [layer, position]; NaN if it was not captured
};
/// Whether the profile has rows of this kind.
bool has_mass_rows(const profile::Reader& profile, MassRows rows);
/// Error(usage) for masses that were not captured says how to capture them.
MassModel read_mass_model(const profile::Reader& profile, std::size_t position,
                          kernels::Proximity keep, MassRows rows);

/// The columns of the tokens from `first` to `last` - 1. If there is none between them, the one
/// before `first`.
MassModel part_of(const MassModel& model, std::int64_t first, std::int64_t last);

struct MassView {
  /// [layer]; share of the positions at which the layer is lazy.
  std::vector<double> lazy_shares;
  Chart heatmap;  // with the threshold as a handle on the legend and as a contour
  Chart shares;   // a bar for each layer
};
/// `texts` are those of the prompt's tokens, which are shown under the pointer; they may be empty.
MassView mass_view(const MassModel& model, double threshold,
                   const std::vector<std::string>& texts = {});

}  // namespace kvatlas::viewer
