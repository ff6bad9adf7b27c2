// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/model_axes.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace kvatlas::viewer {

calibrate::CacheShape cache_shape(const profile::Header& header) {
  if (header.n_layers < 1 || header.n_kv_heads < 1 || header.n_heads < 1 ||
      header.n_heads % header.n_kv_heads != 0)
    fail(ErrorCode::unreadable, "the profile's model has ", header.n_layers, " layers, ",
         header.n_heads, " heads and ", header.n_kv_heads, " KV heads");
  return {header.n_layers, header.n_kv_heads, header.head_dim};
}

std::int64_t heads_per_kv_head(const profile::Header& header) {
  return header.n_kv_heads > 0 ? std::max<std::int64_t>(1, header.n_heads / header.n_kv_heads) : 1;
}

Axis layer_axis(std::int64_t layers) {
  return {"layer", "", {}, {{-0.5, static_cast<double>(layers) - 0.5}}, false, AxisKind::layers};
}

void require_captured(const profile::Reader& profile, const char* array, const char* part) {
  if (!profile.has(array))
    fail(ErrorCode::usage, "the profile lacks ", array, ", which 'kvatlas profile --capture ", part,
         "' takes");
}

std::vector<std::size_t> all_samples(const profile::Reader& profile) {
  std::vector<std::size_t> positions(profile.samples().size());
  std::iota(positions.begin(), positions.end(), std::size_t{0});
  return positions;
}

}  // namespace kvatlas::viewer
