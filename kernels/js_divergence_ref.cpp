// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "kernels/js_divergence_impl.hpp"
#include "kernels/read.hpp"

namespace kvatlas::kernels::reference {
namespace {

/// The base-2 entropy of each row; 0 log 0 is 0.
Eigen::ArrayXd entropies(const Eigen::MatrixXd& rows) {
  return rows.unaryExpr([](double p) { return p == 0 ? 0 : -p * std::log2(p); }).rowwise().sum();
}

double clamp_unit(double value) { return value < 0 ? 0 : value > 1 ? 1 : value; }  // NaN stays

}  // namespace

void js_divergence(const JsDivergence& io) {
  const auto [n_layers, n_heads, q_rows, n_tokens] = io.probs.sizes;
  for (std::int64_t head = 0; head < n_heads; ++head) {
    std::vector<Eigen::MatrixXd> rows;  // of each layer
    for (std::int64_t layer = 0; layer < n_layers; ++layer)
      rows.push_back(read_matrix(io.probs, layer, head));
    for (std::int64_t a = 0; a < n_layers; ++a)
      for (std::int64_t b = 0; b < n_layers; ++b) {
        const auto &p = rows[a], &q = rows[b];
        const Eigen::ArrayXd divergence =
            (entropies((p + q) / 2) - (entropies(p) + entropies(q)) / 2).unaryExpr(&clamp_unit);
        if (io.per_row.data)
          for (std::int64_t row = 0; row < q_rows; ++row)
            io.per_row(head, row, a, b) = static_cast<float>(divergence[row]);
        io.mean(head, a, b) = static_cast<float>(divergence.sum() / static_cast<double>(q_rows));
      }
  }
}

}  // namespace kvatlas::kernels::reference
