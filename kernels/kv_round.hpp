// SPDX-License-Identifier: Apache-2.0
// What keys and values are after they were stored in a number format that rounds each token of a
// KV head by itself (docs/kernels.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/exec.hpp"
#include "base/view.hpp"

namespace kvatlas::kernels {

/// How a row, the key or the value of a token in one KV head, is stored.
enum class RowFormat : std::uint8_t {
  e4m3,        // x / scale to the nearest E4M3 number, ties to even, at most 448
  e4m3_cut,    // x * float32(1 / scale) cut toward zero, as on vLLM's CPUs
  e5m2,        // the same with E5M2, at most 57344
  e5m2_cut,    // likewise
  int8_row,    // whole numbers of -127 to 127 with a float32 scale a row
  e4m3_row,    // E4M3 with a float32 scale a row
  int4_row,    // rotated with signs; codes of 4 bits, a float32 scale and a zero point a row
  range4_row,  // codes of 4 bits from the row's least to its greatest number, both from float16
  range3_row,  // the same with 3 bits
  lloyd4_row,  // the length in float16; the direction, rotated, in 16 levels of Lloyd and Max
  lloyd3_row,  // the same with 8 levels
  nvfp4,       // E2M1, an E4M3 scale for 16 channels, and `scale` for all
  q8_0,        // llama.cpp's: 32 channels share a float16 scale, and in q4_1 and q5_1 a minimum
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  iq4_nl,  // 16 uneven levels
};

struct RowFormatName {
  RowFormat format;
  std::string_view word;
};
/// In the order of RowFormat.
inline constexpr std::array<RowFormatName, 18> kRowFormats = {
    {{RowFormat::e4m3, "e4m3"},
     {RowFormat::e4m3_cut, "e4m3_cut"},
     {RowFormat::e5m2, "e5m2"},
     {RowFormat::e5m2_cut, "e5m2_cut"},
     {RowFormat::int8_row, "int8_row"},
     {RowFormat::e4m3_row, "e4m3_row"},
     {RowFormat::int4_row, "int4_row"},
     {RowFormat::range4_row, "range4_row"},
     {RowFormat::range3_row, "range3_row"},
     {RowFormat::lloyd4_row, "lloyd4_row"},
     {RowFormat::lloyd3_row, "lloyd3_row"},
     {RowFormat::nvfp4, "nvfp4"},
     {RowFormat::q8_0, "q8_0"},
     {RowFormat::q4_0, "q4_0"},
     {RowFormat::q4_1, "q4_1"},
     {RowFormat::q5_0, "q5_0"},
     {RowFormat::q5_1, "q5_1"},
     {RowFormat::iq4_nl, "iq4_nl"}}};
static_assert([] {
  for (std::size_t i = 0; i < kRowFormats.size(); ++i)
    if (kRowFormats[i].format != static_cast<RowFormat>(i)) return false;
  return kRowFormats.back().format == RowFormat::iq4_nl;
}());
constexpr std::string_view word_of(RowFormat format) {
  return kRowFormats[static_cast<std::size_t>(format)].word;
}

/// What the size of heads must be for the format, as the end of "heads have N numbers, and it
/// takes": "multiples of 16"; "" if this size is one.
std::string lacking_head_size(RowFormat format, std::int64_t head_dim);

/// Rows as they are read back, in float32: the same bits from every body. Where numbers share a
/// scale, one that is not finite spoils all of them: they become NaN. What float16 scales cannot
/// hold becomes infinite or NaN, as in the engines.
struct KvRound {
  RowFormat format = RowFormat::e4m3;
  AnyView<3> from;    // in  [n_heads, n_tokens, head_dim]
  View<float, 3> to;  // out, likewise; it may be `from` itself
  float scale = 1;  // of the four formats without a scale of their own, and nvfp4's for all blocks
};

/// Thread safe as long as outputs differ. Throws Error `usage` for shapes that do not fit together,
/// sizes of heads that the format has not, and a scale that is not positive and finite.
void kv_round(const KvRound& io, const Exec& exec = {});

/// The 2^bits levels of Lloyd and Max for normal numbers of variance 1 / head_dim, ascending, with
/// 3 or 4 bits, as vLLM's TurboQuant finds them.
std::array<float, 16> lloyd_levels(std::int64_t head_dim, int bits);

}  // namespace kvatlas::kernels
