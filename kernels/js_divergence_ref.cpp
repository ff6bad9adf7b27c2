// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/js_divergence_impl.hpp"
#include "kernels/read.hpp"

namespace kvatlas::kernels::reference {
namespace {

double minus_p_log_p(double p) { return p == 0 ? 0 : -p * std::log2(p); }

double clamp_unit(double value) { return value < 0 ? 0 : value > 1 ? 1 : value; }  // NaN stays

}  // namespace

void js_divergence(const JsDivergence& io) {
  const auto [n_layers, n_heads, q_rows, n_tokens] = io.probs.sizes;
  for (std::int64_t head = 0; head < n_heads; ++head)
    for (std::int64_t a = 0; a < n_layers; ++a)
      for (std::int64_t b = 0; b < n_layers; ++b) {
        double sum = 0;
        for (std::int64_t row = 0; row < q_rows; ++row) {
          double divergence = 0;
          for (std::int64_t j = 0; j < n_tokens; ++j) {
            const double p = read(io.probs, a, head, row, j), q = read(io.probs, b, head, row, j);
            divergence += minus_p_log_p((p + q) / 2) - (minus_p_log_p(p) + minus_p_log_p(q)) / 2;
          }
          divergence = clamp_unit(divergence);
          if (io.per_row.data) io.per_row(head, row, a, b) = static_cast<float>(divergence);
          sum += divergence;
        }
        io.mean(head, a, b) = static_cast<float>(sum / static_cast<double>(q_rows));
      }
}

}  // namespace kvatlas::kernels::reference
