// SPDX-License-Identifier: Apache-2.0
// GGUF's formats of 256 values a block whose values are 4 or 8 at a time words of a code book, and
// those of ternary numbers. d: the float16 scale of a block, which small integers scale again.
#include <array>
#include <bit>
#include <cstddef>
#include <initializer_list>

#include "analyzer/checkpoint/dequantize_impl.hpp"
#include "analyzer/checkpoint/iq_grids_impl.hpp"
#include "base/error.hpp"

namespace kvatlas::model {
namespace {

template <std::size_t codes, std::size_t width>
using Grid = std::array<std::array<float, width>, codes>;

/// A code book from the gaps between its words (iq_grids_impl.hpp).
template <std::size_t codes, std::size_t width>
constexpr Grid<codes, width> make_grid(const char* gaps, std::initializer_list<float> values) {
  Grid<codes, width> grid{};
  const auto base = static_cast<int>(values.size());
  int number = -1;
  for (auto& word : grid) {
    for (; *gaps == '~'; ++gaps) number += 78;
    number += *gaps++ - '0' + 1;
    int rest = number;
    for (float& value : word) {
      value = values.begin()[rest % base];
      rest /= base;
    }
  }
  return grid;
}

constexpr auto kIq1 = make_grid<2048, 8>(kIQ1SGaps, {-1, 0, 1});
constexpr auto kIq2Xxs = make_grid<256, 8>(kIQ2XXSGaps, {8, 25, 43});
constexpr auto kIq2Xs = make_grid<512, 8>(kIQ2XSGaps, {8, 25, 43});
constexpr auto kIq2S = make_grid<1024, 8>(kIQ2SGaps, {8, 25, 43});
constexpr auto kIq3Xxs = make_grid<256, 4>(kIQ3XXSGaps, {4, 12, 20, 28, 36, 44, 52, 62});
constexpr auto kIq3S = make_grid<512, 4>(kIQ3SGaps, {1, 3, 5, 7, 9, 11, 13, 15});

/// A word times d, and -d where a bit of `signs` is set.
template <std::size_t width>
float* put_word(const std::array<float, width>& word, std::uint32_t signs, float d, float* out) {
  for (std::size_t i = 0; i < width; ++i) {
    const float value = d * word[i];
    out[i] = (signs >> i & 1u) != 0 ? -value : value;
  }
  return out + width;
}

/// Eight signs from seven: the number of negative ones is even.
std::uint32_t even_signs(std::uint32_t seven) {
  seven &= 127;
  return seven | static_cast<std::uint32_t>(std::popcount(seven) & 1) << 7;
}

/// Four bits of a list of scales.
int nibble(const Byte* bytes, int index) { return bytes[index / 2] >> (4 * (index % 2)) & 15; }

void iq2_xxs(const Byte* in, float* out) {
  const float d = load_f16(in);
  for (int group = 0; group < 8; ++group) {
    const Byte* codes = in + 2 + 8 * group;
    const std::uint32_t more = load_u32(codes + 4);
    const float scale = d * (0.5F + static_cast<float>(more >> 28)) * 0.25F;
    for (int i = 0; i < 4; ++i)
      out = put_word(kIq2Xxs[codes[i]], even_signs(more >> (7 * i)), scale, out);
  }
}

void iq2_xs(const Byte* in, float* out) {
  const float d = load_f16(in);
  for (int i = 0; i < 32; ++i) {
    const std::uint32_t code = load_u16(in + 2 + 2 * i);
    const float scale = d * (0.5F + static_cast<float>(nibble(in + 66, i / 2))) * 0.25F;
    out = put_word(kIq2Xs[code & 511], even_signs(code >> 9), scale, out);
  }
}

void iq2_s(const Byte* in, float* out) {
  const float d = load_f16(in);
  for (int i = 0; i < 32; ++i) {
    const int high = in[66 + i / 4] >> (2 * (i % 4)) & 3;
    const float scale = d * (0.5F + static_cast<float>(nibble(in + 74, i / 2))) * 0.25F;
    out = put_word(kIq2S[in[2 + i] | high << 8], in[34 + i], scale, out);
  }
}

void iq3_xxs(const Byte* in, float* out) {
  const float d = load_f16(in);
  const Byte* codes = in + 2;
  for (int group = 0; group < 8; ++group) {
    const std::uint32_t more = load_u32(in + 66 + 4 * group);
    const float scale = d * (0.5F + static_cast<float>(more >> 28)) * 0.5F;
    for (int i = 0; i < 8; ++i)
      out = put_word(kIq3Xxs[*codes++], even_signs(more >> (7 * (i / 2))) >> (4 * (i % 2)), scale,
                     out);
  }
}

void iq3_s(const Byte* in, float* out) {
  const float d = load_f16(in);
  for (int i = 0; i < 64; ++i) {
    const int high = in[66 + i / 8] >> (i % 8) & 1;
    const float scale = d * static_cast<float>(1 + 2 * nibble(in + 106, i / 8));
    out = put_word(kIq3S[in[2 + i] | high << 8],
                   static_cast<std::uint32_t>(in[74 + i / 2] >> (4 * (i % 2))), scale, out);
  }
}

/// A word of -1, 0 and 1, all of them moved by an eighth.
float* put_moved(int code, bool down, float d, float* out) {
  for (const float value : kIq1[code]) *out++ = d * (value + (down ? -0.125F : 0.125F));
  return out;
}

void iq1_s(const Byte* in, float* out) {
  const float d = load_f16(in);
  for (int i = 0; i < 32; ++i) {
    const int more = load_u16(in + 34 + i / 4 * 2);
    const float scale = d * static_cast<float>(2 * (more >> 12 & 7) + 1);
    out = put_moved(in[2 + i] | (more >> (3 * (i % 4)) & 7) << 8, (more & 0x8000) != 0, scale, out);
  }
}

/// The block's scale is scattered over the top bits of four words of smaller scales.
void iq1_m(const Byte* in, float* out) {
  int bits = 0;
  for (int i = 0; i < 4; ++i) bits |= in[49 + 2 * i] >> 4 << (4 * i);
  const float d = f16_to_float(static_cast<std::uint16_t>(bits));
  for (int i = 0; i < 32; ++i) {
    const int more = nibble(in + 32, i), scales = load_u16(in + 48 + i / 8 * 2);
    const float scale = d * static_cast<float>(2 * (scales >> (3 * (i / 2 % 4)) & 7) + 1);
    out = put_moved(in[i] | (more & 7) << 8, (more & 8) != 0, scale, out);
  }
}

/// Up to five ternary numbers of each of `count` bytes: first those that lead, of all bytes.
float* put_ternary(const Byte* in, int count, int digits, float d, float* out) {
  int power = 1;
  for (int digit = 0; digit < digits; ++digit, power *= 3)
    for (int i = 0; i < count; ++i)
      *out++ = d * static_cast<float>(((in[i] * power & 255) * 3 >> 8) - 1);
  return out;
}

void tq1_0(const Byte* in, float* out) {
  const float d = load_f16(in + 52);
  out = put_ternary(in, 32, 5, d, out);
  out = put_ternary(in + 32, 16, 5, d, out);
  put_ternary(in + 48, 4, 4, d, out);
}

void tq2_0(const Byte* in, float* out) {
  const float d = load_f16(in + 64);
  for (int half = 0; half < 2; ++half)
    for (int shift = 0; shift < 8; shift += 2)
      for (int i = 0; i < 32; ++i)
        *out++ = d * static_cast<float>((in[32 * half + i] >> shift & 3) - 1);
}

}  // namespace

void dequantize_codes(TensorType type, const Byte* in, std::int64_t count, float* out) {
  switch (type) {
    case TensorType::iq2_xxs:
      return decode_blocks<256, 66, iq2_xxs>(in, count, out);
    case TensorType::iq2_xs:
      return decode_blocks<256, 74, iq2_xs>(in, count, out);
    case TensorType::iq2_s:
      return decode_blocks<256, 82, iq2_s>(in, count, out);
    case TensorType::iq3_xxs:
      return decode_blocks<256, 98, iq3_xxs>(in, count, out);
    case TensorType::iq3_s:
      return decode_blocks<256, 110, iq3_s>(in, count, out);
    case TensorType::iq1_s:
      return decode_blocks<256, 50, iq1_s>(in, count, out);
    case TensorType::iq1_m:
      return decode_blocks<256, 56, iq1_m>(in, count, out);
    case TensorType::tq1_0:
      return decode_blocks<256, 54, tq1_0>(in, count, out);
    case TensorType::tq2_0:
      return decode_blocks<256, 66, tq2_0>(in, count, out);
    default:
      fail(ErrorCode::internal, tensor_type_name(type), " is no type of code words");
  }
}

}  // namespace kvatlas::model
