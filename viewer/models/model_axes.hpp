// SPDX-License-Identifier: Apache-2.0
// What the chart models share: the model's shape, its layers as an axis, what a profile must have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "calibrate/rules/rules.hpp"
#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

/// Error(unreadable) for a model that has none, or KV heads that do not divide the query heads.
calibrate::CacheShape cache_shape(const profile::Header& header);
/// At least 1, whatever the header says.
std::int64_t heads_per_kv_head(const profile::Header& header);
/// 0 to layers - 1, room for a column at both ends.
Axis layer_axis(std::int64_t layers);
/// Error(usage), naming the --capture that brings it, if an array was not captured.
void require_captured(const profile::Reader& profile, const char* array, const char* part);
std::vector<std::size_t> all_samples(const profile::Reader& profile);

}  // namespace kvatlas::viewer
