// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/lag_scores_impl.hpp"
#include "kernels/read.hpp"

namespace kvatlas::kernels::reference {
namespace {

/// The softmax over tokens [begin, begin + lag) of the deviation of their channels, normalised by
/// the minima and maxima of the tokens from `against` on.
Eigen::ArrayXd partition_scores(const Eigen::ArrayXXd& x, std::int64_t begin, std::int64_t against,
                                std::int64_t lag) {
  const auto own = x.middleRows(begin, lag), other = x.middleRows(against, lag);
  if (!own.allFinite() || !other.allFinite())
    return Eigen::ArrayXd::Constant(lag, std::numeric_limits<double>::quiet_NaN());
  const Eigen::Array<double, 1, Eigen::Dynamic> low = other.colwise().minCoeff();
  const Eigen::Array<double, 1, Eigen::Dynamic> range = other.colwise().maxCoeff() - low;
  Eigen::ArrayXXd normal = (own.rowwise() - low).rowwise() / range;
  for (Eigen::Index c = 0; c < range.size(); ++c)
    if (range[c] < 0x1p-126) normal.col(c) = 0;
  const Eigen::ArrayXd means = normal.rowwise().mean();
  const Eigen::ArrayXd deviations =
      ((normal.colwise() - means).square().rowwise().sum() / static_cast<double>(x.cols() - 1))
          .sqrt();
  const Eigen::ArrayXd weights = exact_exp(deviations - deviations.maxCoeff());
  return weights / weights.sum();
}

}  // namespace

void lag_scores(const LagScores& io) {
  for (std::size_t i = 0; i < io.lags.size(); ++i) {
    const std::int64_t lag = io.lags[i], cut = lag_cut_partitions(io.keys.sizes[1], io.sink, lag);
    for (std::int64_t head = 0; head < io.keys.sizes[0]; ++head) {
      const Eigen::ArrayXXd keys = read_matrix(io.keys, head);
      const Eigen::ArrayXXd values =
          io.variant == LagVariant::l2 ? Eigen::MatrixXd() : read_matrix(io.values, head);
      for (std::int64_t p = 0; p < cut; ++p) {
        const std::int64_t begin = io.sink + p * lag;
        const std::int64_t against = io.variant == LagVariant::lag ? begin + lag : begin;
        const Eigen::ArrayXd scores =
            io.variant == LagVariant::l2
                ? Eigen::ArrayXd(-keys.middleRows(begin, lag).matrix().rowwise().norm().array())
                : Eigen::ArrayXd(partition_scores(keys, begin, against, lag) +
                                 partition_scores(values, begin, against, lag));
        for (std::int64_t t = 0; t < lag; ++t)
          io.scores[i](head, p * lag + t) = static_cast<float>(scores[t]);
      }
    }
  }
}

void lag_kept(const LagKept& io) {
  const std::int64_t cut = lag_cut_partitions(io.n_tokens, io.sink, io.lag);
  for (std::int64_t head = 0; head < io.positions.sizes[0]; ++head) {
    std::int64_t written = 0;
    for (std::int64_t j = 0; j < std::min(io.sink, io.n_tokens); ++j)
      io.positions(head, written++) = j;
    for (std::int64_t p = 0; p < cut; ++p) {
      std::vector<std::int64_t> order(static_cast<std::size_t>(io.lag));
      std::iota(order.begin(), order.end(), p * io.lag);
      std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
        const float of_a = io.scores(head, a), of_b = io.scores(head, b);
        return std::isnan(of_b) ? !std::isnan(of_a) : of_a > of_b;
      });
      std::sort(order.begin(), order.begin() + io.keep);
      for (std::int64_t i = 0; i < io.keep; ++i) io.positions(head, written++) = io.sink + order[i];
    }
    for (std::int64_t j = io.sink + cut * io.lag; j < io.n_tokens; ++j)
      io.positions(head, written++) = j;
  }
}

}  // namespace kvatlas::kernels::reference
