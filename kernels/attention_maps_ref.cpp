// SPDX-License-Identifier: Apache-2.0
// The specification of attention_maps.hpp, in float64, one row at a time.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention_maps_impl.hpp"
#include "kernels/read.hpp"

namespace kvatlas::kernels::reference {
namespace {

/// The scores of row i of head h for its keys first_key(i)..i.
std::vector<double> score_row(const CausalScores& scores, std::int64_t h, std::int64_t i) {
  const std::int64_t group = scores.queries.sizes[0] / scores.keys.sizes[0];
  std::vector<double> row;
  for (std::int64_t j = first_key(scores, i); j <= i; ++j) {
    double dot = 0;
    for (std::int64_t c = 0; c < scores.queries.sizes[2]; ++c)
      dot += read(scores.queries, h, i, c) * read(scores.keys, h / group, j, c);
    dot *= static_cast<double>(scores.scale);
    const double cap = scores.soft_cap;
    row.push_back(cap > 0 ? cap * std::tanh(dot / cap) : dot);
  }
  return row;
}

void pool_head(const MapLevel& from, std::int64_t block, const MapLevel& to, std::int64_t n,
               std::int64_t h) {
  const std::int64_t fine = map_blocks(n, block), coarse = map_blocks(n, 2 * block);
  const auto cells = [&](std::int64_t b) {
    return static_cast<double>(std::min(block, n - b * block));
  };
  for (std::int64_t bi = 0; bi < coarse; ++bi) {
    for (std::int64_t bj = 0; bj < coarse; ++bj) {
      double sum = 0, total = 0, most = 0;
      for (std::int64_t fi = 2 * bi; fi < std::min(fine, 2 * bi + 2); ++fi) {
        for (std::int64_t fj = 2 * bj; fj < std::min(fine, 2 * bj + 2); ++fj) {
          const double area = cells(fi) * cells(fj);
          total += area;
          if (to.mean.data) sum += area * static_cast<double>(from.mean(h, fi, fj));
          if (to.max.data) most = max_or_nan(most, static_cast<double>(from.max(h, fi, fj)));
        }
      }
      if (to.mean.data) to.mean(h, bi, bj) = static_cast<float>(sum / total);
      if (to.max.data) to.max(h, bi, bj) = static_cast<float>(most);
    }
  }
}

}  // namespace

void pool_levels(const AttentionMaps& io, std::int64_t h) {
  for (std::size_t l = 1; l < io.levels.size(); ++l)
    pool_head(io.levels[l - 1], io.block << (l - 1), io.levels[l], io.lse.sizes[1], h);
}

void row_logsumexp(const RowLogSumExp& io) {
  for (std::int64_t h = 0; h < io.lse.sizes[0]; ++h) {
    for (std::int64_t i = 0; i < io.lse.sizes[1]; ++i) {
      const auto row = score_row(io.scores, h, i);
      const double top = *std::max_element(row.begin(), row.end());
      double sum = 0;
      for (const double score : row) sum += score == top ? 1 : std::exp(score - top);
      const bool unusable = std::any_of(row.begin(), row.end(), [](double score) {
        return std::isnan(score) || score == std::numeric_limits<double>::infinity();
      });
      io.lse(h, i) = unusable ? std::nanf("") : static_cast<float>(top + std::log(sum));
    }
  }
}

void attention_maps(const AttentionMaps& io) {
  const std::int64_t n = io.lse.sizes[1], blocks = map_blocks(n, io.block);
  for (std::int64_t h = 0; h < io.lse.sizes[0]; ++h) {
    std::vector<double> columns(n, 0.0), sums(blocks * blocks, 0.0), maxima(blocks * blocks, 0.0);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto row = score_row(io.scores, h, i);
      for (std::size_t s = 0; s < row.size(); ++s) {
        const std::int64_t j = first_key(io.scores, i) + static_cast<std::int64_t>(s);
        double weight = std::exp(row[s] - static_cast<double>(io.lse(h, i)));
        if (!std::isfinite(weight) || !std::isfinite(io.lse(h, i))) weight = std::nan("");
        const std::int64_t block = i / io.block * blocks + j / io.block;
        columns[j] += weight;
        sums[block] += weight;
        maxima[block] = max_or_nan(maxima[block], weight);
      }
    }
    if (io.column_sums.data)
      for (std::int64_t j = 0; j < n; ++j) io.column_sums(h, j) = static_cast<float>(columns[j]);
    if (io.levels.empty()) continue;
    for (std::int64_t bi = 0; bi < blocks; ++bi) {
      for (std::int64_t bj = 0; bj < blocks; ++bj) {
        const double cells = static_cast<double>(std::min(io.block, n - bi * io.block)) *
                             static_cast<double>(std::min(io.block, n - bj * io.block));
        if (io.levels[0].mean.data)
          io.levels[0].mean(h, bi, bj) = static_cast<float>(sums[bi * blocks + bj] / cells);
        if (io.levels[0].max.data)
          io.levels[0].max(h, bi, bj) = static_cast<float>(maxima[bi * blocks + bj]);
      }
    }
    pool_levels(io, h);
  }
}

}  // namespace kvatlas::kernels::reference
