// SPDX-License-Identifier: Apache-2.0
// The specification of ragged_decode.hpp, in float64.
#include <cmath>

#include "kernels/ragged_decode_impl.hpp"
#include "kernels/read.hpp"

namespace kvatlas::kernels::reference {

void ragged_decode(const RaggedDecode& io) {
  const std::int64_t heads = io.queries.sizes[1], group = heads / io.starts.sizes[1];
  const Eigen::MatrixXd keys = read_matrix(io.keys), values = read_matrix(io.values);
  for (std::int64_t c = 0; c < io.queries.sizes[0]; ++c) {
    const Eigen::MatrixXd queries = read_matrix(io.queries, c);
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t start = io.starts(c, h / group), length = io.lengths(c, h / group);
      const Eigen::ArrayXd scores =
          attention_scores(keys.middleRows(start, length), queries.row(h), io.scale, io.soft_cap);
      const double top = length > 0 ? scores.maxCoeff<Eigen::PropagateNumbers>() : -INFINITY;
      const Eigen::ArrayXd weights = (scores == -INFINITY).select(0.0, exact_exp(scores - top));
      const double sum = weights.sum();
      const Eigen::RowVectorXd mean =
          weights.matrix().transpose() * values.middleRows(start, length) / sum;
      for (Eigen::Index d = 0; d < mean.size(); ++d)
        io.out(c, h, d) = static_cast<float>(sum == 0 ? 0 : mean[d]);
      if (io.lse.data)
        io.lse(c, h) = static_cast<float>(sum == 0 ? -INFINITY : top + std::log(sum));
    }
  }
}

}  // namespace kvatlas::kernels::reference
