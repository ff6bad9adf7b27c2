// SPDX-License-Identifier: Apache-2.0
// DuoAttention's pattern is a table, with a row for each layer and a column for each KV head, and
// two sizes.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/str.hpp"
#include "export/import_impl.hpp"

namespace kvatlas::importing {
namespace {

using calibrate::LazyHeads;
using nlohmann::json;

double number_of(std::string_view word, std::size_t line) {
  double number = 0;
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (problem != std::errc() || end != word.data() + word.size() || !std::isfinite(number))
    fail(ErrorCode::unreadable, "line ", line, ": found ", quoted(word, 40),
         ", expected numbers with tabs between");
  return std::clamp(number, 0.0, 1.0);  // as DuoAttention does
}

HeadNumbers table_of(std::string_view text) {
  HeadNumbers rows;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const auto end = std::min(text.find('\n'), text.size());
    std::string_view words = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!words.empty() && words.back() == '\r') words.remove_suffix(1);
    if (words.empty() || words.front() == '#') continue;  // as numpy.loadtxt does
    auto& row = rows.emplace_back();
    while (true) {
      const auto tab = std::min(words.find('\t'), words.size());
      row.push_back(number_of(words.substr(0, tab), line));
      if (tab == words.size()) break;
      words.remove_prefix(tab + 1);
    }
    if (row.size() != rows.front().size())
      fail(ErrorCode::unreadable, "line ", line, ": found ", row.size(), " numbers, expected ",
           rows.front().size(), " as in the first row");
    check_shape(rows.size(), row.size());
  }
  check_shape(rows.size(), rows.empty() ? 0 : rows.front().size());
  return rows;
}

std::int64_t size_of(const json& config, const char* key, std::int64_t least) {
  const auto at = config.find(key);
  if (at == config.end()) fail(ErrorCode::unreadable, "config.json: '", key, "' is missing");
  return tokens_of(*at, least, str("config.json: '", key, "'"));
}

LazyHeads lazy_of(const HeadNumbers& table, const ImportRequest& request) {
  if (request.threshold) return below(table, *request.threshold);
  const std::size_t heads = table.size() * table.front().size();
  if (request.sparsity) {
    if (*request.sparsity >= 1) return lowest(table, heads);
    // DuoAttention's threshold is the quantile at this share, between two of the sorted numbers.
    const double rank = std::max(*request.sparsity, 0.0) * static_cast<double>(heads - 1);
    return lowest(table, static_cast<std::size_t>(std::ceil(rank)));
  }
  for (const auto& row : table)
    for (const double number : row)
      if (number != 0 && number != 1)
        fail(ErrorCode::usage,
             "the table has numbers between 0 and 1: give --sparsity, the share "
             "of KV heads that become lazy, or --threshold");
  return below(table, 0.5);
}

}  // namespace

calibrate::Document import_duo_attention(std::string_view table, std::string_view config,
                                         const ImportRequest& request) {
  const auto numbers = table_of(table);
  const auto sizes = parse_json(config, kDeepestPattern);
  if (!sizes.is_object())
    fail(ErrorCode::unreadable, "config.json: expected an object with sink_size and recent_size");
  const calibrate::Proximity keep{size_of(sizes, "sink_size", 0), size_of(sizes, "recent_size", 1)};
  const auto known = completed_model(request, static_cast<std::int64_t>(numbers.size()), 0,
                                     static_cast<std::int64_t>(numbers.front().size()));
  return document_of(request, known, lazy_of(numbers, request), keep);
}

}  // namespace kvatlas::importing
