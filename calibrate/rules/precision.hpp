// SPDX-License-Identifier: Apache-2.0
// Which layers' keys and values are stored in how many bits, by what each of them costs
// (docs/precision.md).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "calibrate/policy/kv_format.hpp"

namespace kvatlas::calibrate {

/// What is stored in one format as a whole, such as the keys of a layer.
struct StoredItem {
  double values = 0;  // numbers that it holds; only their share of those of all items matters
  /// [format]: the KL divergence where this item alone has the format, everything else 16 bits;
  /// infinite where it cannot have it.
  std::vector<double> cost = {};
  std::vector<double> bytes = {};  // [format]: of a number
};

/// The formats of all items, and what they take and cost.
struct Allocation {
  std::vector<KvFormat> formats;  // [item]
  double size = 1;                // bytes, as a share of those at 16 bits
  double cost = 0;                // the sum of the items' costs
};

/// From all items at 16 bits to the fewest bytes, one item's format a step: always the step that
/// costs least for the bytes that it saves. Every allocation on the way costs least of all those
/// of its size, as far as costs add up. `formats` are those that `cost` is of.
std::vector<Allocation> allocations(std::span<const StoredItem> items,
                                    std::span<const KvFormat> formats);

/// The same where all items that are not at 16 bits must have one format: of each format's, those
/// that cost less than all others of at most their size.
std::vector<Allocation> allocations_in_one_format(std::span<const StoredItem> items,
                                                  std::span<const KvFormat> formats);

/// The same for items of layers, keys and values in turn, where the keys, and the values, of the
/// first layers must have one format, those of the last ones one, and those between them one.
std::vector<Allocation> allocations_by_ends(std::span<const StoredItem> items,
                                            std::span<const KvFormat> formats);

/// The first allocation that takes at most so much; the last one if none does.
const Allocation& first_within(std::span<const Allocation> all, double size);

/// "keys: 3 layers in q8_0, 1 in int4; values: 4 layers in int4", of [layer].
std::string formats_text(std::span<const KvFormats> formats);

}  // namespace kvatlas::calibrate
