// SPDX-License-Identifier: Apache-2.0
// The specification of row_compare.hpp, in float64.
#include <cmath>

#include "kernels/read.hpp"
#include "kernels/row_compare_impl.hpp"

namespace kvatlas::kernels::reference {
namespace {

struct LogSoftmax {
  Eigen::ArrayXd logs;  // NaN throughout if the row has no distribution
  Eigen::Index top = 0;
};

LogSoftmax log_softmax(const Eigen::ArrayXd& logits) {
  LogSoftmax out;
  if (logits.size() == 0) return out;
  const double most = logits.maxCoeff(&out.top);
  out.logs =
      logits - (most + std::log(exact_exp(logits - most).sum()));  // NaN if most is not finite
  return out;
}

}  // namespace

void row_compare(const RowCompare& io) {
  const Eigen::MatrixXd full = read_matrix(io.full), other = read_matrix(io.other);
  for (std::int64_t row = 0; row < io.full.sizes[0]; ++row) {
    const LogSoftmax p = log_softmax(full.row(row)), q = log_softmax(other.row(row));
    const Eigen::ArrayXd shares = exact_exp(p.logs);
    // Shares that float32 cannot hold count as 0.
    double kl = (shares < 0x1p-126).select(0.0, shares * (p.logs - q.logs)).sum();
    double distance = (shares - exact_exp(q.logs)).abs().sum() / 2;
    if (shares.size() == 0) kl = distance = std::nan("");
    if (io.kl.data) io.kl(row) = static_cast<float>(kl < 0 ? 0 : kl);
    if (io.total_variation.data) io.total_variation(row) = static_cast<float>(distance);
    if (io.same_top1.data) io.same_top1(row) = p.top == q.top && !std::isnan(distance) ? 1 : 0;
  }
}

}  // namespace kvatlas::kernels::reference
