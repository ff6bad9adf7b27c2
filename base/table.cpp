// SPDX-License-Identifier: Apache-2.0
#include "base/table.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/plain_text.hpp"

namespace kvatlas {
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

std::string table_text(const Table& table) {
  std::vector<std::size_t> widths;
  std::vector<std::string> titles;
  std::vector<ColumnText> texts;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    titles.push_back(shown_title(table.columns[i]));
    widths.push_back(titles.back().size());
    texts.emplace_back(table, i);
  }
  std::vector<std::vector<std::string>> lines;
  if (!titles.empty()) lines.push_back(std::move(titles));
  for (const auto& row : table.rows) {
    auto& line = lines.emplace_back();
    for (std::size_t i = 0; i < widths.size() && i < row.size(); ++i) {
      line.push_back(texts[i].of(row[i]));
      widths[i] = std::max(widths[i], line.back().size());
    }
  }
  std::string all = table.title + '\n';
  for (const auto& cells : lines) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const std::string space(widths[i] - cells[i].size(), ' ');
      line += i == 0 ? "  " + cells[i] + space : "  " + space + cells[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    all += line + '\n';
  }
  return all;
}

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos && text.rfind('#', 0) != 0) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string table_csv(const Table& table) {
  std::string out =
      join(table.columns, ",", [](const auto& column) { return csv_text(exact_title(column)); });
  out += '\n';
  for (const auto& row : table.rows)
    out += join(row, ",",
                [](const Table::Cell& cell) {
                  return cell.is_text ? csv_text(cell.text) : exact_text(cell.number);
                }) +
           '\n';
  return out;
}

nlohmann::json table_json(const Table& table) {
  nlohmann::json out = {{"title", table.title},
                        {"columns", nlohmann::json::array()},
                        {"rows", nlohmann::json::array()}};
  for (const auto& column : table.columns) out["columns"].push_back(shown_title(column));
  for (const auto& row : table.rows) {
    auto& cells = out["rows"].emplace_back(nlohmann::json::array());
    for (const auto& cell : row)
      cells.push_back(cell.is_text ? nlohmann::json(cell.text) : nlohmann::json(cell.number));
  }
  return out;
}

}  // namespace kvatlas
