// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/scale.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "viewer/maps/colour_maps.hpp"

namespace kvatlas::viewer {

namespace {

constexpr double kLowShare = 0.01, kHighShare = 0.99;

}  // namespace

std::vector<float> sample_visible(std::span<const Cells> visible, std::int64_t most) {
  std::int64_t total = 0;
  for (const Cells& cells : visible) total += cells.rows * cells.columns;
  // An odd step does not stay in one column of maps whose sides are powers of two.
  const std::int64_t step = std::max<std::int64_t>(1, (total + most - 1) / most) | 1;
  std::vector<float> sample;
  std::int64_t next = 0;  // counted from the start of the present cells
  for (const Cells& cells : visible) {
    const std::int64_t count = cells.rows * cells.columns;
    for (; next < count; next += step) {
      const std::int64_t row = next / cells.columns, column = next % cells.columns;
      const float value = cells.at(row, column);
      if (!cells.is_masked(row, column) && std::isfinite(value)) sample.push_back(value);
    }
    next -= count;
  }
  std::sort(sample.begin(), sample.end());
  return sample;
}

Range robust_range(std::span<const float> sample, ScaleKind kind) {
  if (kind == ScaleKind::log)
    sample = sample.subspan(static_cast<std::size_t>(
        std::upper_bound(sample.begin(), sample.end(), 0.0F) - sample.begin()));
  if (sample.empty()) return kind == ScaleKind::log ? Range{1e-6, 1} : Range{0, 1};
  Range range{quantile(sample, kLowShare), quantile(sample, kHighShare)};
  if (kind == ScaleKind::square_root) range.low = std::max(range.low, 0.0);
  if (range.low < range.high) return range;
  const double only = range.low;
  if (kind == ScaleKind::log) return {only / 10, only};
  if (only > 0) return {0, only};
  return only < 0 && kind != ScaleKind::square_root ? Range{only, 0} : Range{0, 1};
}

Range symmetric_range(std::span<const float> sample) {
  if (sample.empty()) return {-1, 1};
  const double most =
      std::max(std::abs(quantile(sample, kLowShare)), std::abs(quantile(sample, kHighShare)));
  return most > 0 ? Range{-most, most} : Range{-1, 1};
}

Scale::Scale(ScaleKind kind, Range range, std::vector<float> sample)
    : kind_(kind), range_(range), sample_(std::move(sample)) {
  if (kind == ScaleKind::rank) {
    if (sample_.empty()) fail(ErrorCode::usage, "a scale by rank needs values to rank by");
    range_ = {sample_.front(), sample_.back()};
    return;
  }
  sample_.clear();
  if (!std::isfinite(range.low) || !std::isfinite(range.high) || range.low >= range.high)
    fail(ErrorCode::usage, "a scale from ", range.low, " to ", range.high, " has no width");
  if (kind == ScaleKind::log && range.low <= 0)
    fail(ErrorCode::usage, "a log scale's floor is ", range.low, ", it must be above 0");
  if (kind == ScaleKind::square_root && range.low < 0)
    fail(ErrorCode::usage, "a square-root scale begins at ", range.low, ", it must not be below 0");
  low_ = transformed(range.low);
  inverse_span_ = 1 / (transformed(range.high) - low_);
}

double Scale::transformed(double value) const {
  switch (kind_) {
    case ScaleKind::log:
      return std::log(value);
    case ScaleKind::square_root:
      return std::sqrt(value);
    default:
      return value;
  }
}

double Scale::position(double value) const {
  if (kind_ == ScaleKind::rank) {
    // Equal values take the middle of their ranks.
    const auto [first, last] =
        std::equal_range(sample_.begin(), sample_.end(), static_cast<float>(value));
    const auto twice = static_cast<double>((first - sample_.begin()) + (last - sample_.begin()));
    return twice / (2 * static_cast<double>(sample_.size()));
  }
  if (value <= range_.low) return 0;
  if (value >= range_.high) return 1;
  return std::clamp((transformed(value) - low_) * inverse_span_, 0.0, 1.0);
}

std::uint8_t Scale::index(float value) const {
  if (std::isnan(value)) return kMissingIndex;
  if (value == 0) return kZeroIndex;
  const double step = position(value) * (kLastIndex - kFirstIndex);
  return static_cast<std::uint8_t>(kFirstIndex + std::lround(step));
}

double Scale::value_at(double position) const {
  const double p = std::clamp(position, 0.0, 1.0);
  if (kind_ == ScaleKind::rank) return quantile<float>(sample_, p);
  const double place = low_ + p / inverse_span_;
  if (kind_ == ScaleKind::log) return std::exp(place);
  return kind_ == ScaleKind::square_root ? place * place : place;
}

void raise_row_maxima(const Cells& cells, std::span<float> maxima) {
  for (std::int64_t row = 0; row < cells.rows; ++row) {
    float& greatest = maxima[row];
    for (std::int64_t column = 0; column < cells.columns; ++column) {
      const float value = cells.at(row, column);
      if (!cells.is_masked(row, column) && std::isfinite(value))
        greatest = std::max(greatest, value);
    }
  }
}

void quantise(const Cells& cells, const Scale& scale, std::span<const float> row_maxima,
              std::span<std::uint8_t> indices) {
  const auto count = static_cast<std::size_t>(cells.rows * cells.columns);
  if (indices.size() != count || cells.values.size() != count ||
      (!row_maxima.empty() && row_maxima.size() != static_cast<std::size_t>(cells.rows)))
    fail(ErrorCode::internal, "quantise: ", cells.values.size(), " values, ", indices.size(),
         " indices and ", row_maxima.size(), " rows' maxima for ", cells.rows, " x ", cells.columns,
         " cells");
  for (std::int64_t row = 0; row < cells.rows; ++row) {
    const float greatest = row_maxima.empty() ? 1.0F : row_maxima[row];
    const float factor = greatest > 0 ? 1 / greatest : 1.0F;
    for (std::int64_t column = 0; column < cells.columns; ++column) {
      std::uint8_t& index = indices[row * cells.columns + column];
      if (cells.is_masked(row, column)) {
        index = kMaskedIndex;
        continue;
      }
      index = scale.index(cells.at(row, column) * factor);
    }
  }
}

}  // namespace kvatlas::viewer
