// SPDX-License-Identifier: Apache-2.0
// Shows why two layers count as alike: their attention over the keys in one chart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "viewer/models/blocks_model.hpp"
#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

/// The wanted sample if its rows are stored, else the first of `positions` whose rows are.
/// Error(usage) if none are; it says how to store them.
std::size_t sample_with_rows(const profile::Reader& profile, std::size_t wanted,
                             const std::vector<std::size_t>& positions);

/// The query head that decides the similarity of two layers. If KV heads are grouped it is the one
/// in which the layers are least alike.
std::int64_t deciding_head(const BlocksModel& model, bool per_query_head, std::int64_t group,
                           std::int64_t layer_a, std::int64_t layer_b);

/// The attention of one query head in two layers, in the mean over the last rows that the profile
/// holds.
Chart pair_rows_chart(const profile::Reader& profile, std::size_t position, std::int64_t head,
                      std::int64_t layer_a, std::int64_t layer_b);

}  // namespace kvatlas::viewer
