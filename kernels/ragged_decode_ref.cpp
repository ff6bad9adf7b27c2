// SPDX-License-Identifier: Apache-2.0
// The specification of ragged_decode.hpp, in float64.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/ragged_decode_impl.hpp"
#include "kernels/read.hpp"

namespace kvatlas::kernels::reference {

void ragged_decode(const RaggedDecode& io) {
  const std::int64_t heads = io.queries.sizes[1], group = heads / io.starts.sizes[1];
  for (std::int64_t c = 0; c < io.queries.sizes[0]; ++c) {
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t start = io.starts(c, h / group);
      std::vector<double> scores(static_cast<std::size_t>(io.lengths(c, h / group)));
      double top = -INFINITY, sum = 0;
      for (std::size_t r = 0; r < scores.size(); ++r) {
        double dot = 0;
        for (std::int64_t d = 0; d < io.queries.sizes[2]; ++d)
          dot += read(io.queries, c, h, d) * read(io.keys, start + static_cast<std::int64_t>(r), d);
        dot *= static_cast<double>(io.scale);
        const double cap = io.soft_cap;
        scores[r] = cap > 0 ? cap * std::tanh(dot / cap) : dot;
        top = std::max(top, scores[r]);
      }
      std::vector<double> mean(static_cast<std::size_t>(io.values.sizes[1]), 0.0);
      for (std::size_t r = 0; r < scores.size(); ++r) {
        const double weight = scores[r] == -INFINITY ? 0 : std::exp(scores[r] - top);
        sum += weight;
        for (std::size_t d = 0; d < mean.size(); ++d)
          mean[d] += weight * read(io.values, start + static_cast<std::int64_t>(r), d);
      }
      for (std::size_t d = 0; d < mean.size(); ++d)
        io.out(c, h, d) = static_cast<float>(sum == 0 ? 0 : mean[d] / sum);
      if (io.lse.data)
        io.lse(c, h) = static_cast<float>(sum == 0 ? -INFINITY : top + std::log(sum));
    }
  }
}

}  // namespace kvatlas::kernels::reference
