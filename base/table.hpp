// SPDX-License-Identifier: Apache-2.0
// Tables of numbers and words, and how they are written: for people, as CSV and as JSON.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace kvatlas {

struct Table {
  struct Column {
    Column(std::convertible_to<std::string> auto name, std::string in_unit = {},
           bool has_sentences = false)
        : title(std::move(name)), unit(std::move(in_unit)), sentences(has_sentences) {}
    std::string title, unit;
    bool sentences = false;  // its cells are long texts
    bool operator==(const Column&) const = default;
  };
  /// A number, or text. (As a std::variant it trips GCC 12's -Wfree-nonheap-object.)
  struct Cell {
    Cell(double value) : number(value) {}
    Cell(std::integral auto value) : number(static_cast<double>(value)) {}
    Cell(std::string value) : text(std::move(value)), is_text(true) {}
    Cell(const char* value) : text(value), is_text(true) {}
    double number = std::numeric_limits<double>::quiet_NaN();
    std::string text = {};
    bool is_text = false;
    /// Missing numbers are equal to each other.
    bool operator==(const Cell& other) const {
      return is_text == other.is_text && text == other.text &&
             (number == other.number || (number != number && other.number != other.number));
    }
  };
  using Row = std::vector<Cell>;
  std::string title = {};
  std::vector<Column> columns = {};
  std::vector<Row> rows = {};
};

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

/// The table in columns as wide as they need, with its title above. What is wider than 100 columns
/// is broken: titles, sentences and cells go on below themselves, and the last columns stand below
/// the first ones.
std::string table_text(const Table& table);
/// Its columns and rows as CSV (RFC 4180, but lines end with "\n"). Numbers have up to nine
/// significant digits; NaN is an empty field, infinity "inf".
std::string table_csv(const Table& table);
/// One field of CSV, in quotes where it needs them.
std::string csv_text(const std::string& text);
/// {"title", "columns": titles, "rows": lists of cells}.
nlohmann::json table_json(const Table& table);

}  // namespace kvatlas
