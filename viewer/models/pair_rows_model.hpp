// SPDX-License-Identifier: Apache-2.0
// Why two layers count as alike: their attention over the keys, laid over each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "analyzer/profile/profile.hpp"
#include "viewer/models/blocks_model.hpp"
#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

/// The sample wanted if its rows are stored, else the first of `positions` whose are. Error(usage)
/// if none are, saying how to store them.
std::size_t sample_with_rows(const profile::Reader& profile, std::size_t wanted,
                             const std::vector<std::size_t>& positions);

/// The query head whose similarity of two layers counts: of a KV head the least alike one.
std::int64_t deciding_head(const BlocksModel& model, bool per_query_head, std::int64_t group,
                           std::int64_t layer_a, std::int64_t layer_b);

/// Attention of one query head in two layers, mean over the last rows that the profile holds.
Chart pair_rows_chart(const profile::Reader& profile, std::size_t position, std::int64_t head,
                      std::int64_t layer_a, std::int64_t layer_b);

}  // namespace kvatlas::viewer
