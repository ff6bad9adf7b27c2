// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/region.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace kvatlas::viewer {

namespace {

/// Tokens first to last - 1 that a block stands for.
struct TokenSpan {
  std::int64_t first = 0, last = 0;
  std::int64_t count() const { return last - first; }
};

TokenSpan tokens_of(const Region& region, std::int64_t block) {
  const std::int64_t first = block * region.block_tokens;
  return {first, std::max(first, std::min(first + region.block_tokens, region.n_tokens))};
}

/// Pairs of a query and a key not behind it.
std::int64_t causal_pairs(const TokenSpan& queries, const TokenSpan& keys) {
  if (keys.last <= queries.first + 1) return queries.count() * keys.count();
  std::int64_t pairs = 0;
  for (std::int64_t query = queries.first; query < queries.last; ++query)
    pairs += std::clamp<std::int64_t>(query + 1 - keys.first, 0, keys.count());
  return pairs;
}

void require_consistent(const Region& region) {
  const Cells& cells = region.means;
  const auto count = static_cast<std::size_t>(cells.rows * cells.columns);
  if (cells.values.size() != count || (!region.maxima.empty() && region.maxima.size() != count) ||
      region.block_tokens < 1 || cells.first_row < 0 || cells.first_column < 0)
    fail(ErrorCode::internal, "a region of ", cells.rows, " x ", cells.columns, " cells has ",
         cells.values.size(), " means and ", region.maxima.size(), " maxima");
}

}  // namespace

RegionStatistics region_statistics(const Region& region) {
  require_consistent(region);
  const Cells& cells = region.means;
  RegionStatistics found;
  found.of_pairs = !region.maxima.empty();
  double mass_log2 = 0;  // sum of m log2 m over the cells' masses m
  std::int64_t queries_known = 0;
  for (std::int64_t row = 0; row < cells.rows; ++row) {
    const TokenSpan queries = tokens_of(region, cells.first_row + row);
    bool known = false;
    for (std::int64_t column = 0; column < cells.columns; ++column) {
      if (cells.is_masked(row, column)) {
        known = true;  // to be zero
        continue;
      }
      const double mean = cells.at(row, column);
      if (std::isnan(mean)) {
        ++found.missing;
        continue;
      }
      known = true;
      const TokenSpan keys = tokens_of(region, cells.first_column + column);
      // A stored mean counts the zeros above the diagonal too.
      const double mass = mean * static_cast<double>(queries.count() * keys.count());
      found.pairs += cells.causal ? causal_pairs(queries, keys) : queries.count() * keys.count();
      found.sum += mass;
      if (mass > 0) mass_log2 += mass * std::log2(mass);
      const auto cell = static_cast<std::size_t>(row * cells.columns + column);
      const double greatest = region.maxima.empty() ? mean : region.maxima[cell];
      if (std::isnan(greatest)) found.of_pairs = false;
      found.maximum = std::max(found.maximum, std::isnan(greatest) ? mean : greatest);
    }
    if (known) queries_known += queries.count();
  }
  if (found.pairs > 0) found.mean = found.sum / static_cast<double>(found.pairs);
  if (found.sum > 0) found.entropy = std::max(0.0, std::log2(found.sum) - mass_log2 / found.sum);
  if (queries_known > 0) found.share_of_rows = found.sum / static_cast<double>(queries_known);
  return found;
}

TokenRectangle blocks_touched(const TokenRectangle& part, std::int64_t block_tokens,
                              std::int64_t n_tokens) {
  const auto span = [&](std::int64_t first, std::int64_t count) {
    const std::int64_t begin =
        std::clamp<std::int64_t>(first, 0, n_tokens) / block_tokens * block_tokens;
    const std::int64_t end = (first + count + block_tokens - 1) / block_tokens * block_tokens;
    return std::pair(begin, std::clamp(end, begin, std::max(begin, n_tokens)) - begin);
  };
  const auto queries = span(part.first_query, part.queries);
  const auto keys = span(part.first_key, part.keys);
  return {queries.first, keys.first, queries.second, keys.second};
}

RegionStatistics region_statistics(std::span<const PlacedTile> means,
                                   std::span<const PlacedTile> maxima, const TokenRectangle& part,
                                   std::int64_t block_tokens, std::int64_t n_tokens) {
  const TokenRectangle whole = blocks_touched(part, block_tokens, n_tokens);
  const auto blocks = [&](std::int64_t first, std::int64_t count) {
    return std::pair(first / block_tokens, (first + count + block_tokens - 1) / block_tokens);
  };
  const auto rows = blocks(whole.first_query, whole.queries);
  const auto columns = blocks(whole.first_key, whole.keys);
  const std::int64_t width = columns.second - columns.first, height = rows.second - rows.first;
  const auto values = [&](std::span<const PlacedTile> tiles) {
    std::vector<float> found(static_cast<std::size_t>(width * height),
                             std::numeric_limits<float>::quiet_NaN());
    for (const PlacedTile& placed : tiles) {
      if (!placed.tile || placed.key != placed.slot || placed.block != block_tokens) continue;
      const Cells cells = cells_of(*placed.tile, placed.key);
      for (std::int64_t row = std::max(rows.first, cells.first_row);
           row < std::min(rows.second, cells.first_row + cells.rows); ++row)
        for (std::int64_t column = std::max(columns.first, cells.first_column);
             column < std::min(columns.second, cells.first_column + cells.columns); ++column)
          found[(row - rows.first) * width + column - columns.first] =
              cells.at(row - cells.first_row, column - cells.first_column);
    }
    return found;
  };
  const std::vector<float> of_means = values(means);
  const std::vector<float> of_maxima = maxima.empty() ? std::vector<float>() : values(maxima);
  return region_statistics(
      {{of_means, height, width, rows.first, columns.first}, of_maxima, block_tokens, n_tokens});
}

}  // namespace kvatlas::viewer
