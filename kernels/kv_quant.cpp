// SPDX-License-Identifier: Apache-2.0
// A task is a tile of 32 tokens of one head, which whole groups of either axis fill; the tile is in
// L1 as float32.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/kv_quant.cpp"
#include <algorithm>

#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "kernels/aligned_impl.hpp"
#include "kernels/check.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/kv_quant_impl.hpp"
#include "kernels/load-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using QuantTag = hn::CappedTag<float, kQuantGroup>;
using QuantVec = hn::Vec<QuantTag>;
constexpr std::int64_t kQuantLanes = hn::MaxLanes(QuantTag());

/// Smallest and largest lane, and zero, or NaN if any element was not finite.
struct Range {
  QuantVec low, high, spoilt;
  HWY_INLINE void add(QuantVec x) {
    const QuantTag d;
    low = hn::Min(low, x);
    high = hn::Max(high, x);
    spoilt = hn::MulAdd(x, hn::Zero(d), spoilt);
  }
};

/// A tile of up to 32 tokens: rows of float32, and for each of its channels how they become codes.
class QuantTile {
 public:
  QuantTile(const QuantisedCache& cache, std::int64_t channels)
      : cache_(cache),
        channels_(channels),
        width_((channels + kQuantGroup - 1) / kQuantGroup * kQuantGroup),
        rows_(aligned<float>(kQuantGroup * width_)),
        low_(aligned<float>(width_)),
        factor_(aligned<float>(width_)),
        codes_(aligned<std::int32_t>(width_)) {}

  void quantise(const AnyView<3>& from, std::int64_t h, std::int64_t group) {
    const std::int64_t first = group * kQuantGroup,
                       count = std::min(kQuantGroup, from.sizes[1] - first);
    for (std::int64_t r = 0; r < count; ++r) {
      float* row = rows_.get() + r * width_;
      copy_as_float(from.data, from.type, h * from.strides[0] + (first + r) * from.strides[1],
                    from.strides[2], channels_, row);
      // Copies of the last channel change no minimum and no maximum.
      std::fill(row + channels_, row + width_, row[channels_ - 1]);
    }
    if (cache_.axis == QuantAxis::per_channel) scale_channels(h, group, count);
    for (std::int64_t r = 0; r < count; ++r) {
      if (cache_.axis == QuantAxis::per_token) scale_token(h, first + r, rows_.get() + r * width_);
      encode(rows_.get() + r * width_, cache_.codes.at(h, first + r, 0));
    }
  }

  void dequantise(const View<float, 3>& to, std::int64_t h, std::int64_t group) {
    const std::int64_t first = group * kQuantGroup,
                       count = std::min(kQuantGroup, to.sizes[1] - first);
    if (cache_.axis == QuantAxis::per_channel)
      for (std::int64_t c = 0; c < channels_; ++c) read_scale(h, group, c, c, c + 1);
    for (std::int64_t r = 0; r < count; ++r) {
      if (cache_.axis == QuantAxis::per_token)
        for (std::int64_t g = 0; g * kQuantGroup < channels_; ++g)
          read_scale(h, first + r, g, g * kQuantGroup, (g + 1) * kQuantGroup);
      decode(cache_.codes.at(h, first + r, 0));
      float* out = to.at(h, first + r, 0);
      for (std::int64_t c = 0; c < channels_; ++c) out[c * to.strides[2]] = rows_[c];
    }
  }

 private:
  void set_scale(std::int64_t h, std::int64_t s0, std::int64_t s1, const QuantScale& scale,
                 std::int64_t begin, std::int64_t end) {
    cache_.scales(h, s0, s1) = scale.scale;
    cache_.minima(h, s0, s1) = scale.minimum;
    std::fill(low_.get() + begin, low_.get() + end, scale.low);
    std::fill(factor_.get() + begin, factor_.get() + end, scale.inverse);
  }

  void read_scale(std::int64_t h, std::int64_t s0, std::int64_t s1, std::int64_t begin,
                  std::int64_t end) {
    std::fill(low_.get() + begin, low_.get() + end, f16_to_float(cache_.minima(h, s0, s1)));
    std::fill(factor_.get() + begin, factor_.get() + end, f16_to_float(cache_.scales(h, s0, s1)));
  }

  void scale_channels(std::int64_t h, std::int64_t group, std::int64_t count) {
    const QuantTag d;
    for (std::int64_t k = 0; k < width_; k += kQuantLanes) {
      const auto start = hn::Load(d, rows_.get() + k);
      Range range{start, start, hn::Zero(d)};
      for (std::int64_t r = 0; r < count; ++r) range.add(hn::Load(d, rows_.get() + r * width_ + k));
      HWY_ALIGN float low[kQuantLanes], high[kQuantLanes], spoilt[kQuantLanes];
      hn::Store(range.low, d, low);
      hn::Store(range.high, d, high);
      hn::Store(range.spoilt, d, spoilt);
      for (std::int64_t lane = 0; lane < kQuantLanes && k + lane < channels_; ++lane)
        set_scale(h, group, k + lane,
                  quant_scale(low[lane], high[lane], spoilt[lane] == 0, cache_.bits), k + lane,
                  k + lane + 1);
    }
  }

  void scale_token(std::int64_t h, std::int64_t token, const float* row) {
    const QuantTag d;
    for (std::int64_t begin = 0; begin < channels_; begin += kQuantGroup) {
      const auto start = hn::Load(d, row + begin);
      Range range{start, start, hn::Zero(d)};
      for (std::int64_t k = 0; k < kQuantGroup; k += kQuantLanes)
        range.add(hn::Load(d, row + begin + k));
      const float low = hn::GetLane(hn::MinOfLanes(d, range.low));
      const float high = hn::GetLane(hn::MaxOfLanes(d, range.high));
      const bool finite = hn::GetLane(hn::SumOfLanes(d, range.spoilt)) == 0;
      set_scale(h, token, begin / kQuantGroup, quant_scale(low, high, finite, cache_.bits), begin,
                begin + kQuantGroup);
    }
  }

  void encode(const float* row, std::uint8_t* to) {
    const QuantTag d;
    const hn::RebindToSigned<QuantTag> di;
    const auto most = hn::Set(di, (1 << cache_.bits) - 1);
    for (std::int64_t k = 0; k < width_; k += kQuantLanes) {
      auto x = hn::Mul(hn::Sub(hn::Load(d, row + k), hn::Load(d, low_.get() + k)),
                       hn::Load(d, factor_.get() + k));
      x = hn::IfThenZeroElse(hn::IsNaN(x), x);
      hn::Store(hn::Min(hn::Max(hn::NearestInt(x), hn::Zero(di)), most), di, codes_.get() + k);
    }
    // Channels behind the last one must not show in the bits.
    std::fill(codes_.get() + channels_, codes_.get() + width_, 0);
    const int bits = cache_.bits, per_byte = 8 / bits;
    for (std::int64_t b = 0; b < cache_.codes.sizes[2]; ++b) {
      int byte = 0;
      for (int i = 0; i < per_byte; ++i) byte |= codes_[b * per_byte + i] << (i * bits);
      to[b * cache_.codes.strides[2]] = static_cast<std::uint8_t>(byte);
    }
  }

  /// The restored row, in rows_.
  void decode(const std::uint8_t* from) {
    const QuantTag d;
    const hn::RebindToSigned<QuantTag> di;
    const int bits = cache_.bits, per_byte = 8 / bits, most = (1 << bits) - 1;
    for (std::int64_t b = 0; b < cache_.codes.sizes[2]; ++b)
      for (int i = 0; i < per_byte; ++i)
        codes_[b * per_byte + i] = from[b * cache_.codes.strides[2]] >> (i * bits) & most;
    for (std::int64_t k = 0; k < channels_; k += kQuantLanes)
      hn::Store(hn::MulAdd(hn::ConvertTo(d, hn::Load(di, codes_.get() + k)),
                           hn::Load(d, factor_.get() + k), hn::Load(d, low_.get() + k)),
                d, rows_.get() + k);
  }

  QuantisedCache cache_;
  std::int64_t channels_, width_;
  hwy::AlignedFreeUniquePtr<float[]> rows_, low_, factor_;
  hwy::AlignedFreeUniquePtr<std::int32_t[]> codes_;
};

void kv_quantise_body(const KvQuantise& io) {
  const std::int64_t groups = quant_groups(io.from.sizes[1]);
  parallel_for(io.from.sizes[0] * groups, [&](std::int64_t task, int) {
    QuantTile(io.to, io.from.sizes[2]).quantise(io.from, task / groups, task % groups);
  });
}

void kv_dequantise_body(const KvDequantise& io) {
  const std::int64_t groups = quant_groups(io.to.sizes[1]);
  parallel_for(io.to.sizes[0] * groups, [&](std::int64_t task, int) {
    QuantTile(io.from, io.to.sizes[2]).dequantise(io.to, task / groups, task % groups);
  });
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvatlas::kernels {
namespace {

void check(const QuantisedCache& cache, const std::array<std::int64_t, 3>& sizes, Memory memory) {
  if (cache.bits != 4 && cache.bits != 2)
    fail(ErrorCode::usage, "bits is ", cache.bits, ", expected 4 or 2");
  const auto [heads, tokens, channels] = sizes;
  require_shape("codes", cache.codes.sizes,
                {heads, tokens, quant_code_bytes(channels, cache.bits)});
  const auto scales = cache.axis == QuantAxis::per_token
                          ? std::array<std::int64_t, 3>{heads, tokens, quant_groups(channels)}
                          : std::array<std::int64_t, 3>{heads, quant_groups(tokens), channels};
  require_shape("scales", cache.scales.sizes, scales);
  require_shape("minima", cache.minima.sizes, scales);
  require_array("codes", cache.codes);
  require_array("scales", cache.scales);
  require_array("minima", cache.minima);
  require_same_memory("codes", cache.codes.memory, memory);
  require_same_memory("scales", cache.scales.memory, memory);
  require_same_memory("minima", cache.minima.memory, memory);
}

bool empty(const std::array<std::int64_t, 3>& sizes) {
  return sizes[0] == 0 || sizes[1] == 0 || sizes[2] == 0;
}

}  // namespace

HWY_EXPORT(kv_quantise_body);
HWY_EXPORT(kv_dequantise_body);

void kv_quantise(const KvQuantise& io, const Exec& exec) {
  require_array("from", io.from);
  check(io.to, io.from.sizes, io.from.memory);
  const Backend backend = choose(exec, io.from.memory);
  if (empty(io.from.sizes)) return;
  run_body(backend, exec, io, reference::kv_quantise, HWY_DYNAMIC_DISPATCH(kv_quantise_body),
           KVATLAS_CUDA_BODY(kv_quantise));
}

void kv_dequantise(const KvDequantise& io, const Exec& exec) {
  require_array("to", io.to);
  check(io.from, io.to.sizes, io.to.memory);
  const Backend backend = choose(exec, io.to.memory);
  if (empty(io.to.sizes)) return;
  run_body(backend, exec, io, reference::kv_dequantise, HWY_DYNAMIC_DISPATCH(kv_dequantise_body),
           KVATLAS_CUDA_BODY(kv_dequantise));
}

}  // namespace kvatlas::kernels
#endif
