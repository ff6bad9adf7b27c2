// SPDX-License-Identifier: Apache-2.0
// CPU body. A task is one head's keys or values, read from front to back in the segments that the
// partitions of all lags cut; the minima and maxima of a segment serve every lag. As soon as a
// partition's reference is complete its tokens, still in cache, are scored. Keys and values are
// added at the end.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lag_scores.cpp"
#include <cmath>
#include <limits>

#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/lag_scores_impl.hpp"
#include "kernels/load-inl.hpp"
#include "kernels/math-inl.hpp"

#ifndef KVATLAS_LAG_SHARED
#define KVATLAS_LAG_SHARED
namespace kvatlas::kernels {

// Minima and maxima of channels over some tokens; `odd` is NaN where one was not finite, else 0.
// Each padded to vectors.
struct ChannelRange {
  float *low, *high, *odd;
};

constexpr std::int64_t kTileTokens = 16;  // that are looked at together
constexpr int kScored = 4;                // of which so many are scored at a time

// One head of keys or values, and scratch of `padded` channels.
struct LagSource {
  AnyView<3> x;
  std::int64_t head, padded;
  float* tile;    // [kTileTokens, padded] tokens that have to be copied
  float* normal;  // [kScored, padded] tokens' x'
};

}  // namespace kvatlas::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {

/// Tokens as contiguous float32, `stride` apart.
struct TokenTile {
  const float* at;
  std::int64_t stride;
};

/// At most kTileTokens tokens: as they lie, or copied.
HWY_INLINE TokenTile tile_at(const LagSource& s, std::int64_t token, std::int64_t count) {
  const std::int64_t offset = s.head * s.x.strides[0] + token * s.x.strides[1];
  if (s.x.type == DType::f32 && s.x.strides[2] == 1)
    return {static_cast<const float*>(s.x.data) + offset, s.x.strides[1]};
  for (std::int64_t t = 0; t < count; ++t)
    copy_as_float(s.x.data, s.x.type, offset + t * s.x.strides[1], s.x.strides[2], s.x.sizes[2],
                  s.tile + t * s.padded);
  return {s.tile, s.padded};
}

/// The vector of a token's channels from `channel` on; past the last they are 0.
template <class D>
HWY_INLINE hn::Vec<D> channels_at(D d, const float* token, std::int64_t channel, std::int64_t dim) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (channel + lanes <= dim) return hn::LoadU(d, token + channel);
  return load_n(d, token + channel, static_cast<std::size_t>(dim - channel));
}

void ClearRange(const ChannelRange& range, std::int64_t padded) {
  const hn::ScalableTag<float> d;
  for (std::int64_t c = 0; c < padded; c += static_cast<std::int64_t>(hn::Lanes(d))) {
    hn::Store(hn::Set(d, hwy::HighestValue<float>()), d, range.low + c);
    hn::Store(hn::Set(d, -hwy::HighestValue<float>()), d, range.high + c);
    hn::Store(hn::Zero(d), d, range.odd + c);
  }
}

/// Widens kVectors vectors of `range` from `channel` on by the tokens of a tile.
template <int kVectors>
HWY_INLINE void add_tile(const TokenTile& tile, std::int64_t count, std::int64_t channel,
                         std::int64_t dim, const ChannelRange& range) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> low[kVectors], high[kVectors], odd[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    low[v] = hn::Load(d, range.low + channel + v * lanes);
    high[v] = hn::Load(d, range.high + channel + v * lanes);
    odd[v] = hn::Load(d, range.odd + channel + v * lanes);
  }
  for (std::int64_t t = 0; t < count; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const auto x = channels_at(d, tile.at + t * tile.stride, channel + v * lanes, dim);
      low[v] = hn::Min(low[v], x);
      high[v] = hn::Max(high[v], x);
      odd[v] = hn::MulAdd(x, hn::Zero(d), odd[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    hn::Store(low[v], d, range.low + channel + v * lanes);
    hn::Store(high[v], d, range.high + channel + v * lanes);
    hn::Store(odd[v], d, range.odd + channel + v * lanes);
  }
}

/// Widens `range` by the tokens [begin, end).
void AddTokens(const LagSource& s, std::int64_t begin, std::int64_t end,
               const ChannelRange& range) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  const std::int64_t dim = s.x.sizes[2];
  for (std::int64_t t = begin; t < end; t += kTileTokens) {
    const std::int64_t count = end - t < kTileTokens ? end - t : kTileTokens;
    const TokenTile tile = tile_at(s, t, count);
    std::int64_t c = 0;
    for (; c + 4 * lanes <= dim; c += 4 * lanes) add_tile<4>(tile, count, c, dim, range);
    for (; c < dim; c += lanes) add_tile<1>(tile, count, c, dim, range);
  }
}

/// Widens `range` by another.
void AddRange(const ChannelRange& other, std::int64_t padded, const ChannelRange& range) {
  const hn::ScalableTag<float> d;
  for (std::int64_t c = 0; c < padded; c += static_cast<std::int64_t>(hn::Lanes(d))) {
    hn::Store(hn::Min(hn::Load(d, range.low + c), hn::Load(d, other.low + c)), d, range.low + c);
    hn::Store(hn::Max(hn::Load(d, range.high + c), hn::Load(d, other.high + c)), d, range.high + c);
    hn::Store(hn::Add(hn::Load(d, range.odd + c), hn::Load(d, other.odd + c)), d, range.odd + c);
  }
}

/// Sums of squares of the deviations of x' = (x - low) * inverse over the channels, for kTokens
/// tokens at once: each waits for sums over its lanes.
template <int kTokens>
HWY_INLINE void deviations(const LagSource& s, const float* tokens, std::int64_t stride,
                           const float* low, const float* inverse, float* to) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t dim = s.x.sizes[2];
  V sums[kTokens], means[kTokens];
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) sums[t] = hn::Zero(d);
  for (std::int64_t c = 0; c < dim; c += lanes) {
    const V of_low = hn::Load(d, low + c), of_inverse = hn::Load(d, inverse + c);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const V x = channels_at(d, tokens + t * stride, c, dim);
      const V normal = hn::Mul(hn::Sub(x, of_low), of_inverse);  // past the last channel 0
      hn::Store(normal, d, s.normal + t * s.padded + c);
      sums[t] = hn::Add(sums[t], normal);
    }
  }
  const auto share = hn::Set(d, 1.0f / static_cast<float>(dim));
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    means[t] = hn::Mul(hn::SumOfLanes(d, sums[t]), share);
    sums[t] = hn::Zero(d);
  }
  std::int64_t c = 0;
  for (; c + lanes <= dim; c += lanes)
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const V off = hn::Sub(hn::Load(d, s.normal + t * s.padded + c), means[t]);
      sums[t] = hn::MulAdd(off, off, sums[t]);
    }
  if (c < dim) {
    const auto there = hn::FirstN(d, static_cast<std::size_t>(dim - c));
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const V off =
          hn::IfThenElseZero(there, hn::Sub(hn::Load(d, s.normal + t * s.padded + c), means[t]));
      sums[t] = hn::MulAdd(off, off, sums[t]);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) to[t] = hn::GetLane(hn::SumOfLanes(d, sums[t]));
}

/// Scores the tokens [begin, begin + lag) against `range`, whose `high` is overwritten; `scores`
/// holds a vector more.
void ScorePartition(const LagSource& s, std::int64_t begin, std::int64_t lag,
                    const ChannelRange& range, float* HWY_RESTRICT scores) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t dim = s.x.sizes[2];
  float* inverse = range.high;
  for (std::int64_t c = 0; c < s.padded; c += lanes) {
    const auto width = hn::Sub(hn::Load(d, range.high + c), hn::Load(d, range.low + c));
    const auto constant = hn::Lt(width, hn::Set(d, 0x1p-126f));
    const auto of_width = hn::IfThenZeroElse(constant, hn::Div(hn::Set(d, 1.0f), width));
    hn::Store(hn::Add(of_width, hn::Load(d, range.odd + c)), d, inverse + c);
  }
  for (std::int64_t first = 0; first < lag; first += kTileTokens) {
    const std::int64_t count = lag - first < kTileTokens ? lag - first : kTileTokens;
    const TokenTile tile = tile_at(s, begin + first, count);
    std::int64_t t = 0;
    for (; t + kScored <= count; t += kScored)
      deviations<kScored>(s, tile.at + t * tile.stride, tile.stride, range.low, inverse,
                          scores + first + t);
    for (; t < count; ++t)
      deviations<1>(s, tile.at + t * tile.stride, tile.stride, range.low, inverse,
                    scores + first + t);
  }

  // Softmax of the square roots.
  for (std::int64_t t = lag; t < lag + lanes; ++t) scores[t] = 0;
  auto top = hn::Zero(d);
  const auto share = hn::Set(d, 1.0f / static_cast<float>(dim - 1));
  for (std::int64_t t = 0; t < lag; t += lanes) {
    const auto deviation = hn::Sqrt(hn::Mul(hn::LoadU(d, scores + t), share));
    top = hn::Max(top, deviation);
    hn::StoreU(deviation, d, scores + t);
  }
  top = hn::MaxOfLanes(d, top);
  const float minus_inf = -std::numeric_limits<float>::infinity();
  for (std::int64_t t = lag; t < lag + lanes; ++t) scores[t] = minus_inf;
  double total = 0;
  for (std::int64_t first = 0; first < lag; first += 16 * lanes) {
    auto sum = hn::Zero(d);
    for (std::int64_t t = first; t < lag && t < first + 16 * lanes; t += lanes) {
      const auto e =
          exp2(d, hn::Mul(hn::Sub(hn::LoadU(d, scores + t), top), hn::Set(d, 1.4426950408889634f)));
      hn::StoreU(e, d, scores + t);
      sum = hn::Add(sum, e);
    }
    total += hn::GetLane(hn::SumOfLanes(d, sum));
  }
  const auto norm = hn::Set(d, static_cast<float>(1 / total));
  for (std::int64_t t = 0; t < lag; t += lanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, scores + t), norm), d, scores + t);
}

/// Minus the norms of the tokens [begin, end).
void ScoreNorms(const LagSource& s, std::int64_t begin, std::int64_t end,
                float* HWY_RESTRICT scores) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t t = begin; t < end; ++t) {
    const float* token = tile_at(s, t, 1).at;
    auto squares = hn::Zero(d);
    for (std::int64_t c = 0; c < s.x.sizes[2]; c += lanes) {
      const auto x = channels_at(d, token, c, s.x.sizes[2]);
      squares = hn::MulAdd(x, x, squares);
    }
    scores[t - begin] = -std::sqrt(hn::GetLane(hn::SumOfLanes(d, squares)));
  }
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "kernels/aligned_impl.hpp"
#include "kernels/base/parallel.hpp"
#include "kernels/check.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/select.hpp"

namespace kvatlas::kernels {
HWY_EXPORT(ClearRange);
HWY_EXPORT(AddTokens);
HWY_EXPORT(AddRange);
HWY_EXPORT(ScorePartition);
HWY_EXPORT(ScoreNorms);
namespace {

constexpr std::int64_t kMaxLanes = 16;

/// One lag's way through the tokens.
struct LagWalk {
  std::int64_t lag, cut;
  std::int64_t done = 0;  // whole partitions behind
  ChannelRange range;
  float* scores;  // [cut * lag + a vector]
};

/// Scores one head of keys or values for all lags: scores[i] of lag i.
void score_head(const LagScores& io, const AnyView<3>& x, std::int64_t head,
                const std::vector<float*>& scores) {
  const std::int64_t n_tokens = x.sizes[1],
                     padded = (x.sizes[2] + kMaxLanes - 1) / kMaxLanes * kMaxLanes;
  const auto n_lags = static_cast<std::int64_t>(io.lags.size());
  constexpr std::int64_t kTokens = kTileTokens + kScored;
  const auto scratch = aligned<float>((kTokens + 3 * (n_lags + 1)) * padded);
  const LagSource source{x, head, padded, scratch.get(), scratch.get() + kTileTokens * padded};
  const auto range = [&](std::int64_t i) {
    float* at = scratch.get() + (kTokens + 3 * i) * padded;
    return ChannelRange{at, at + padded, at + 2 * padded};
  };
  const ChannelRange segment = range(n_lags);
  std::vector<LagWalk> walks;
  for (std::int64_t i = 0; i < n_lags; ++i) {
    const std::int64_t lag = io.lags[static_cast<std::size_t>(i)];
    const std::int64_t cut = lag_cut_partitions(n_tokens, io.sink, lag);
    if (cut == 0) continue;
    walks.push_back({lag, cut, 0, range(i), scores[static_cast<std::size_t>(i)]});
    HWY_DYNAMIC_DISPATCH(ClearRange)(walks.back().range, padded);
  }
  const bool against_next = io.variant == LagVariant::lag;
  std::int64_t begin = io.sink;
  while (!walks.empty()) {
    std::int64_t end = n_tokens;
    for (const LagWalk& walk : walks) end = std::min(end, io.sink + (walk.done + 1) * walk.lag);
    HWY_DYNAMIC_DISPATCH(ClearRange)(segment, padded);
    HWY_DYNAMIC_DISPATCH(AddTokens)(source, begin, end, segment);
    for (LagWalk& walk : walks) {
      HWY_DYNAMIC_DISPATCH(AddRange)(segment, padded, walk.range);
      if (end != io.sink + (walk.done + 1) * walk.lag) continue;
      const std::int64_t scored = against_next ? walk.done - 1 : walk.done;
      if (scored >= 0) {
        HWY_DYNAMIC_DISPATCH(ScorePartition)
        (source, io.sink + scored * walk.lag, walk.lag, walk.range,
         walk.scores + scored * walk.lag);
      }
      HWY_DYNAMIC_DISPATCH(ClearRange)(walk.range, padded);
      ++walk.done;
    }
    const auto finished = [&](const LagWalk& walk) {
      return walk.done == walk.cut + (against_next ? 1 : 0);
    };
    walks.erase(std::remove_if(walks.begin(), walks.end(), finished), walks.end());
    begin = end;
  }
}

void lag_scores_cpu(const LagScores& io) {
  const std::int64_t n_heads = io.keys.sizes[0], n_tokens = io.keys.sizes[1];
  std::vector<std::int64_t> scored;  // tokens of each lag
  for (const std::int64_t lag : io.lags)
    scored.push_back(lag * lag_cut_partitions(n_tokens, io.sink, lag));
  if (io.variant == LagVariant::l2) {
    const std::int64_t most = scored.empty() ? 0 : *std::max_element(scored.begin(), scored.end());
    parallel_for(n_heads, [&](std::int64_t head, int) {
      const std::int64_t padded = io.keys.sizes[2] + kMaxLanes;
      const auto scratch = aligned<float>(padded), norms = aligned<float>(most);
      const LagSource source{io.keys, head, padded, scratch.get(), nullptr};
      HWY_DYNAMIC_DISPATCH(ScoreNorms)(source, io.sink, io.sink + most, norms.get());
      for (std::size_t i = 0; i < scored.size(); ++i)
        for (std::int64_t t = 0; t < scored[i]; ++t)
          io.scores[i](head, t) = norms[static_cast<std::size_t>(t)];
    });
    return;
  }
  // [keys, values][head][lag]: scores, with room for a vector behind.
  std::vector<hwy::AlignedFreeUniquePtr<float[]>> parts(static_cast<std::size_t>(2 * n_heads) *
                                                        scored.size());
  const auto part = [&](std::int64_t which, std::int64_t head, std::size_t i) -> auto& {
    return parts[static_cast<std::size_t>(which * n_heads + head) * scored.size() + i];
  };
  parallel_for(2 * n_heads, [&](std::int64_t task, int) {
    const std::int64_t which = task % 2, head = task / 2;
    std::vector<float*> scores;
    for (std::size_t i = 0; i < scored.size(); ++i) {
      part(which, head, i) = aligned<float>(scored[i] + kMaxLanes);
      scores.push_back(part(which, head, i).get());
    }
    score_head(io, which == 0 ? io.keys : io.values, head, scores);
  });
  parallel_for(n_heads, [&](std::int64_t head, int) {
    for (std::size_t i = 0; i < scored.size(); ++i) {
      const float *of_keys = part(0, head, i).get(), *of_values = part(1, head, i).get();
      for (std::int64_t t = 0; t < scored[i]; ++t)
        io.scores[i](head, t) = of_keys[t] + of_values[t];
    }
  });
}

void lag_kept_cpu(const LagKept& io) {
  const std::int64_t cut = lag_cut_partitions(io.n_tokens, io.sink, io.lag);
  parallel_for(io.positions.sizes[0], [&](std::int64_t head, int) {
    std::int64_t written = 0;
    for (std::int64_t j = 0; j < std::min(io.sink, io.n_tokens); ++j)
      io.positions(head, written++) = j;
    for (std::int64_t p = 0; p < cut; ++p)
      select_largest(
          io.scores.at(head, p * io.lag), io.scores.strides[1], io.lag, io.keep,
          [&](std::int64_t t) { io.positions(head, written++) = io.sink + p * io.lag + t; });
    for (std::int64_t j = io.sink + cut * io.lag; j < io.n_tokens; ++j)
      io.positions(head, written++) = j;
  });
}

}  // namespace

std::int64_t lag_cut_partitions(std::int64_t n_tokens, std::int64_t sink, std::int64_t lag) {
  return std::max<std::int64_t>(1, (n_tokens - std::min(sink, n_tokens)) / lag) - 1;
}

std::int64_t lag_length(std::int64_t n_tokens, std::int64_t sink, std::int64_t lag,
                        std::int64_t keep) {
  return n_tokens - lag_cut_partitions(n_tokens, sink, lag) * (lag - keep);
}

void lag_scores(const LagScores& io, const Exec& exec) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  require_array("keys", io.keys);
  const auto [n_heads, n_tokens, head_dim] = io.keys.sizes;
  if (io.variant != LagVariant::l2) {
    require_array("values", io.values);
    require_shape("values", io.values.sizes, {n_heads, n_tokens, io.values.sizes[2]});
    require_range("head_dim", head_dim, 2, kMost);
    require_range("value_dim", io.values.sizes[2], 2, kMost);
    require_same_memory("values", io.values.memory, io.keys.memory);
  }
  require_range("sink", io.sink, 0, kMost);
  if (io.scores.size() != io.lags.size())
    fail(ErrorCode::usage, io.lags.size(), " lags and ", io.scores.size(), " arrays of scores");
  for (std::size_t i = 0; i < io.lags.size(); ++i) {
    require_range("lag", io.lags[i], 1, kMost);
    require_array("scores", io.scores[i]);
    require_shape("scores", io.scores[i].sizes,
                  {n_heads, lag_cut_partitions(n_tokens, io.sink, io.lags[i]) * io.lags[i]});
    require_same_memory("scores", io.scores[i].memory, io.keys.memory);
  }
  switch (choose(exec, io.keys.memory)) {
    case Backend::reference:
      return reference::lag_scores(io);
    case Backend::cuda:
      if constexpr (kHasCuda) cuda::lag_scores(io, exec.stream);
      return;
    default:
      return lag_scores_cpu(io);
  }
}

void lag_kept(const LagKept& io, const Exec& exec) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  require_array("scores", io.scores);
  require_array("positions", io.positions);
  require_range("n_tokens", io.n_tokens, 0, kMost);
  require_range("sink", io.sink, 0, kMost);
  require_range("lag", io.lag, 1, kMost);
  require_range("keep", io.keep, 0, io.lag);
  const std::int64_t n_heads = io.positions.sizes[0];
  require_shape("scores", io.scores.sizes,
                {n_heads, lag_cut_partitions(io.n_tokens, io.sink, io.lag) * io.lag});
  require_shape("positions", io.positions.sizes,
                {n_heads, lag_length(io.n_tokens, io.sink, io.lag, io.keep)});
  require_same_memory("positions", io.positions.memory, io.scores.memory);
  switch (choose(exec, io.scores.memory)) {
    case Backend::reference:
      return reference::lag_kept(io);
    case Backend::cuda:
      if constexpr (kHasCuda) cuda::lag_kept(io, exec.stream);
      return;
    default:
      return lag_kept_cpu(io);
  }
}

}  // namespace kvatlas::kernels
#endif
