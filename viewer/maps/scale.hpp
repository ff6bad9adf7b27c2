// SPDX-License-Identifier: Apache-2.0
// From a map's values to the indices of a palette (viewer/maps/colour_maps.hpp), and the legend's
// ticks.
//
//   const auto sample = sample_visible(tiles);
//   const Scale scale(ScaleKind::log, robust_range(sample, ScaleKind::log), sample);
//   quantise(cells, scale, {}, indices);
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "viewer/maps/cells.hpp"

namespace kvatlas::viewer {

enum class ScaleKind : std::uint8_t { linear, log, square_root, rank };

/// The values that get the first and the last index. On a log scale smaller values than `low` are
/// drawn as `low`.
struct Range {
  double low = 0, high = 1;
  bool operator==(const Range&) const = default;
};

/// Between the two nearest of ascending numbers, of which there is at least one: the least at share
/// 0, the greatest at share 1.
template <class T>
double quantile(std::span<const T> ascending, double share) {
  const double place = share * static_cast<double>(ascending.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const auto above = std::min(below + 1, ascending.size() - 1);
  return std::lerp(static_cast<double>(ascending[below]), static_cast<double>(ascending[above]),
                   place - static_cast<double>(below));
}

/// The finite values that can be seen, ascending. If there are more than `most`, evenly spaced ones
/// are taken, always the same ones for the same cells.
std::vector<float> sample_visible(std::span<const Cells> visible, std::int64_t most = 65536);

/// From the 1st to the 99th percentile of an ascending sample; on a log scale of its positive
/// values. Never empty: values that are all one get a range around or below it.
Range robust_range(std::span<const float> sample, ScaleKind kind);
/// The same for differences: it reaches equally far below and above 0.
Range symmetric_range(std::span<const float> sample);

class Scale {
 public:
  /// Error(usage) for a range that is empty or not finite, or on a log scale not positive, on a
  /// square-root scale negative. A rank scale goes by `sample`, ascending and not empty, alone.
  Scale(ScaleKind kind, Range range, std::vector<float> sample = {});

  ScaleKind kind() const { return kind_; }
  Range range() const { return range_; }
  /// The place of a value on the scale, from 0 to 1.
  double position(double value) const;
  /// The index of a value: kZeroIndex for 0, kMissingIndex for NaN.
  std::uint8_t index(float value) const;
  /// The value at a position, for the legend.
  double value_at(double position) const;

 private:
  double transformed(double value) const;

  ScaleKind kind_;
  Range range_;
  std::vector<float> sample_;
  double low_ = 0, inverse_span_ = 1;
};

/// Raises maxima[row] to the greatest value seen in that row; the first element is for the map's
/// row `first_row`.
void raise_row_maxima(const Cells& cells, std::span<float> maxima);

/// Writes the index of every cell. With `row_maxima`, one for each row, every row is first divided
/// by its own maximum; the range is then a part of 1.
void quantise(const Cells& cells, const Scale& scale, std::span<const float> row_maxima,
              std::span<std::uint8_t> indices);

struct Tick {
  double value = 0, position = 0;  // the position is from 0 to 1 along the legend
  std::string label;
};
/// At most `most` ticks for the legend (`most` is 2 or more), ascending: round numbers, decades on
/// a log scale, quarters on a rank scale.
std::vector<Tick> ticks(const Scale& scale, int most);

}  // namespace kvatlas::viewer
