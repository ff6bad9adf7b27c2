// SPDX-License-Identifier: Apache-2.0
// The specification of attention_maps.hpp, in float64, one row at a time.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention_maps_impl.hpp"
#include "kernels/read.hpp"

namespace kvatlas::kernels::reference {
namespace {

/// The queries of one head and the keys of its group.
struct Head {
  const CausalScores& scores;
  Eigen::MatrixXd queries, keys;

  Head(const CausalScores& all, std::int64_t h)
      : scores(all),
        queries(read_matrix(all.queries, h)),
        keys(read_matrix(all.keys, h / (all.queries.sizes[0] / all.keys.sizes[0]))) {}

  /// The scores of row i for its keys first_key(i)..i.
  Eigen::ArrayXd row(std::int64_t i) const {
    const std::int64_t first = first_key(scores, i);
    return attention_scores(keys.middleRows(first, i + 1 - first), queries.row(i), scores.scale,
                            scores.soft_cap);
  }
};

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
    const Head head(io.scores, h);
    for (std::int64_t i = 0; i < io.lse.sizes[1]; ++i) {
      const Eigen::ArrayXd row = head.row(i);
      const double top = row.maxCoeff<Eigen::PropagateNaN>();
      const bool unusable = std::isnan(top) || top == std::numeric_limits<double>::infinity();
      const double sum = (row == top).select(1.0, exact_exp(row - top)).sum();
      io.lse(h, i) = unusable ? std::nanf("") : static_cast<float>(top + std::log(sum));
    }
  }
}

void attention_maps(const AttentionMaps& io) {
  const std::int64_t n = io.lse.sizes[1], blocks = map_blocks(n, io.block);
  for (std::int64_t h = 0; h < io.lse.sizes[0]; ++h) {
    const Head head(io.scores, h);
    Eigen::ArrayXd columns = Eigen::ArrayXd::Zero(n);
    Eigen::ArrayXXd sums = Eigen::ArrayXXd::Zero(blocks, blocks), maxima = sums;
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t first = first_key(io.scores, i);
      const double lse = io.lse(h, i);
      const Eigen::ArrayXd weights = exact_exp(head.row(i) - lse);
      for (std::int64_t j = first; j <= i; ++j) {
        const bool usable = std::isfinite(weights[j - first]) && std::isfinite(lse);
        const double weight = usable ? weights[j - first] : std::nan("");
        double& most = maxima(i / io.block, j / io.block);
        columns[j] += weight;
        sums(i / io.block, j / io.block) += weight;
        most = max_or_nan(most, weight);
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
          io.levels[0].mean(h, bi, bj) = static_cast<float>(sums(bi, bj) / cells);
        if (io.levels[0].max.data) io.levels[0].max(h, bi, bj) = static_cast<float>(maxima(bi, bj));
      }
    }
    pool_levels(io, h);
  }
}

}  // namespace kvatlas::kernels::reference
