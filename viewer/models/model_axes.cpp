// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/model_axes.hpp"

#include <algorithm>
#include <numeric>

namespace kvatlas::viewer {

std::int64_t heads_per_kv_head(const profile::Header& header) {
  return header.n_kv_heads > 0 ? std::max<std::int64_t>(1, header.n_heads / header.n_kv_heads) : 1;
}

Axis layer_axis(std::int64_t layers) {
  return {"layer", "", {}, {{-0.5, static_cast<double>(layers) - 0.5}}, false, AxisKind::layers};
}

std::vector<std::size_t> all_samples(const profile::Reader& profile) {
  std::vector<std::size_t> positions(profile.samples().size());
  std::iota(positions.begin(), positions.end(), std::size_t{0});
  return positions;
}

}  // namespace kvatlas::viewer
