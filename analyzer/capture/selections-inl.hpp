// SPDX-License-Identifier: Apache-2.0
// What selections go by in one layer: for profiles, and for policies that are carried out.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "analyzer/profile/statistics.hpp"
#include "base/view.hpp"
#include "kernels/lag_scores.hpp"

namespace kvatlas::capture {

/// The scores of the tokens before the window by its attention rows, the last of [heads, rows,
/// tokens]: [groups, positions]. They are the means of the rows, pooled over neighbouring positions
/// (an average counts the zeros beyond both ends), then the means of each group of heads.
at::Tensor window_scores(const at::Tensor& rows, const profile::WindowKind& kind,
                         std::int64_t groups);

/// The logarithms of shares as they are stored: as they are, or as codes (base/share_code.hpp).
/// Shares below `least` count as none.
at::Tensor stored_log2(const at::Tensor& shares, at::ScalarType type, float least);

/// One of LagKV's cuts, and where the positions that stay go: [n_kv_heads, lag_length].
struct LagCut {
  std::int64_t lag = 0, keep = 0;
  at::Tensor positions;
};
/// The cuts of the first n_tokens tokens of a layer, by scores from one read of keys and values.
void cut_by_lag(const AnyView<3>& keys, const AnyView<3>& values, std::int64_t n_tokens,
                std::int64_t sink, kernels::LagVariant variant, const std::vector<LagCut>& cuts);

}  // namespace kvatlas::capture
