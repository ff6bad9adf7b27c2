// SPDX-License-Identifier: Apache-2.0
// Arrays of a profile read with the type and the sizes that their reader counts on, and the axes of
// settings looked up: for calibration and for the viewer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/profile/profile.hpp"

namespace kvatlas::profile {

/// A float array of one sample, at its leading indices, of so many axes with the sizes given; the
/// last one may have any size. Error(unreadable) for other shapes.
std::vector<float> floats_of(const Reader& profile, std::size_t position, const char* array,
                             std::initializer_list<std::int64_t> at,
                             const std::vector<std::int64_t>& leading_sizes);

/// The same for whole numbers, of which each layer has one.
std::vector<std::int64_t> layer_integers(const Reader& profile, std::size_t position,
                                         const char* array, std::initializer_list<std::int64_t> at);

/// A whole int64 array of one sample, of exactly these sizes.
std::vector<std::int64_t> integers_of(const Reader& profile, std::size_t position,
                                      const char* array, const std::vector<std::int64_t>& sizes);

/// Shares of which an array holds the log2 as float16 or float32, or the codes of
/// base/share_code.hpp. Error(unreadable) for other types.
std::vector<float> shares_of(const Array& stored, const std::string& name);

/// How many of the largest window scores lie in each layer (docs/dynamickv.md), where the
/// `window` last rows score and `budget` tokens stay: [layer]; none if not captured of the sample.
/// Error(unreadable) for counts that cannot be.
struct CountsAt {
  std::int64_t kind_row = 0, budget_row = 0;  // of the axes
  std::int64_t window = 0, budget = 0;
};
std::optional<std::vector<std::int64_t>> window_counts(const Reader& profile, std::size_t position,
                                                       const CountsAt& at);

/// The table of an axis; an empty one if the profile has none.
const AxisTable& axis_of(const Header& header, const std::string& name);
/// The row with these values.
std::optional<std::int64_t> row_of(const AxisTable& table,
                                   std::initializer_list<std::int64_t> values);

}  // namespace kvatlas::profile
