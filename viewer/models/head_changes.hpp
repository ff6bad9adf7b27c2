// SPDX-License-Identifier: Apache-2.0
// The heads whose maps differ most between two profiles.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "viewer/maps/head_measures.hpp"

namespace kvatlas::viewer {

/// The measures of all heads in the first of some samples that has maps.
struct MapMeasures {
  std::int64_t layers = 0, heads = 0;
  std::string sample;                 // its id
  std::vector<HeadMeasures> by_head;  // [layer * heads + head]
};
/// Error(usage) if none of the samples has maps.
MapMeasures read_map_measures(const profile::Reader& profile,
                              const std::vector<std::size_t>& positions);

struct HeadChange {
  std::int64_t layer = 0, head = 0;  // in the first profile
  double difference = 0;             // 0 if the rows are the same, 1 if they share no key
  double first_sink = 0, second_sink = 0;
};
/// At most `most` changes, the largest first. Layers of different models are paired by relative
/// depth, heads by their number; heads without a counterpart are left out.
std::vector<HeadChange> head_changes(const MapMeasures& first, const MapMeasures& second,
                                     std::size_t most = 30);

}  // namespace kvatlas::viewer
