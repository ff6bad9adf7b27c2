// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/lag_scores_impl.hpp"
#include "kernels/read.hpp"

namespace kvatlas::kernels::reference {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// The softmax over tokens [begin, begin + lag) of the deviation of their channels, normalised by
/// the minima and maxima of the tokens from `against` on.
std::vector<double> partition_scores(const AnyView<3>& x, std::int64_t head, std::int64_t begin,
                                     std::int64_t against, std::int64_t lag) {
  const std::int64_t dim = x.sizes[2];
  std::vector<double> deviation(static_cast<std::size_t>(lag));
  bool finite = true;
  std::vector<double> low(static_cast<std::size_t>(dim)), range(static_cast<std::size_t>(dim));
  for (std::int64_t c = 0; c < dim; ++c) {
    double least = read(x, head, against, c), most = least;
    for (std::int64_t t = 0; t < lag; ++t) {
      const double other = read(x, head, against + t, c);
      least = std::min(least, other);
      most = std::max(most, other);
      finite = finite && std::isfinite(other) && std::isfinite(read(x, head, begin + t, c));
    }
    low[c] = least;
    range[c] = most - least;
  }
  for (std::int64_t t = 0; t < lag; ++t) {
    std::vector<double> normal;
    for (std::size_t c = 0; c < low.size(); ++c)
      normal.push_back(range[c] < 0x1p-126
                           ? 0
                           : (read(x, head, begin + t, static_cast<std::int64_t>(c)) - low[c]) /
                                 range[c]);
    const double mean =
        std::accumulate(normal.begin(), normal.end(), 0.0) / static_cast<double>(dim);
    double squares = 0;
    for (double value : normal) squares += (value - mean) * (value - mean);
    deviation[t] = std::sqrt(squares / static_cast<double>(dim - 1));
  }
  const double top = *std::max_element(deviation.begin(), deviation.end());
  double sum = 0;
  for (double& s : deviation) sum += s = std::exp(s - top);
  for (double& s : deviation) s = finite ? s / sum : kNan;
  return deviation;
}

double norm(const AnyView<3>& x, std::int64_t head, std::int64_t token) {
  double squares = 0;
  for (std::int64_t c = 0; c < x.sizes[2]; ++c)
    squares += read(x, head, token, c) * read(x, head, token, c);
  return std::sqrt(squares);
}

}  // namespace

void lag_scores(const LagScores& io) {
  for (std::size_t i = 0; i < io.lags.size(); ++i) {
    const std::int64_t lag = io.lags[i], cut = lag_cut_partitions(io.keys.sizes[1], io.sink, lag);
    for (std::int64_t head = 0; head < io.keys.sizes[0]; ++head)
      for (std::int64_t p = 0; p < cut; ++p) {
        const std::int64_t begin = io.sink + p * lag;
        if (io.variant == LagVariant::l2) {
          for (std::int64_t t = 0; t < lag; ++t)
            io.scores[i](head, p * lag + t) = static_cast<float>(-norm(io.keys, head, begin + t));
          continue;
        }
        const std::int64_t against = io.variant == LagVariant::lag ? begin + lag : begin;
        const auto key = partition_scores(io.keys, head, begin, against, lag);
        const auto value = partition_scores(io.values, head, begin, against, lag);
        for (std::size_t t = 0; t < key.size(); ++t)
          io.scores[i](head, p * lag + static_cast<std::int64_t>(t)) =
              static_cast<float>(key[t] + value[t]);
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
