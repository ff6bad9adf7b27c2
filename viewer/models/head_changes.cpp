// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/head_changes.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.hpp"
#include "viewer/maps/tiles.hpp"

namespace kvatlas::viewer {

MapMeasures read_map_measures(const profile::Reader& profile,
                              const std::vector<std::size_t>& positions) {
  const auto tiles = profile_tiles(
      std::shared_ptr<const profile::Reader>(std::shared_ptr<const void>(), &profile));
  for (const std::size_t sample : positions) {
    const auto levels = tiles->levels(sample);
    if (levels.empty()) continue;
    return {profile.header().n_layers, profile.header().n_heads, profile.samples()[sample].id,
            read_head_measures(profile, sample, thumbnail_level(levels))};
  }
  fail(ErrorCode::usage, "no maps were stored: 'kvatlas profile --capture maps' takes them");
}

std::vector<HeadChange> head_changes(const MapMeasures& first, const MapMeasures& second,
                                     std::size_t most) {
  std::vector<HeadChange> changes;
  for (std::int64_t layer = 0; layer < first.layers; ++layer) {
    const double depth = first.layers > 1 ? double(layer) / double(first.layers - 1) : 0;
    const std::int64_t there = std::llround(depth * double(second.layers - 1));
    for (std::int64_t head = 0; head < std::min(first.heads, second.heads); ++head) {
      const auto& a = first.by_head.at(static_cast<std::size_t>(layer * first.heads + head));
      const auto& b = second.by_head.at(static_cast<std::size_t>(there * second.heads + head));
      changes.push_back({layer, head, std::max(0.0, 1 - likeness(a, b)), a.sink, b.sink});
    }
  }
  std::stable_sort(changes.begin(), changes.end(), [](const HeadChange& a, const HeadChange& b) {
    return a.difference > b.difference;
  });
  if (changes.size() > most) changes.resize(most);
  return changes;
}

}  // namespace kvatlas::viewer
