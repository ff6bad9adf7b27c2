// SPDX-License-Identifier: Apache-2.0
// What the models of charts share: the axis of layers, the heads of a KV head, the list of all
// samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

/// Query heads that share one KV head: at least 1, even if the header contradicts itself.
std::int64_t heads_per_kv_head(const profile::Header& header);
/// An axis from 0 to layers - 1 with room for a whole column at both ends.
Axis layer_axis(std::int64_t layers);
std::vector<std::size_t> all_samples(const profile::Reader& profile);

}  // namespace kvatlas::viewer
