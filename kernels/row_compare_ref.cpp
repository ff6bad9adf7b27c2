// SPDX-License-Identifier: Apache-2.0
// The specification of row_compare.hpp, in float64.
#include <cmath>
#include <vector>

#include "kernels/read.hpp"
#include "kernels/row_compare_impl.hpp"

namespace kvatlas::kernels::reference {
namespace {

struct LogSoftmax {
  std::vector<double> logs;  // NaN throughout if the row has no distribution
  std::int64_t top = 0;
};

LogSoftmax log_softmax(const AnyView<2>& logits, std::int64_t row) {
  LogSoftmax out;
  double most = -INFINITY, sum = 0;
  for (std::int64_t t = 0; t < logits.sizes[1]; ++t) {
    out.logs.push_back(read(logits, row, t));
    if (out.logs.back() > most) {
      most = out.logs.back();
      out.top = t;
    }
  }
  for (const double logit : out.logs) sum += std::exp(logit - most);  // NaN if most is not finite
  for (double& logit : out.logs) logit -= most + std::log(sum);
  return out;
}

}  // namespace

void row_compare(const RowCompare& io) {
  for (std::int64_t row = 0; row < io.full.sizes[0]; ++row) {
    const LogSoftmax p = log_softmax(io.full, row), q = log_softmax(io.other, row);
    double kl = 0, distance = 0;
    for (std::size_t t = 0; t < p.logs.size(); ++t) {
      const double share = std::exp(p.logs[t]);
      // Shares that float32 cannot hold count as 0.
      if (!(share < 0x1p-126)) kl += share * (p.logs[t] - q.logs[t]);
      distance += std::abs(share - std::exp(q.logs[t])) / 2;
    }
    if (p.logs.empty()) kl = distance = std::nan("");
    if (io.kl.data) io.kl(row) = static_cast<float>(kl < 0 ? 0 : kl);
    if (io.total_variation.data) io.total_variation(row) = static_cast<float>(distance);
    if (io.same_top1.data) io.same_top1(row) = p.top == q.top && !std::isnan(distance) ? 1 : 0;
  }
}

}  // namespace kvatlas::kernels::reference
