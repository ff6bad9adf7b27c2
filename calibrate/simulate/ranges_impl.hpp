// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include <c10/util/SmallVector.h>

#include "calibrate/simulate/plan.hpp"

namespace kvatlas::calibrate {

/// Ascending, and none is empty. Two take no memory of their own: every step of every continuation
/// makes some for each layer and KV head.
using Ranges = c10::SmallVector<Range, 2>;

/// Appends a range unless it is empty.
void add_range(Ranges& ranges, const Range& range);
Ranges intersect(const Ranges& a, const Ranges& b);
/// Ascending, and those that touch or overlap as one.
Ranges joined(Ranges ranges);
Ranges shifted(Ranges ranges, std::int64_t by);
std::int64_t length_of(const Ranges& ranges);

}  // namespace kvatlas::calibrate
