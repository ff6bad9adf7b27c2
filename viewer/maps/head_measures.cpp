// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/head_measures.hpp"

#include <algorithm>
#include <cmath>

#include "analyzer/profile/profile.hpp"
#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/half.hpp"

namespace kvatlas::viewer {

HeadMeasures measure_head(std::span<const float> means, std::int64_t side,
                          std::int64_t block_tokens) {
  if (side < 1 || means.size() != static_cast<std::size_t>(side * side) || block_tokens < 1)
    fail(ErrorCode::internal, "measures of ", means.size(), " blocks, ", side, " a side");
  HeadMeasures found;
  found.roots.assign(means.size(), 0.0F);
  std::int64_t rows = 0;
  for (std::int64_t row = 1; row < side; ++row) {
    const auto values =
        means.subspan(static_cast<std::size_t>(row * side), static_cast<std::size_t>(row + 1));
    double sum = 0;
    for (const float value : values)
      if (value > 0) sum += static_cast<double>(value);
    if (!(sum > 0)) continue;
    ++rows;
    for (std::size_t column = 0; column < values.size(); ++column) {
      const double share = values[column] > 0 ? static_cast<double>(values[column]) / sum : 0;
      found.roots[static_cast<std::size_t>(row * side) + column] =
          static_cast<float>(std::sqrt(share));
      if (share <= 0) continue;
      found.entropy -= share * std::log2(share);
      if (column == 0) found.sink += share;
      if (static_cast<std::int64_t>(column) >= row - 1) found.recency += share;
    }
  }
  if (rows == 0) return found;
  found.sink /= static_cast<double>(rows);
  found.recency /= static_cast<double>(rows);
  found.entropy /= static_cast<double>(rows);
  return found;
}

double likeness(const HeadMeasures& a, const HeadMeasures& b) {
  double sum = 0, of_a = 0, of_b = 0;
  const auto side_of = [](const HeadMeasures& measures) {
    return static_cast<std::size_t>(std::lround(std::sqrt(double(measures.roots.size()))));
  };
  const std::size_t side = side_of(a), other = side_of(b);
  for (std::size_t row = 0; row < side; ++row)
    for (std::size_t column = 0; column <= row && other > 0; ++column) {
      const double x = static_cast<double>(a.roots[row * side + column]);
      const double y =
          static_cast<double>(b.roots[row * other / side * other + column * other / side]);
      sum += x * y;
      of_a += x * x;
      of_b += y * y;
    }
  return of_a > 0 && of_b > 0 ? sum / std::sqrt(of_a * of_b) : 0;
}

std::vector<HeadMeasures> read_head_measures(const profile::Reader& profile, std::size_t sample,
                                             int level, std::int64_t block_tokens) {
  const auto& header = profile.header();
  const std::string name = profile::map_name(false, level);
  std::vector<HeadMeasures> measures;
  for (std::int64_t layer = 0; layer < header.n_layers; ++layer) {
    const auto stored = profile.array(sample, name, {layer});
    if (stored.shape.size() != 3 || stored.shape[0] != header.n_heads ||
        stored.shape[1] != stored.shape[2])
      fail(ErrorCode::unreadable, quoted(name), " has sizes ", list_str(stored.shape),
           " a layer, expected [", header.n_heads, ", side, side]");
    const std::int64_t side = stored.shape[1], cells = side * side;
    std::vector<float> means(static_cast<std::size_t>(cells));
    for (std::int64_t head = 0; head < header.n_heads; ++head) {
      for (std::int64_t i = 0; i < cells; ++i) {
        const auto at = static_cast<std::size_t>(head * cells + i);
        const float log2 = stored.type == profile::Type::f16
                               ? f16_to_float(stored.values<std::uint16_t>()[at])
                           : stored.type == profile::Type::f32 ? stored.values<float>()[at]
                                                               : std::nanf("");
        means[i] = std::exp2(log2);
      }
      measures.push_back(measure_head(means, side, block_tokens));
    }
  }
  return measures;
}

}  // namespace kvatlas::viewer
