// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/exec.hpp"
#include "base/view.hpp"

namespace kvatlas::kernels {

/// What a token's keys and values are scored against: the minimum and maximum of the next
/// partition, of its own, or nothing (minus the norm of its key).
enum class LagVariant : std::uint8_t { lag, local, l2 };

/// The first layer that is cut: L2 leaves the first two layers whole.
constexpr std::int64_t first_layer_cut(LagVariant variant) {
  return variant == LagVariant::l2 ? 2 : 0;
}

/// How many partitions of `lag` tokens are cut at n_tokens: all whole ones behind the sink but the
/// last (docs/lagkv.md); 0 while n_tokens < sink + 2 lag.
std::int64_t lag_cut_partitions(std::int64_t n_tokens, std::int64_t sink, std::int64_t lag);

/// The tokens kept of a partition: int(ratio * lag), for "1/6" and "0.25" exactly. Error(usage) for
/// text that is no ratio above 0 and at most 1. `lag` is at most 2^32.
std::int64_t kept_of_partition(std::string_view ratio, std::int64_t lag);

/// Tokens left when `keep` of each cut partition stay.
std::int64_t lag_length(std::int64_t n_tokens, std::int64_t sink, std::int64_t lag,
                        std::int64_t keep);

/// LagKV's token scores of one layer, for a list of partition lengths from one pass over keys and
/// values: for each, x' = (x - min) / (max - min) per channel (0 where the two are equal, or closer
/// than 2^-126), s the standard deviation of x' over the channels, softmax of s over the partition;
/// key score plus value score.
///
/// Relative error at most 2e-6 * (1 + the largest |x'| of the partition). A NaN or infinity in a
/// partition, or in the one it is scored against, makes all scores of the partition NaN (under l2
/// its own token's NaN or -inf), and so may a max - min or an x' beyond 2^60; norms under l2 are
/// those of float32 squares, so 0 below 2^-63 or so. Zero rows are rows like others. Cost: the two
/// arrays read once from memory, and six operations a value and lag on what is then in the cache,
/// twelve for tokens whose mean x' is further from 1/2 than about twice their deviation. Safe to
/// call from several threads.
struct LagScores {
  AnyView<3> keys;    // in  [n_kv_heads, n_tokens, head_dim], after RoPE; head_dim at least 2
  AnyView<3> values;  // in  [n_kv_heads, n_tokens, value_dim]; not read for l2
  std::int64_t sink = 16;
  LagVariant variant = LagVariant::lag;
  std::vector<std::int64_t> lags;      // in  each at least 1
  std::vector<View<float, 2>> scores;  // out, one a lag: [n_kv_heads, lag_cut_partitions * lag]
};
void lag_scores(const LagScores& io, const Exec& exec = {});

/// The positions that stay, ascending: the sink, the `keep` best of each cut partition (ties: the
/// earlier token), and everything behind. Exact; NaN ranks below everything. Safe to call from
/// several threads.
struct LagKept {
  View<const float, 2> scores;  // in  [n_kv_heads, lag_cut_partitions * lag]
  std::int64_t n_tokens = 0, sink = 16, lag = 128, keep = 0;  // 0 <= keep <= lag
  View<std::int64_t, 2> positions;                            // out [n_kv_heads, lag_length]
};
void lag_kept(const LagKept& io, const Exec& exec = {});

}  // namespace kvatlas::kernels
