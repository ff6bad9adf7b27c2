// SPDX-License-Identifier: Apache-2.0
#include "base/table.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

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

namespace {

constexpr std::size_t kLineWidth = 100;  // of a terminal, in which a table is to fit
constexpr std::size_t kGap = 2;          // before each column

/// Pieces of a text between which a line may end: words, and the settings of a policy within one.
struct Piece {
  std::string text;
  bool after_blank = false;
};
std::vector<Piece> pieces_of(const std::string& text) {
  std::vector<Piece> pieces;
  for (const auto& word : wrapped_lines(text, 0)) {
    std::size_t begin = 0;
    while (begin < word.size()) {
      const std::size_t end = std::min(word.find_first_of(",:=", begin), word.size() - 1) + 1;
      pieces.push_back({word.substr(begin, end - begin), begin == 0});
      begin = end;
    }
  }
  return pieces;
}

std::vector<std::string> lines_of(const std::string& text, std::size_t width) {
  if (text.size() <= width) return {text};
  std::vector<std::string> lines;
  for (const auto& [piece, after_blank] : pieces_of(text))
    if (!lines.empty() && lines.back().size() + (after_blank ? 1 : 0) + piece.size() <= width)
      lines.back() += (after_blank ? " " : "") + piece;
    else
      lines.push_back(piece);
  return lines;
}

/// A table's titles and cells as texts, in columns that together are no wider than a line if they
/// can be so narrow.
class Columns {
 public:
  explicit Columns(const Table& table) : table_(table) {
    auto& titles = rows_.emplace_back();
    for (const auto& column : table.columns) titles.push_back(shown_title(column));
    for (const auto& row : table.rows) rows_.emplace_back().resize(row.size());
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      const ColumnText text(table, i);
      std::size_t cells = 0;
      for (std::size_t r = 0; r < table.rows.size(); ++r) {
        if (i >= table.rows[r].size()) continue;
        rows_[r + 1][i] = text.of(table.rows[r][i]);
        cells = std::max(cells, rows_[r + 1][i].size());
      }
      widths_.push_back(std::max(cells, rows_[0][i].size()));
      with_title_below_.push_back(std::max(cells, least(rows_[0][i])));
      std::size_t of_all = 0;
      for (const auto& row : rows_)
        if (i < row.size()) of_all = std::max(of_all, least(row[i]));
      least_.push_back(of_all);
    }
    fit();
  }

  /// All rows. Columns that do not stand beside the others follow below them, beside the first.
  std::string text() const {
    if (widths_.empty()) return "";
    std::string all;
    std::size_t begin = 1;
    do {
      std::vector<std::size_t> shown = {0};
      std::size_t width = kGap + widths_[0];
      for (; begin < widths_.size(); ++begin) {
        if (shown.size() > 1 && width + kGap + widths_[begin] > kLineWidth) break;
        width += kGap + widths_[begin];
        shown.push_back(begin);
      }
      for (const auto& row : rows_) all += row_lines(row, shown);
    } while (begin < widths_.size());
    return all;
  }

 private:
  static std::size_t least(const std::string& text) {
    std::size_t longest = 0;
    for (const auto& piece : pieces_of(text)) longest = std::max(longest, piece.text.size());
    return longest;
  }

  std::size_t total() const {
    return std::accumulate(widths_.begin(), widths_.end(), kGap * widths_.size());
  }
  void narrow(std::size_t column) {
    if (total() <= kLineWidth) return;
    const std::size_t excess = total() - kLineWidth;
    widths_[column] -= std::min(excess, widths_[column] - least_[column]);
  }
  /// Takes from the widest column what it can spare, until the columns fit.
  void narrow_to(const std::vector<std::size_t>& least) {
    while (total() > kLineWidth) {
      std::size_t widest = widths_.size();
      for (std::size_t i = 0; i < widths_.size(); ++i)
        if (widths_[i] > least[i] && (widest == widths_.size() || widths_[i] > widths_[widest]))
          widest = i;
      if (widest == widths_.size()) return;
      --widths_[widest];
    }
  }
  /// Titles give way first, then sentences, then names, and then whatever is widest.
  void fit() {
    narrow_to(with_title_below_);
    for (std::size_t i = widths_.size(); i-- > 0;)
      if (i == 0 || table_.columns[i].sentences) narrow(i);
    narrow_to(least_);
  }

  std::string row_lines(const std::vector<std::string>& row,
                        const std::vector<std::size_t>& shown) const {
    std::vector<std::vector<std::string>> cells;
    std::size_t height = 1;
    for (const std::size_t i : shown) {
      cells.push_back(lines_of(i < row.size() ? row[i] : "", widths_[i]));
      height = std::max(height, cells.back().size());
    }
    std::string all;
    for (std::size_t l = 0; l < height; ++l) {
      std::string line;
      for (std::size_t c = 0; c < shown.size(); ++c) {
        const std::string cell = l < cells[c].size() ? cells[c][l] : "";
        const std::size_t width = widths_[shown[c]];
        const std::string space(width - std::min(width, cell.size()), ' ');
        const bool left = shown[c] == 0 || table_.columns[shown[c]].sentences;
        line += std::string(kGap, ' ') + (left ? cell + space : space + cell);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      all += line + '\n';
    }
    return all;
  }

  const Table& table_;
  std::vector<std::vector<std::string>> rows_;  // the first one holds the titles
  std::vector<std::size_t> widths_;
  std::vector<std::size_t> with_title_below_;  // the widths if titles may be broken
  std::vector<std::size_t> least_;             // the widths if all may be broken
};

}  // namespace

std::string table_text(const Table& table) {
  const auto title = wrapped_lines(table.title, kLineWidth);
  return join(title, "\n") + '\n' + Columns(table).text();
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
