// SPDX-License-Identifier: Apache-2.0
// How the numbers of tables are written for people. CSV files have the exact ones.
#pragma once

#include <cstddef>
#include <string>

#include "viewer/models/chart.hpp"

namespace kvatlas::viewer {

/// The number with up to nine significant digits, as CSV files have it; empty for NaN.
std::string exact_text(double value);
/// The title of a column with its unit, as CSV files have it: "KV kept (share)".
std::string exact_title(const Table::Column& column);
/// The title of a column for people: without a unit that its cells have, as in "76.6 %".
std::string shown_title(const Table::Column& column);

/// How the cells of one column are written: shares as "76.6 %", bytes as "17.2 MiB", whole numbers
/// in full, others with as many digits after the point as give the greatest of them three
/// significant ones ("0.766"). What would look like zero and is not has two digits of its own.
class ColumnText {
 public:
  ColumnText(const Table& table, std::size_t column);
  std::string of(const Table::Cell& cell) const;

 private:
  enum class Form : std::uint8_t { share, bytes, fixed, scientific };
  Form form_ = Form::fixed;
  int digits_ = 0;
};

}  // namespace kvatlas::viewer
