// SPDX-License-Identifier: Apache-2.0
// MiniCache's merge of two rows, in float64, from unit vectors and their angle.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace kvatlas::testing_support {

using Row = std::vector<double>;

/// The two rows with one direction, t of the way from the lower one's to the upper one's, and
/// their own lengths.
inline std::pair<Row, Row> slerp(const Row& lower, const Row& upper, double t) {
  const auto dot = [](const Row& a, const Row& b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
  };
  const double low = std::sqrt(dot(lower, lower)), up = std::sqrt(dot(upper, upper));
  double of_lower = 1, of_upper = 1;
  if (low > 0 && up > 0) {
    const double cosine = std::clamp(dot(lower, upper) / (low * up), -1.0, 1.0),
                 angle = std::acos(cosine);
    of_lower = std::sin((1 - t) * angle) / std::sin(angle);
    of_upper = std::sin(t * angle) / std::sin(angle);
    if (std::sin(angle) < 1e-3) {
      of_lower = cosine > 0 ? 1 - t : t >= 0.5 ? 0 : 1;
      of_upper = 1 - of_lower;
    }
  }
  std::pair<Row, Row> merged{lower, upper};
  for (std::size_t i = 0; i < lower.size(); ++i) {
    const double direction =
        (low > 0 ? of_lower * lower[i] / low : 0) + (up > 0 ? of_upper * upper[i] / up : 0);
    merged.first[i] = low * direction;
    merged.second[i] = up * direction;
  }
  return merged;
}

}  // namespace kvatlas::testing_support
