// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "kernels/last_rows_impl.hpp"
#include "kernels/read.hpp"

namespace kvatlas::kernels::reference {

void last_rows(const LastRows& io) {
  const auto [n_heads, q_rows, head_dim] = io.queries.sizes;
  const std::int64_t n_tokens = io.keys.sizes[1];
  const std::int64_t group = io.keys.sizes[0] == 0 ? 1 : n_heads / io.keys.sizes[0];
  std::vector<double> weights(static_cast<std::size_t>(n_tokens));
  for (std::int64_t head = 0; head < n_heads; ++head)
    for (std::int64_t row = 0; row < q_rows; ++row) {
      const std::int64_t i = n_tokens - q_rows + row;
      const std::int64_t first = io.window > 0 ? std::max<std::int64_t>(0, i - io.window + 1) : 0;
      double highest = -std::numeric_limits<double>::infinity();
      for (std::int64_t j = first; j <= i; ++j) {
        double score = 0;
        for (std::int64_t k = 0; k < head_dim; ++k)
          score += read(io.queries, head, row, k) * read(io.keys, head / group, j, k);
        score *= static_cast<double>(io.scale);
        const auto cap = static_cast<double>(io.soft_cap);
        if (cap > 0) score = cap * std::tanh(score / cap);
        weights[j] = score;
        highest = std::max(highest, score);
      }
      double total = 0;
      for (std::int64_t j = first; j <= i; ++j) {
        double& weight = weights[j];
        weight = std::exp(weight - highest);
        total += weight;
      }
      const auto seen = [&](std::int64_t j) { return j >= first && j <= i; };
      if (io.probs.data)
        for (std::int64_t j = 0; j < n_tokens; ++j)
          io.probs(head, row, j) = seen(j) ? static_cast<float>(weights[j] / total) : 0;
      for (std::size_t entry = 0; entry < io.grid.size(); ++entry) {
        const auto [initial, recent] = io.grid[entry];
        double proximal = 0, distant = 0;
        for (std::int64_t j = first; j <= i; ++j)
          (j < initial || i - recent < j ? proximal : distant) += weights[j];
        write_proximity(io, static_cast<std::int64_t>(entry), head, row, proximal, distant,
                        highest);
      }
    }
}

}  // namespace kvatlas::kernels::reference
