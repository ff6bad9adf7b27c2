// SPDX-License-Identifier: Apache-2.0
#include <QString>
#include <algorithm>
#include <cmath>

#include "base/json_text.hpp"
#include "base/markup.hpp"
#include "base/str.hpp"
#include "base/table.hpp"
#include "viewer/draw/report_parts_impl.hpp"

namespace kvatlas::viewer {

namespace {

std::string table_head(const Table& table) {
  std::string out = "<thead><tr>";
  for (const auto& column : table.columns) {
    const std::string shown = shown_title(column), exact = exact_title(column);
    out += str("<th scope=\"col\"",
               shown == exact ? "" : str(" data-exact=\"", html_text(exact), "\""), ">",
               html_text(shown), "</th>");
  }
  return out + "</tr></thead>\n";
}

/// The exact number behind a cell, if it does not stand there.
std::string exact_of(const Table::Cell& cell, const std::string& shown) {
  const std::string exact = cell.is_text ? "" : exact_text(cell.number);
  return exact == shown ? "" : exact;
}

std::string table_cell(const Table::Cell& cell, const ColumnText& column) {
  const std::string shown = column.of(cell), exact = exact_of(cell, shown);
  return str("<td", cell.is_text ? "" : " class=\"number\"",
             exact.empty() ? "" : str(" title=\"", exact, "\""), ">", html_text(shown), "</td>");
}

std::vector<ColumnText> column_texts(const Table& table) {
  std::vector<ColumnText> columns;
  for (std::size_t i = 0; i < table.columns.size(); ++i) columns.emplace_back(table, i);
  return columns;
}

}  // namespace

std::string html_text(const std::string& text) {
  return QString::fromStdString(markup_text(text)).toStdString();
}

std::string element(const char* name, const std::string& text) {
  return str("<", name, ">", html_text(text), "</", name, ">\n");
}

std::string data_element(const std::string& attributes, const nlohmann::json& data) {
  std::string out = str("<script type=\"application/json\" ", attributes, ">");
  for (const char c : json_text(data, -1, true)) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out + "</script>\n";
}

nlohmann::json table_data(const Table& table) {
  const auto columns = column_texts(table);
  nlohmann::json out = nlohmann::json::array();
  for (std::size_t r = 0; r < std::min(table.rows.size(), kMostRows); ++r) {
    auto& row = out.emplace_back(nlohmann::json::array());
    for (std::size_t c = 0; c < std::min(columns.size(), table.rows[r].size()); ++c) {
      const std::string shown = columns[c].of(table.rows[r][c]);
      row.push_back({shown, exact_of(table.rows[r][c], shown)});
    }
  }
  return out;
}

std::string html_table(const Table& table, const std::string& caption,
                       const std::string& attributes) {
  const auto columns = column_texts(table);
  std::string out = str("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"",
                        html_text(caption), "\">\n<table", attributes.empty() ? "" : " ",
                        attributes, ">\n", table_head(table), "<tbody>\n");
  const std::size_t rows = std::min(table.rows.size(), kMostRows);
  for (std::size_t r = 0; r < rows; ++r) {
    out += "<tr>";
    for (std::size_t c = 0; c < std::min(columns.size(), table.rows[r].size()); ++c)
      out += table_cell(table.rows[r][c], columns[c]);
    out += "</tr>\n";
  }
  out += "</tbody></table></div>\n";
  if (rows < table.rows.size())
    out += str("<p class=\"faint\">The first ", rows, " of ", table.rows.size(),
               " rows: 'kvatlas render' writes all to a .csv file.</p>\n");
  return out;
}

}  // namespace kvatlas::viewer
