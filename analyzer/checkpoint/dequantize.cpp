// SPDX-License-Identifier: Apache-2.0
// The block formats of GGUF. Loops over a block have constant bounds and no branches, so that the
// compiler turns them into vector code. q: the stored small integers, d and m: the float16 scale
// and offset of a block; the K formats scale groups of 16 or 32 values again by small integers.
#include <bit>
#include <cmath>
#include <cstring>

#include "analyzer/checkpoint/dequantize_impl.hpp"

namespace kvatlas::model {
namespace {

/// f16_to_float without branches, for whole tensors.
float convert_f16(std::uint32_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  const std::uint32_t not_finite = magnitude >= 0x7c00u ? 112u << 23 : 0u;
  const std::uint32_t normal = (magnitude << 13) + (112u << 23) + not_finite;
  const auto small = std::bit_cast<std::uint32_t>(
      static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f);
  const std::uint32_t is_small = magnitude < 0x400u ? ~0u : 0u;
  return std::bit_cast<float>(sign | (small & is_small) | (normal & ~is_small));
}

void decode_f16(const Byte* in, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t half;
    std::memcpy(&half, in + 2 * i, 2);
    out[i] = convert_f16(half);
  }
}

void decode_bf16(const Byte* in, std::int64_t count, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, in + 2 * i, 2);
    out[i] = bf16_to_float(bits);
  }
}

// Formats of 32 values a block. The first 16 values lie in the low halves of 16 bytes, the others
// in the high halves.

void q4_0(const Byte* in, float* out) {
  const float d = load_f16(in);
  const Byte* q = in + 2;
  for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>((q[i] & 15) - 8);
  for (int i = 0; i < 16; ++i) out[16 + i] = d * static_cast<float>((q[i] >> 4) - 8);
}

void q4_1(const Byte* in, float* out) {
  const float d = load_f16(in), m = load_f16(in + 2);
  const Byte* q = in + 4;
  for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>(q[i] & 15) + m;
  for (int i = 0; i < 16; ++i) out[16 + i] = d * static_cast<float>(q[i] >> 4) + m;
}

/// The fifth bits of 32 values, as 0 or 16 each.
void fifth_bits(const Byte* in, int* high) {
  const std::uint32_t bits = load_u32(in);
  for (int i = 0; i < 32; ++i) high[i] = (bits & (1u << i)) != 0 ? 16 : 0;
}

void q5_0(const Byte* in, float* out) {
  const float d = load_f16(in);
  const Byte* q = in + 6;
  int high[32];
  fifth_bits(in + 2, high);
  for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>(((q[i] & 15) | high[i]) - 16);
  for (int i = 0; i < 16; ++i)
    out[16 + i] = d * static_cast<float>(((q[i] >> 4) | high[16 + i]) - 16);
}

void q5_1(const Byte* in, float* out) {
  const float d = load_f16(in), m = load_f16(in + 2);
  const Byte* q = in + 8;
  int high[32];
  fifth_bits(in + 4, high);
  for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>((q[i] & 15) | high[i]) + m;
  for (int i = 0; i < 16; ++i) out[16 + i] = d * static_cast<float>((q[i] >> 4) | high[16 + i]) + m;
}

void q8_0(const Byte* in, float* out) {
  const float d = load_f16(in);
  const Byte* q = in + 2;
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<std::int8_t>(q[i]));
}

constexpr std::int8_t kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};

/// 32 values of the table kNonLinear times d.
void non_linear(const Byte* q, float d, float* out) {
  for (int i = 0; i < 16; ++i) out[i] = d * static_cast<float>(kNonLinear[q[i] & 15]);
  for (int i = 0; i < 16; ++i) out[16 + i] = d * static_cast<float>(kNonLinear[q[i] >> 4]);
}

void iq4_nl(const Byte* in, float* out) { non_linear(in + 2, load_f16(in), out); }

/// Doubled, so that the power of two before them is a half smaller.
void mxfp4(const Byte* in, float* out) {
  static constexpr float kValues[16] = {0,     1,  2,  3,  4,  6,  8,  12,
                                        -0.0F, -1, -2, -3, -4, -6, -8, -12};
  const float d = std::ldexp(1.0F, in[0] - 128);
  for (int i = 0; i < 16; ++i) {
    out[i] = kValues[in[1 + i] & 15] * d;
    out[i + 16] = kValues[in[1 + i] >> 4] * d;
  }
}

/// 4 bits of exponent and 3 of mantissa; no infinities, and NaN where all of them are set.
float load_f8_e4m3(Byte byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  const float magnitude = exponent == 15 && mantissa == 7 ? std::nanf("")
                          : exponent == 0
                              ? static_cast<float>(mantissa) * 0x1p-9F
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return byte & 0x80 ? -magnitude : magnitude;
}

// Formats of 256 values a block.

void iq4_xs(const Byte* in, float* out) {
  const float d = load_f16(in);
  const std::uint32_t high = load_u16(in + 2);
  const Byte* low = in + 4;
  for (int group = 0; group < 8; ++group) {
    const int scale = ((low[group / 2] >> (4 * (group % 2))) & 15) |
                      static_cast<int>(((high >> (2 * group)) & 3u) << 4);
    non_linear(in + 8 + 16 * group, d * static_cast<float>(scale - 32), out + 32 * group);
  }
}

void q2_k(const Byte* in, float* out) {
  const Byte* scales = in;
  const float d = load_f16(in + 80), m = load_f16(in + 82);
  for (int half = 0; half < 2; ++half) {
    const Byte* q = in + 16 + 32 * half;
    for (int group = 0; group < 8; ++group) {  // 16 values
      const Byte scale = scales[8 * half + group];
      const float step = d * static_cast<float>(scale & 15);
      const float offset = m * static_cast<float>(scale >> 4);
      const int shift = 2 * (group / 2);
      const Byte* source = q + 16 * (group % 2);
      for (int i = 0; i < 16; ++i)
        *out++ = step * static_cast<float>((source[i] >> shift) & 3) - offset;
    }
  }
}

void q3_k(const Byte* in, float* out) {
  const Byte* mask = in;
  const Byte* packed = in + 96;  // 16 scales of 6 bits: low four bits, then high two
  const float d = load_f16(in + 108);
  for (int half = 0; half < 2; ++half) {
    const Byte* q = in + 32 + 32 * half;
    for (int group = 0; group < 8; ++group) {
      const int number = 8 * half + group;
      const int low = (packed[number % 8] >> (4 * (number / 8))) & 15;
      const int high = (packed[8 + number % 4] >> (2 * (number / 4))) & 3;
      const float step = d * static_cast<float>((low | (high << 4)) - 32);
      const int shift = 2 * (group / 2), bit = 4 * half + group / 2;
      const Byte* source = q + 16 * (group % 2);
      const Byte* third = mask + 16 * (group % 2);
      for (int i = 0; i < 16; ++i)
        *out++ = step * static_cast<float>(((source[i] >> shift) & 3) - 4 +
                                           (((third[i] >> bit) & 1) << 2));
    }
  }
}

/// Scale and offset number `group` (of 8) of Q4_K and Q5_K: 6 bits each, packed in 12 bytes.
void scale_and_offset(const Byte* packed, int group, int& scale, int& offset) {
  if (group < 4) {
    scale = packed[group] & 63;
    offset = packed[group + 4] & 63;
  } else {
    scale = (packed[group + 4] & 15) | ((packed[group - 4] >> 6) << 4);
    offset = (packed[group + 4] >> 4) | ((packed[group] >> 6) << 4);
  }
}

void q4_k(const Byte* in, float* out) {
  const float d = load_f16(in), m = load_f16(in + 2);
  for (int group = 0; group < 8; ++group) {
    int scale, offset;
    scale_and_offset(in + 4, group, scale, offset);
    const float step = d * static_cast<float>(scale), low = m * static_cast<float>(offset);
    const Byte* q = in + 16 + 32 * (group / 2);
    const int shift = 4 * (group % 2);
    for (int i = 0; i < 32; ++i)
      out[32 * group + i] = step * static_cast<float>((q[i] >> shift) & 15) - low;
  }
}

void q5_k(const Byte* in, float* out) {
  const float d = load_f16(in), m = load_f16(in + 2);
  const Byte* fifth = in + 16;
  for (int group = 0; group < 8; ++group) {
    int scale, offset;
    scale_and_offset(in + 4, group, scale, offset);
    const float step = d * static_cast<float>(scale), low = m * static_cast<float>(offset);
    const Byte* q = in + 48 + 32 * (group / 2);
    const int shift = 4 * (group % 2);
    for (int i = 0; i < 32; ++i) {
      const int value = ((q[i] >> shift) & 15) | (((fifth[i] >> group) & 1) << 4);
      out[32 * group + i] = step * static_cast<float>(value) - low;
    }
  }
}

void q6_k(const Byte* in, float* out) {
  const Byte* scales = in + 192;
  const float d = load_f16(in + 208);
  for (int group = 0; group < 16; ++group) {  // 16 values
    const int half = group / 8, row = (group % 8) / 2, side = 16 * (group % 2);
    const float step = d * static_cast<float>(static_cast<std::int8_t>(scales[group]));
    const Byte* low = in + 64 * half + 32 * (row % 2) + side;
    const Byte* high = in + 128 + 32 * half + side;
    const int low_shift = 4 * (row / 2), high_shift = 2 * row;
    for (int i = 0; i < 16; ++i) {
      const int value = ((low[i] >> low_shift) & 15) | (((high[i] >> high_shift) & 3) << 4);
      out[16 * group + i] = step * static_cast<float>(value - 32);
    }
  }
}

}  // namespace

void dequantize(TensorType type, const std::byte* bytes, std::int64_t count, float* out) {
  if (count == 0) return;  // an empty tensor's pointers may be null, which memcpy must not be given
  const auto* in = reinterpret_cast<const Byte*>(bytes);
  switch (type) {
    case TensorType::f32:
      if (count > 0) std::memcpy(out, in, static_cast<std::size_t>(count) * sizeof(float));
      return;
    case TensorType::f16:
      return decode_f16(in, count, out);
    case TensorType::bf16:
      return decode_bf16(in, count, out);
    case TensorType::q4_0:
      return decode_blocks<32, 18, q4_0>(in, count, out);
    case TensorType::q4_1:
      return decode_blocks<32, 20, q4_1>(in, count, out);
    case TensorType::q5_0:
      return decode_blocks<32, 22, q5_0>(in, count, out);
    case TensorType::q5_1:
      return decode_blocks<32, 24, q5_1>(in, count, out);
    case TensorType::q8_0:
      return decode_blocks<32, 34, q8_0>(in, count, out);
    case TensorType::q2_k:
      return decode_blocks<256, 84, q2_k>(in, count, out);
    case TensorType::q3_k:
      return decode_blocks<256, 110, q3_k>(in, count, out);
    case TensorType::q4_k:
      return decode_blocks<256, 144, q4_k>(in, count, out);
    case TensorType::q5_k:
      return decode_blocks<256, 176, q5_k>(in, count, out);
    case TensorType::q6_k:
      return decode_blocks<256, 210, q6_k>(in, count, out);
    case TensorType::iq4_nl:
      return decode_blocks<32, 18, iq4_nl>(in, count, out);
    case TensorType::iq4_xs:
      return decode_blocks<256, 136, iq4_xs>(in, count, out);
    case TensorType::mxfp4:
      return decode_blocks<32, 17, mxfp4>(in, count, out);
    case TensorType::iq2_xxs:
    case TensorType::iq2_xs:
    case TensorType::iq2_s:
    case TensorType::iq3_xxs:
    case TensorType::iq3_s:
    case TensorType::iq1_s:
    case TensorType::iq1_m:
    case TensorType::tq1_0:
    case TensorType::tq2_0:
      return dequantize_codes(type, in, count, out);
    case TensorType::f8_e4m3:
      for (std::int64_t i = 0; i < count; ++i) out[i] = load_f8_e4m3(in[i]);
      return;
    case TensorType::i8:
      for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<std::int8_t>(in[i]);
      return;
    case TensorType::u8:
      for (std::int64_t i = 0; i < count; ++i) out[i] = in[i];
      return;
    case TensorType::i32:
      for (std::int64_t i = 0; i < count; ++i) {
        std::int32_t value;
        std::memcpy(&value, in + 4 * i, sizeof value);
        out[i] = static_cast<float>(value);
      }
      return;
  }
}

}  // namespace kvatlas::model
