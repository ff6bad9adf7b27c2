// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/head_measures.hpp"

#include <cmath>

#include "analyzer/profile/checked_arrays.hpp"
#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"

namespace kvatlas::viewer {

HeadMeasures measure_head(std::span<const float> means, std::int64_t side) {
  if (side < 1 || std::ssize(means) != side * side)
    fail(ErrorCode::internal, "measures of ", means.size(), " blocks, ", side, " a side");
  const Eigen::Map<const Eigen::ArrayXXf> stored(means.data(), side, side);
  HeadMeasures found;
  found.roots.setZero(side, side);
  double rows = 0;
  for (std::int64_t row = 1; row < side; ++row) {
    const Eigen::ArrayXd values = stored.col(row).head(row + 1).cast<double>();
    const Eigen::ArrayXd positive = (values > 0).select(values, 0.0);
    const double sum = positive.sum();
    if (!(sum > 0)) continue;
    ++rows;
    const Eigen::ArrayXd shares = positive / sum;
    found.roots.col(row).head(row + 1) = shares.sqrt().cast<float>();
    found.sink += shares(0);
    found.recency += shares.tail(2).sum();
    found.entropy -= (shares > 0).select(shares * shares.log(), 0.0).sum() / std::log(2.0);
  }
  if (rows == 0) return found;
  for (double* measure : {&found.sink, &found.recency, &found.entropy}) *measure /= rows;
  return found;
}

double likeness(const HeadMeasures& a, const HeadMeasures& b) {
  const Eigen::Index side = a.roots.rows(), other = b.roots.rows();
  if (other == 0) return 0;
  const Eigen::ArrayX<Eigen::Index> at =
      Eigen::ArrayX<Eigen::Index>::LinSpaced(side, 0, side - 1) * other / side;
  const Eigen::MatrixXd x = a.roots.matrix().cast<double>();
  const Eigen::MatrixXd y = b.roots(at, at).matrix().cast<double>().triangularView<Eigen::Upper>();
  const double scale = std::sqrt(x.squaredNorm() * y.squaredNorm());
  return scale > 0 ? x.cwiseProduct(y).sum() / scale : 0;
}

std::vector<HeadMeasures> read_head_measures(const profile::Reader& profile, std::size_t sample,
                                             int level) {
  const auto& header = profile.header();
  const std::string name = profile::map_name(false, level);
  std::vector<HeadMeasures> measures;
  for (std::int64_t layer = 0; layer < header.n_layers; ++layer) {
    const auto stored = profile.array(sample, name, {layer});
    if (stored.shape.size() != 3 || stored.shape[0] != header.n_heads ||
        stored.shape[1] != stored.shape[2])
      fail(ErrorCode::unreadable, quoted(name), " has sizes ", list_str(stored.shape),
           " a layer, expected [", header.n_heads, ", side, side]");
    const auto means = profile::shares_of(stored, name);
    const auto side = stored.shape[1], cells = side * side;
    for (std::int64_t head = 0; head < header.n_heads; ++head)
      measures.push_back(
          measure_head({means.data() + head * cells, static_cast<std::size_t>(cells)}, side));
  }
  return measures;
}

}  // namespace kvatlas::viewer
