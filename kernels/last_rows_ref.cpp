// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/last_rows_impl.hpp"
#include "kernels/read.hpp"

namespace kvatlas::kernels::reference {

void last_rows(const LastRows& io) {
  const auto [n_heads, q_rows, head_dim] = io.queries.sizes;
  const std::int64_t n_tokens = io.keys.sizes[1];
  const std::int64_t group = io.keys.sizes[0] == 0 ? 1 : n_heads / io.keys.sizes[0];
  for (std::int64_t head = 0; head < n_heads; ++head) {
    const Eigen::MatrixXd queries = read_matrix(io.queries, head);
    const Eigen::MatrixXd keys = read_matrix(io.keys, head / group);
    for (std::int64_t row = 0; row < q_rows; ++row) {
      const std::int64_t i = io.token_of(row);
      const std::int64_t first = io.window.first_key(i);
      const Eigen::ArrayXd scores = attention_scores(keys.middleRows(first, i + 1 - first),
                                                     queries.row(row), io.scale, io.soft_cap);
      const double sink = io.sinks.data ? static_cast<double>(io.sinks(head)) : kNoSink;
      const double highest = std::max(scores.maxCoeff<Eigen::PropagateNumbers>(), sink);
      const Eigen::ArrayXd weights = exact_exp(scores - highest);
      const double of_sink = io.sinks.data ? std::exp(sink - highest) : 0;
      const double total = weights.sum() + of_sink;
      if (io.probs.data)
        for (std::int64_t j = 0; j < n_tokens; ++j)
          io.probs(head, row, j) =
              j >= first && j <= i ? static_cast<float>(weights[j - first] / total) : 0;
      for (std::size_t entry = 0; entry < io.grid.size(); ++entry) {
        const auto [initial, recent] = io.grid[entry];
        double proximal = of_sink, distant = 0;
        for (std::int64_t j = first; j <= i; ++j)
          (j < initial || i - recent < j ? proximal : distant) += weights[j - first];
        write_proximity(io, static_cast<std::int64_t>(entry), head, row, proximal, distant,
                        highest);
      }
    }
  }
}

}  // namespace kvatlas::kernels::reference
