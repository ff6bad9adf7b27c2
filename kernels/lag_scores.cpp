// SPDX-License-Identifier: Apache-2.0
// CPU body. A task is a chunk of one head's tokens, keys and then values, each read from front to
// back in the segments that the partitions of all lags cut; the minima and maxima of a segment
// serve every lag. As soon as a partition's reference is complete its tokens, still in cache, are
// scored. Chunks do not hang on the number of threads. Ladder, two AVX-512 cores, milliseconds for
// one lag of 3 x 4096 x 64 (in cache), one and three lags of 8 x 16384 x 128 (from memory):
//   x' stored, then its mean, then its deviation       0.24   6.8  13.9
//   + its sum and its squares' from one pass           0.20   7.5  10.0
//   + rows read whole, not 64 channels of 16 of them   0.17   6.3   8.9
//   + NaN looked for with integers                     0.14   5.3   8.3
// Lost: asking for the next segment while one is scored (nothing into the second-level cache, up to
// 3 times slower into the first); range and scores by turns every 16 tokens (1.2 to 1.6 times).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lag_scores.cpp"
#include <cmath>
#include <limits>

#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/lag_scores_impl.hpp"
#include "kernels/load-inl.hpp"
#include "kernels/math-inl.hpp"
#include "kernels/sums-inl.hpp"

#ifndef KVATLAS_LAG_SHARED
#define KVATLAS_LAG_SHARED
namespace kvatlas::kernels {

// Minima and maxima of channels over some tokens, padded to vectors. One vector `odd` for all of
// the channels: some lane is negative iff a value was not finite.
struct ChannelRange {
  float *low, *high;
  std::int32_t* odd;
};

constexpr std::int64_t kTileTokens = 16;  // that are looked at together: at least a vector's lanes

// One head of keys or values, and scratch of `padded` channels.
struct LagSource {
  AnyView<3> x;
  std::int64_t head, padded;
  float* tile;  // [kTileTokens, padded] tokens that have to be copied
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

void ClearRange(const ChannelRange& range, std::int64_t padded) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  for (std::int64_t c = 0; c < padded; c += static_cast<std::int64_t>(hn::Lanes(d))) {
    hn::Store(hn::Set(d, hwy::HighestValue<float>()), d, range.low + c);
    hn::Store(hn::Set(d, -hwy::HighestValue<float>()), d, range.high + c);
  }
  hn::Store(hn::Zero(di), di, range.odd);
}

/// Widens kVectors vectors of `range` from `channel` on by the tokens of a tile. All of the
/// channels exist if `kWhole`.
template <int kVectors, bool kWhole>
HWY_INLINE void add_tile(const TokenTile& tile, std::int64_t count, std::int64_t channel,
                         std::int64_t dim, const ChannelRange& range) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const hn::RebindToSigned<decltype(d)> di;
  hn::Vec<decltype(d)> low[kVectors], high[kVectors];
  auto odd = hn::Load(di, range.odd);
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    low[v] = hn::Load(d, range.low + channel + v * lanes);
    high[v] = hn::Load(d, range.high + channel + v * lanes);
  }
  const auto least_exponent = hn::Set(di, 0x00800000);
  const float* token = tile.at;
  for (std::int64_t t = 0; t < count; ++t, token += tile.stride) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t c = channel + v * lanes;
      const auto x = kWhole ? hn::LoadU(d, token + c)
                            : load_n(d, token + c, static_cast<std::size_t>(dim - c));
      low[v] = hn::Min(low[v], x);
      high[v] = hn::Max(high[v], x);
      // One more in the exponent changes the sign of infinities and NaN alone. In integers, for
      // minima and maxima keep the floating-point units busy.
      const auto bits = hn::BitCast(di, x);
      odd = hn::Or(odd, hn::Xor(bits, hn::Add(bits, least_exponent)));
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) {
    hn::Store(low[v], d, range.low + channel + v * lanes);
    hn::Store(high[v], d, range.high + channel + v * lanes);
  }
  hn::Store(odd, di, range.odd);
}

/// Widens `range` by the tokens [begin, end).
void AddTokens(const LagSource& s, std::int64_t begin, std::int64_t end,
               const ChannelRange& range) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  constexpr int kMost = HWY_TARGET == HWY_AVX3 ? 8 : 4;  // vectors that the registers hold
  const std::int64_t dim = s.x.sizes[2];
  for (std::int64_t t = begin; t < end; t += kTileTokens) {
    const std::int64_t count = end - t < kTileTokens ? end - t : kTileTokens;
    const TokenTile tile = tile_at(s, t, count);
    std::int64_t c = 0;
    for (; c + kMost * lanes <= dim; c += kMost * lanes)
      add_tile<kMost, true>(tile, count, c, dim, range);
    for (; c + 4 * lanes <= dim; c += 4 * lanes) add_tile<4, true>(tile, count, c, dim, range);
    for (; c + 2 * lanes <= dim; c += 2 * lanes) add_tile<2, true>(tile, count, c, dim, range);
    for (; c + lanes <= dim; c += lanes) add_tile<1, true>(tile, count, c, dim, range);
    if (c < dim) add_tile<1, false>(tile, count, c, dim, range);
  }
}

/// Widens `range` by another.
void AddRange(const ChannelRange& other, std::int64_t padded, const ChannelRange& range) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  for (std::int64_t c = 0; c < padded; c += static_cast<std::int64_t>(hn::Lanes(d))) {
    hn::Store(hn::Min(hn::Load(d, range.low + c), hn::Load(d, other.low + c)), d, range.low + c);
    hn::Store(hn::Max(hn::Load(d, range.high + c), hn::Load(d, other.high + c)), d, range.high + c);
  }
  hn::Store(hn::Or(hn::Load(di, range.odd), hn::Load(di, other.odd)), di, range.odd);
}

/// What the deviation of x' over the channels is made of, y = x' - pivot, for four tokens:
/// first[t] the sum of y, second[t] of its squares.
HWY_INLINE void four_moments(const float* const (&tokens)[4], std::int64_t dim, const float* low,
                             const float* inverse,
                             const hn::Vec<hn::ScalableTag<float>> (&pivots)[4], float* first,
                             float* second) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V sums[4], squares[4];
#pragma GCC unroll 4
  for (int t = 0; t < 4; ++t) sums[t] = squares[t] = hn::Zero(d);
  std::int64_t c = 0;
  for (; c + lanes <= dim; c += lanes) {
    const V of_low = hn::Load(d, low + c), of_inverse = hn::Load(d, inverse + c);
#pragma GCC unroll 4
    for (int t = 0; t < 4; ++t) {
      const V y = hn::MulSub(hn::Sub(hn::LoadU(d, tokens[t] + c), of_low), of_inverse, pivots[t]);
      sums[t] = hn::Add(sums[t], y);
      squares[t] = hn::MulAdd(y, y, squares[t]);
    }
  }
  if (c < dim) {
    const V of_low = hn::Load(d, low + c), of_inverse = hn::Load(d, inverse + c);
    const auto there = hn::FirstN(d, static_cast<std::size_t>(dim - c));
#pragma GCC unroll 4
    for (int t = 0; t < 4; ++t) {
      const V x = load_n(d, tokens[t] + c, static_cast<std::size_t>(dim - c));
      const V y = hn::IfThenElseZero(there, hn::MulSub(hn::Sub(x, of_low), of_inverse, pivots[t]));
      sums[t] = hn::Add(sums[t], y);
      squares[t] = hn::MulAdd(y, y, squares[t]);
    }
  }
  four_sums(d, sums, first);
  four_sums(d, squares, second);
}

/// Sums of squares of the deviations of x' over the channels, for the tokens of a tile: `to` gets
/// whole vectors.
HWY_INLINE void deviations(const TokenTile& tile, std::int64_t count, std::int64_t dim,
                           const float* low, const float* inverse, float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V share = hn::Set(d, 1.0f / static_cast<float>(dim));
  HWY_ALIGN float first[kTileTokens] = {}, second[kTileTokens] = {}, pivots[kTileTokens] = {};
  const auto moments = [&](std::int64_t t, const V(&four_pivots)[4]) HWY_ATTR {
    const float* tokens[4];
    for (std::int64_t i = 0; i < 4; ++i)
      tokens[i] = tile.at + (t + i < count ? t + i : count - 1) * tile.stride;
    four_moments(tokens, dim, low, inverse, four_pivots, first + t, second + t);
  };
  const auto squares_at = [&](std::int64_t t) HWY_ATTR {
    const V sum = hn::Load(d, first + t);
    return hn::NegMulAdd(hn::Mul(sum, share), sum, hn::Load(d, second + t));
  };
  // The middle of the reference is near most tokens' means.
  const V middle = hn::Set(d, 0.5f);
  const V middles[4] = {middle, middle, middle, middle};
  for (std::int64_t t = 0; t < count; t += 4) moments(t, middles);
  bool some_far = false;
  for (std::int64_t t = 0; t < count; t += lanes) {
    // Where the mean is so far off that the difference loses digits, once more from the mean.
    const auto far = hn::Gt(hn::Load(d, second + t), hn::Mul(squares_at(t), hn::Set(d, 4.0f)));
    some_far = some_far || !hn::AllFalse(d, far);
    const V mean = hn::Mul(hn::Load(d, first + t), share);
    hn::Store(hn::Add(middle, hn::IfThenElseZero(far, mean)), d, pivots + t);
  }
  if (some_far) {
    for (std::int64_t t = 0; t < count; t += 4)
      moments(t, {hn::Set(d, pivots[t]), hn::Set(d, pivots[t + 1]), hn::Set(d, pivots[t + 2]),
                  hn::Set(d, pivots[t + 3])});
  }
  for (std::int64_t t = 0; t < count; t += lanes) {
    const V squares = squares_at(t);  // NaN stays
    hn::StoreU(hn::IfThenZeroElse(hn::Lt(squares, hn::Zero(d)), squares), d, to + t);
  }
}

/// Scores the tokens [begin, begin + lag) against `range`, whose `high` is overwritten; `scores`
/// holds a vector more.
void ScorePartition(const LagSource& s, std::int64_t begin, std::int64_t lag,
                    const ChannelRange& range, float* HWY_RESTRICT scores) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t dim = s.x.sizes[2];
  float* inverse = range.high;
  const auto odd = hn::BitCast(d, hn::BroadcastSignBit(hn::Load(di, range.odd)));  // NaN or 0
  for (std::int64_t c = 0; c < s.padded; c += lanes) {
    const auto width = hn::Sub(hn::Load(d, range.high + c), hn::Load(d, range.low + c));
    const auto constant = hn::Lt(width, hn::Set(d, 0x1p-126f));
    const auto of_width = hn::IfThenZeroElse(constant, hn::Div(hn::Set(d, 1.0f), width));
    hn::Store(hn::Add(of_width, odd), d, inverse + c);
  }
  for (std::int64_t first = 0; first < lag; first += kTileTokens) {
    const std::int64_t count = lag - first < kTileTokens ? lag - first : kTileTokens;
    deviations(tile_at(s, begin + first, count), count, dim, range.low, inverse, scores + first);
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
  const std::int64_t dim = s.x.sizes[2];
  for (std::int64_t t = begin; t < end; ++t) {
    const float* token = tile_at(s, t, 1).at;
    auto squares = hn::Zero(d);
    std::int64_t c = 0;
    for (; c + lanes <= dim; c += lanes) {
      const auto x = hn::LoadU(d, token + c);
      squares = hn::MulAdd(x, x, squares);
    }
    if (c < dim) {
      const auto x = load_n(d, token + c, static_cast<std::size_t>(dim - c));
      squares = hn::MulAdd(x, x, squares);
    }
    scores[t - begin] = -std::sqrt(hn::GetLane(hn::SumOfLanes(d, squares)));
  }
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "base/parallel.hpp"
#include "kernels/aligned_impl.hpp"
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
constexpr std::int64_t kShortestChunk = 2048;  // tokens of a task

/// One lag's way through a chunk: partitions [first, last) are scored.
struct LagWalk {
  std::int64_t lag, first, last;
  std::int64_t at;  // the partition whose range is taken, or to be taken, next
  ChannelRange range;
  float* scores;  // [(last - first) * lag + a vector]
};

/// One lag's partitions that begin in a chunk.
struct Owned {
  std::int64_t first, last;
};
Owned owned(const LagScores& io, std::int64_t lag, std::int64_t begin, std::int64_t end) {
  const std::int64_t cut = lag_cut_partitions(io.keys.sizes[1], io.sink, lag);
  return {std::min(cut, (begin + lag - 1) / lag), std::min(cut, (end + lag - 1) / lag)};
}

/// Scores of one head's keys or values, for all lags: those of the partitions that begin in
/// [begin, end), counted from the sink; scores[i] of lag i.
void score_chunk(const LagScores& io, const AnyView<3>& x, std::int64_t head, std::int64_t begin,
                 std::int64_t end, const std::vector<float*>& scores) {
  const std::int64_t padded = (x.sizes[2] + kMaxLanes - 1) / kMaxLanes * kMaxLanes;
  const auto n_lags = static_cast<std::int64_t>(io.lags.size());
  const auto scratch = aligned<float>((kTileTokens + 2 * (n_lags + 1)) * padded);
  const auto odds = aligned<std::int32_t>((n_lags + 1) * kMaxLanes);
  const LagSource source{x, head, padded, scratch.get()};
  const auto range = [&](std::int64_t i) {
    float* at = scratch.get() + (kTileTokens + 2 * i) * padded;
    return ChannelRange{at, at + padded, odds.get() + i * kMaxLanes};
  };
  const ChannelRange segment = range(n_lags);
  // A partition is scored against itself or the next one.
  const std::int64_t against = io.variant == LagVariant::lag ? 1 : 0;
  std::vector<LagWalk> walks;
  for (std::int64_t i = 0; i < n_lags; ++i) {
    const std::int64_t lag = io.lags[i];
    const auto [first, last] = owned(io, lag, begin, end);
    if (first == last) continue;
    walks.push_back({lag, first, last, first + against, range(i), scores[i]});
    HWY_DYNAMIC_DISPATCH(ClearRange)(walks.back().range, padded);
  }
  // From one boundary of any lag to the next.
  for (std::int64_t from = 0; !walks.empty();) {
    std::int64_t start = x.sizes[1], to = start;
    for (const LagWalk& walk : walks) start = std::min(start, walk.at * walk.lag);
    from = std::max(from, start);
    for (const LagWalk& walk : walks) {
      const std::int64_t at = walk.at * walk.lag;
      to = std::min(to, at > from ? at : at + walk.lag);
    }
    HWY_DYNAMIC_DISPATCH(ClearRange)(segment, padded);
    HWY_DYNAMIC_DISPATCH(AddTokens)(source, io.sink + from, io.sink + to, segment);
    for (LagWalk& walk : walks) {
      if (walk.at * walk.lag > from) continue;
      HWY_DYNAMIC_DISPATCH(AddRange)(segment, padded, walk.range);
      if (to != (walk.at + 1) * walk.lag) continue;
      const std::int64_t scored = walk.at++ - against;
      HWY_DYNAMIC_DISPATCH(ScorePartition)
      (source, io.sink + scored * walk.lag, walk.lag, walk.range,
       walk.scores + (scored - walk.first) * walk.lag);
      HWY_DYNAMIC_DISPATCH(ClearRange)(walk.range, padded);
    }
    const auto finished = [&](const LagWalk& walk) { return walk.at == walk.last + against; };
    walks.erase(std::remove_if(walks.begin(), walks.end(), finished), walks.end());
    from = to;
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
      const LagSource source{io.keys, head, padded, scratch.get()};
      HWY_DYNAMIC_DISPATCH(ScoreNorms)(source, io.sink, io.sink + most, norms.get());
      for (std::size_t i = 0; i < scored.size(); ++i)
        for (std::int64_t t = 0; t < scored[i]; ++t) io.scores[i](head, t) = norms[t];
    });
    return;
  }
  std::int64_t longest = 0, most = 0;
  for (std::size_t i = 0; i < scored.size(); ++i) {
    if (scored[i] > 0) longest = std::max(longest, io.lags[i]);
    most = std::max(most, scored[i]);
  }
  const std::int64_t chunk = std::max(kShortestChunk, 8 * longest);
  const std::int64_t chunks = (most + chunk - 1) / chunk;
  parallel_for(n_heads * chunks, [&](std::int64_t task, int) {
    const std::int64_t head = task / chunks, begin = task % chunks * chunk;
    std::vector<Owned> parts;
    std::int64_t floats = 0;
    for (const std::int64_t lag : io.lags) {
      parts.push_back(owned(io, lag, begin, begin + chunk));
      floats += (parts.back().last - parts.back().first) * lag + kMaxLanes;
    }
    const auto memory = aligned<float>(2 * floats);
    std::vector<float*> of_keys, of_values;
    float* at = memory.get();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      of_keys.push_back(at);
      of_values.push_back(at + floats);
      at += (parts[i].last - parts[i].first) * io.lags[i] + kMaxLanes;
    }
    score_chunk(io, io.keys, head, begin, begin + chunk, of_keys);
    score_chunk(io, io.values, head, begin, begin + chunk, of_values);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::int64_t first = parts[i].first * io.lags[i], last = parts[i].last * io.lags[i];
      for (std::int64_t t = first; t < last; ++t)
        io.scores[i](head, t) = of_keys[i][t - first] + of_values[i][t - first];
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
  run_body(choose(exec, io.keys.memory), exec, io, reference::lag_scores, lag_scores_cpu,
           KVATLAS_CUDA_BODY(lag_scores));
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
  run_body(choose(exec, io.scores.memory), exec, io, reference::lag_kept, lag_kept_cpu,
           KVATLAS_CUDA_BODY(lag_kept));
}

}  // namespace kvatlas::kernels
#endif
