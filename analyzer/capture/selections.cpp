// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <ATen/ops/empty.h>

#include "analyzer/capture/kernel_inputs-inl.hpp"
#include "analyzer/capture/selections-inl.hpp"
#include "kernels/window_scores.hpp"

namespace kvatlas::capture {

at::Tensor window_scores(const at::Tensor& rows, const profile::WindowKind& kind,
                         std::int64_t groups) {
  const at::Tensor last = rows.narrow(1, rows.size(1) - kind.window, kind.window);
  at::Tensor scores = at::empty({groups, rows.size(2) - kind.window}, rows.options());
  kernels::window_scores({AnyView<3>(view_of<const float, 3>(last)), kind.window, kind.kernel,
                          kind.pooling, view_of<float, 2>(scores)});
  return scores;
}

void cut_by_lag(const AnyView<3>& keys, const AnyView<3>& values, std::int64_t n_tokens,
                std::int64_t sink, kernels::LagVariant variant, const std::vector<LagCut>& cuts) {
  if (cuts.empty()) return;
  kernels::LagScores io;
  io.keys = keys;
  io.values = values;
  io.keys.sizes[1] = io.values.sizes[1] = n_tokens;
  io.sink = sink;
  io.variant = variant;
  std::vector<at::Tensor> scores;
  const auto number_of = [&](std::int64_t lag) {
    return std::find(io.lags.begin(), io.lags.end(), lag) - io.lags.begin();
  };
  for (const LagCut& cut : cuts) {
    if (number_of(cut.lag) < std::ssize(io.lags)) continue;
    io.lags.push_back(cut.lag);
    scores.push_back(
        at::empty({keys.sizes[0], cut.lag * kernels::lag_cut_partitions(n_tokens, sink, cut.lag)},
                  float_on(keys)));
    io.scores.push_back(view_of<float, 2>(scores.back()));
  }
  kernels::lag_scores(io);
  for (const LagCut& cut : cuts)
    kernels::lag_kept({view_of<const float, 2>(scores[number_of(cut.lag)]), n_tokens, sink, cut.lag,
                       cut.keep, view_of<std::int64_t, 2>(cut.positions)});
}

}  // namespace kvatlas::capture
