// SPDX-License-Identifier: Apache-2.0
// What the chart models share: layers as an axis, heads of a KV head, all samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

/// At least 1, whatever the header says.
std::int64_t heads_per_kv_head(const profile::Header& header);
/// 0 to layers - 1, room for a column at both ends.
Axis layer_axis(std::int64_t layers);
std::vector<std::size_t> all_samples(const profile::Reader& profile);

}  // namespace kvatlas::viewer
