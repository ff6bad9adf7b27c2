// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/table_text.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/bytes.hpp"

namespace kvatlas::viewer {
namespace {

std::string general_text(double value, int digits) {
  char text[32];
  const auto end =
      std::to_chars(text, text + sizeof text, value, std::chars_format::general, digits);
  return {text, end.ptr};
}

constexpr double kMostBytes = 0x1p62;
constexpr double kLeastFixed = 1e-4;  // a column of smaller numbers has powers of ten

}  // namespace

std::string exact_text(double value) { return std::isnan(value) ? "" : general_text(value, 9); }

std::string exact_title(const Table::Column& column) {
  return column.unit.empty() ? column.title : column.title + " (" + column.unit + ")";
}

std::string shown_title(const Table::Column& column) {
  return column.unit == "share" || column.unit == "bytes" ? column.title : exact_title(column);
}

ColumnText::ColumnText(const Table& table, std::size_t column) {
  const std::string& unit = table.columns[column].unit;
  if (unit == "share" || unit == "bytes") {
    form_ = unit == "share" ? Form::share : Form::bytes;
    return;
  }
  double most = 0;
  bool whole = true;
  for (const auto& row : table.rows) {
    if (column >= row.size() || row[column].is_text || !std::isfinite(row[column].number)) continue;
    const double value = row[column].number;
    most = std::max(most, std::abs(value));
    whole = whole && value == std::floor(value);
  }
  if (whole && most < 1e15) return;
  digits_ = std::max(0, 3 - static_cast<int>(std::ceil(std::log10(most))));
  if (most < kLeastFixed || most >= 1e15) form_ = Form::scientific;
}

std::string ColumnText::of(const Table::Cell& cell) const {
  if (cell.is_text) return cell.text;
  const double value = cell.number;
  if (!std::isfinite(value)) return fixed_text(value, 0);
  switch (form_) {
    case Form::share:
      return percent_text(value);
    case Form::bytes:
      return std::abs(value) < kMostBytes ? bytes_str(std::llround(value)) : general_text(value, 3);
    case Form::scientific:
      return general_text(value, 3);
    case Form::fixed:
      break;
  }
  const bool looks_like_zero = value != 0 && std::abs(value) < 0.5 * std::pow(10.0, -digits_);
  return looks_like_zero ? general_text(value, 2) : fixed_text(value, digits_);
}

}  // namespace kvatlas::viewer
