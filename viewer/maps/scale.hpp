// SPDX-License-Identifier: Apache-2.0
// From a map's values to the indices of a palette (viewer/maps/colour_maps.hpp), and the legend's
// ticks.
//
//   const auto sample = sample_visible(tiles);
//   const Scale scale(ScaleKind::log, robust_range(sample, ScaleKind::log), sample);
//   const auto counts = quantise(cells, scale, {}, indices);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "viewer/maps/cells.hpp"

namespace kvatlas::viewer {

enum class ScaleKind : std::uint8_t { linear, log, square_root, rank };

/// The values that take the first and the last index. On a log scale `low` is the floor.
struct Range {
  double low = 0, high = 1;
  bool operator==(const Range&) const = default;
};

/// The finite values that can be seen, at most `most` of them and evenly chosen, the same for the
/// same cells; ascending.
std::vector<float> sample_visible(std::span<const Cells> visible, std::int64_t most = 65536);

/// From the 1st to the 99th percentile of an ascending sample; on a log scale of its positive
/// values. Never empty: values that are all one get a range around or below it.
Range robust_range(std::span<const float> sample, ScaleKind kind);
/// The same, as far below 0 as above: for differences.
Range symmetric_range(std::span<const float> sample);

class Scale {
 public:
  /// Error(usage) for a range that is empty or not finite, or on a log scale not positive, on a
  /// square-root scale negative. A rank scale goes by `sample`, ascending and not empty, alone.
  Scale(ScaleKind kind, Range range, std::vector<float> sample = {});

  ScaleKind kind() const { return kind_; }
  Range range() const { return range_; }
  /// Where on the scale a value lies, 0 to 1.
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

/// What a legend says beside its ticks.
struct QuantiseCounts {
  std::int64_t shown = 0;        // neither masked nor missing
  std::int64_t under_floor = 0;  // of them: below the range's low, zeros included
  std::int64_t missing = 0;
};

/// Raises maxima[row] (of the map's rows first_row…) to the greatest value seen in that row.
void raise_row_maxima(const Cells& cells, std::span<float> maxima);

/// Writes the index of every cell. With `row_maxima` (one for each row) each row is first divided
/// by its own: a scale per row, whose range is then a part of 1.
QuantiseCounts quantise(const Cells& cells, const Scale& scale, std::span<const float> row_maxima,
                        std::span<std::uint8_t> indices);

struct Tick {
  double value = 0, position = 0;  // position 0 to 1 along the legend
  std::string label;
};
/// At most `most` (2 or more) of the legend's ticks, ascending: round numbers, on a log scale
/// decades, on a rank scale quarters.
std::vector<Tick> ticks(const Scale& scale, int most);

}  // namespace kvatlas::viewer
