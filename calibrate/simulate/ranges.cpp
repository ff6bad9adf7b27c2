// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "calibrate/simulate/ranges_impl.hpp"

namespace kvatlas::calibrate {

void add_range(Ranges& ranges, const Range& range) {
  if (range.length() > 0) ranges.push_back(range);
}

Ranges intersect(const Ranges& a, const Ranges& b) {
  Ranges both;
  for (const auto& x : a)
    for (const auto& y : b) add_range(both, {std::max(x.begin, y.begin), std::min(x.end, y.end)});
  return both;
}

Ranges joined(Ranges ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  Ranges out;
  for (const auto& range : ranges) {
    if (!out.empty() && range.begin <= out.back().end)
      out.back().end = std::max(out.back().end, range.end);
    else
      out.push_back(range);
  }
  return out;
}

Ranges shifted(Ranges ranges, std::int64_t by) {
  for (auto& range : ranges) {
    range.begin += by;
    range.end += by;
  }
  return ranges;
}

std::int64_t length_of(const Ranges& ranges) {
  std::int64_t sum = 0;
  for (const auto& range : ranges) sum += range.length();
  return sum;
}

}  // namespace kvatlas::calibrate
