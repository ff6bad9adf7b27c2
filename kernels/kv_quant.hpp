// SPDX-License-Identifier: Apache-2.0
// KV caches in 4 or 2 bits and back (docs/kernels.md).
#pragma once

#include <cstdint>

#include "base/exec.hpp"
#include "base/view.hpp"

namespace kvatlas::kernels {

/// So many elements share a scale and a minimum. The last group of an axis may be smaller.
inline constexpr std::int64_t kQuantGroup = 32;
constexpr std::int64_t quant_groups(std::int64_t size) {
  return (size + kQuantGroup - 1) / kQuantGroup;
}
constexpr std::int64_t quant_code_bytes(std::int64_t head_dim, int bits) {
  return (head_dim * bits + 7) / 8;
}

/// The direction of a group: 32 tokens of one channel (used for keys), or 32 channels of one token
/// (used for values).
enum class QuantAxis : std::uint8_t { per_channel, per_token };

/// A quantised cache. An element is minimum + code * scale. Channel c's code lies in byte c * bits
/// / 8 of its token, lower channels in lower bits; scales and minima are float16 bits. `group`
/// below is the group's number along its axis.
struct QuantisedCache {
  int bits = 4;  // 4 or 2
  QuantAxis axis = QuantAxis::per_token;
  View<std::uint8_t, 3> codes;  // [n_heads, n_tokens, quant_code_bytes(head_dim, bits)]
  View<std::uint16_t, 3>
      scales;  // per_channel [n_heads, group, head_dim], per_token [n_heads, n_tokens, group]
  View<std::uint16_t, 3> minima;  // likewise
};

/// scale = float16((max - min) / (2^bits - 1)), minimum = float16(min), code = the integer nearest
/// to (x - minimum) / scale, ties to even, clamped to the codes there are, 0 where scale is 0; all
/// in float32, the same bits from every body. |x - restored x| <= scale / 2 + (max - min + |min|) *
/// 2^-11 + 2^-20. A group that holds NaN or an infinity, or whose scale or minimum float16 cannot
/// hold, is NaN throughout when restored.
struct KvQuantise {
  AnyView<3> from;    // in  [n_heads, n_tokens, head_dim]
  QuantisedCache to;  // out
};

/// Restores minimum + code * scale; the only error is the float32 rounding of that sum.
struct KvDequantise {
  QuantisedCache from;  // in
  View<float, 3> to;    // out [n_heads, n_tokens, head_dim]
};

/// One pass over the data each. Thread safe as long as outputs differ. Throws Error `usage` for
/// shapes that do not fit together and other numbers of bits.
void kv_quantise(const KvQuantise& io, const Exec& exec = {});
void kv_dequantise(const KvDequantise& io, const Exec& exec = {});

}  // namespace kvatlas::kernels
