// SPDX-License-Identifier: Apache-2.0
// The specification of kv_quant.hpp, one group at a time, in float32: the codes are defined bit for
// bit.
#include <algorithm>
#include <limits>

#include "kernels/kv_quant_impl.hpp"
#include "kernels/read.hpp"

namespace kvatlas::kernels::reference {
namespace {

struct Span {
  std::int64_t begin, end;
};

Span group_span(std::int64_t group, std::int64_t size) {
  return {group * kQuantGroup, std::min(size, (group + 1) * kQuantGroup)};
}

/// Calls fn(head, tokens, channels, scale's second and third index) for every group.
template <class Fn>
void for_each_group(const QuantisedCache& cache, std::int64_t heads, std::int64_t tokens,
                    std::int64_t channels, Fn&& fn) {
  const bool per_token = cache.axis == QuantAxis::per_token;
  for (std::int64_t h = 0; h < heads; ++h) {
    if (per_token) {
      for (std::int64_t i = 0; i < tokens; ++i)
        for (std::int64_t g = 0; g < quant_groups(channels); ++g)
          fn(h, Span{i, i + 1}, group_span(g, channels), i, g);
    } else {
      for (std::int64_t g = 0; g < quant_groups(tokens); ++g)
        for (std::int64_t c = 0; c < channels; ++c)
          fn(h, group_span(g, tokens), Span{c, c + 1}, g, c);
    }
  }
}

}  // namespace

void kv_quantise(const KvQuantise& io) {
  const auto& [heads, tokens, channels] = io.from.sizes;
  const int bits = io.to.bits, most = (1 << bits) - 1;
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < tokens; ++i)
      for (std::int64_t b = 0; b < io.to.codes.sizes[2]; ++b) io.to.codes(h, i, b) = 0;
  for_each_group(io.to, heads, tokens, channels,
                 [&](std::int64_t h, Span rows, Span columns, std::int64_t s0, std::int64_t s1) {
                   float low = std::numeric_limits<float>::infinity(), high = -low;
                   bool finite = true;
                   for (std::int64_t i = rows.begin; i < rows.end; ++i) {
                     for (std::int64_t c = columns.begin; c < columns.end; ++c) {
                       const float x = static_cast<float>(read(io.from, h, i, c));
                       finite = finite && std::isfinite(x);
                       low = std::min(low, x);
                       high = std::max(high, x);
                     }
                   }
                   const QuantScale scale = quant_scale(low, high, finite, bits);
                   io.to.scales(h, s0, s1) = scale.scale;
                   io.to.minima(h, s0, s1) = scale.minimum;
                   for (std::int64_t i = rows.begin; i < rows.end; ++i) {
                     for (std::int64_t c = columns.begin; c < columns.end; ++c) {
                       const float x = static_cast<float>(read(io.from, h, i, c));
                       const float code = std::nearbyint((x - scale.low) * scale.inverse);
                       const int clamped =
                           std::isnan(code)
                               ? 0
                               : static_cast<int>(std::clamp(code, 0.0f, static_cast<float>(most)));
                       std::uint8_t& byte = io.to.codes(h, i, c * bits / 8);
                       byte = static_cast<std::uint8_t>(byte | clamped << (c * bits % 8));
                     }
                   }
                 });
}

void kv_dequantise(const KvDequantise& io) {
  const auto& [heads, tokens, channels] = io.to.sizes;
  const int bits = io.from.bits, most = (1 << bits) - 1;
  for_each_group(io.from, heads, tokens, channels,
                 [&](std::int64_t h, Span rows, Span columns, std::int64_t s0, std::int64_t s1) {
                   const float scale = f16_to_float(io.from.scales(h, s0, s1));
                   const float minimum = f16_to_float(io.from.minima(h, s0, s1));
                   for (std::int64_t i = rows.begin; i < rows.end; ++i) {
                     for (std::int64_t c = columns.begin; c < columns.end; ++c) {
                       const int code = io.from.codes(h, i, c * bits / 8) >> (c * bits % 8) & most;
                       io.to(h, i, c) = minimum + static_cast<float>(code) * scale;
                     }
                   }
                 });
}

}  // namespace kvatlas::kernels::reference
