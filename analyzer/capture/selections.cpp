// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include <ATen/ops/avg_pool1d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log2.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/max_pool1d.h>
#include <ATen/ops/mean.h>

#include "analyzer/capture/kernel_inputs-inl.hpp"
#include "analyzer/capture/selections-inl.hpp"
#include "base/share_code.hpp"

namespace kvatlas::capture {

at::Tensor window_scores(const at::Tensor& rows, const profile::WindowKind& kind,
                         std::int64_t groups) {
  const std::int64_t positions = rows.size(2) - kind.window;
  if (positions == 0) return at::empty({groups, 0}, rows.options());
  const at::Tensor means = rows.narrow(1, rows.size(1) - kind.window, kind.window)
                               .narrow(2, 0, positions)
                               .mean(1)
                               .unsqueeze(1);
  const at::Tensor pooled = kind.pooling == Pooling::average
                                ? at::avg_pool1d(means, kind.kernel, 1, kind.kernel / 2)
                                : at::max_pool1d(means, kind.kernel, 1, kind.kernel / 2);
  return pooled.view({groups, -1, positions}).mean(1);
}

at::Tensor stored_log2(const at::Tensor& shares, at::ScalarType type, float least) {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  at::Tensor logs = shares.log2().masked_fill_(shares.lt(least), kNothing);
  if (type != at::kByte) return logs;
  const at::Tensor unknown = logs.isnan();
  logs.mul_(1 / share_code::kScale).add_(share_code::kOne).clamp_(0, share_code::kOne).round_();
  return logs.masked_fill_(unknown, share_code::kUnknown);
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
