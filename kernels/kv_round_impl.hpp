// SPDX-License-Identifier: Apache-2.0
// What the CPU body and the CUDA body of kv_round share: the arithmetic of one group. `Ops` has
// what differs: mul() and div() round each product and quotient to float32, half() to float16.
#pragma once

#include <cmath>
#include <cstring>

#include "kernels/kv_round.hpp"

// Computed on the host and on the device alike.
#ifdef __CUDACC__
#define KVATLAS_HOST_DEVICE __host__ __device__
#else
#define KVATLAS_HOST_DEVICE
#endif

namespace kvatlas::kernels {

/// A format's tables, by value, so that a launch carries them to the device.
struct RowTables {
  float levels[16] = {};        // of the formats with uneven levels
  float midpoints[15] = {};     // between them
  int count = 0;                // of levels
  std::uint32_t signs[8] = {};  // int4_row: bit i % 32 of word i / 32 is set where channel i turns
};
RowTables row_tables(RowFormat format, std::int64_t head_dim);

/// Channels that share a scale: 0 for the whole row, 1 if none do.
KVATLAS_HOST_DEVICE constexpr std::int64_t row_group(RowFormat format) {
  switch (format) {
    case RowFormat::e4m3:
    case RowFormat::e4m3_cut:
    case RowFormat::e5m2:
    case RowFormat::e5m2_cut:
      return 1;
    case RowFormat::nvfp4:
      return 16;
    case RowFormat::q8_0:
    case RowFormat::q4_0:
    case RowFormat::q4_1:
    case RowFormat::q5_0:
    case RowFormat::q5_1:
    case RowFormat::iq4_nl:
      return 32;
    default:
      return 0;
  }
}
KVATLAS_HOST_DEVICE constexpr bool is_lloyd(RowFormat format) {
  return format == RowFormat::lloyd4_row || format == RowFormat::lloyd3_row;
}
/// The largest power of two that divides the head, which int4_row rotates at a time.
KVATLAS_HOST_DEVICE constexpr std::int64_t rotated_at_a_time(std::int64_t head_dim) {
  return head_dim & -head_dim;
}

/// Numbers of a head that a block of threads holds at a time.
inline constexpr std::int64_t kMostRow = 2048;

/// What a length is raised by before it divides, the factor of a rotation of the whole row, and the
/// factor that gives levels, of which this is the sum of squares, the length 1.
constexpr float kLloydLeast = 1e-8f;
KVATLAS_HOST_DEVICE inline float lloyd_unit(std::int64_t head_dim) {
  return static_cast<float>(1 / sqrt(static_cast<double>(head_dim)));
}
/// acc + x * factor, rounded once but where that lies on a tie of double precision. vLLM's matrix
/// products add so, channel after channel.
KVATLAS_HOST_DEVICE inline float sum_of_product(float acc, float x, float factor) {
  return static_cast<float>(static_cast<double>(acc) +
                            static_cast<double>(x) * static_cast<double>(factor));
}
KVATLAS_HOST_DEVICE inline float lloyd_correction(double square_sum) {
  return static_cast<float>(1 / sqrt(square_sum + 1e-16));
}

KVATLAS_HOST_DEVICE inline std::uint32_t bits_of(float x) {
  std::uint32_t bits = 0;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
KVATLAS_HOST_DEVICE inline float float_of(std::uint32_t bits) {
  float x = 0;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/// The nearest number of so many mantissa bits, ties to even, whose least normal one has the biased
/// exponent `least`: adding 1.5 * 2^23 of its steps leaves whole steps.
KVATLAS_HOST_DEVICE inline float nearest_float(float x, float most, int mantissa, int least) {
  const float size = fminf(fabsf(x), most);
  const int exponent = static_cast<int>(bits_of(size) >> 23);
  const float steps = float_of(
      static_cast<std::uint32_t>((exponent < least ? least : exponent) + 23 - mantissa) << 23 |
      0x400000u);
  return x != x ? x : copysignf((size + steps) - steps, x);
}
KVATLAS_HOST_DEVICE inline float cut_float(float x, float most, int mantissa, int least) {
  const float size = fminf(fabsf(x), most);
  const int exponent = static_cast<int>(bits_of(size) >> 23);
  const float step = float_of(static_cast<std::uint32_t>(least - mantissa) << 23);
  const float kept = exponent < least ? floorf(size / step) * step
                                      : float_of(bits_of(size) & (~0u << (23 - mantissa)));
  return x != x ? x : copysignf(kept, x);
}
KVATLAS_HOST_DEVICE inline float nearest_e4m3(float x) { return nearest_float(x, 448, 3, 121); }

/// The nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6, ties to the even code.
KVATLAS_HOST_DEVICE inline float nearest_e2m1(float x) {
  const float a = fabsf(x);
  const float size = a <= 0.25f   ? 0
                     : a < 0.75f  ? 0.5f
                     : a <= 1.25f ? 1
                     : a < 1.75f  ? 1.5f
                     : a <= 2.5f  ? 2
                     : a < 3.5f   ? 3
                     : a <= 5     ? 4
                                  : 6;
  return x != x ? x : copysignf(size, x);
}

/// The nearest whole number, halves away from zero, as kernels make it of a sum in float32.
KVATLAS_HOST_DEVICE inline float half_away(float x) { return truncf(x >= 0 ? x + 0.5f : x - 0.5f); }

KVATLAS_HOST_DEVICE inline float within(float x, float low, float high) {
  return fminf(fmaxf(x, low), high);
}

/// What is known of the numbers that share a scale.
struct GroupStats {
  float low = INFINITY, high = -INFINITY;
  float largest = 0;  // the first of the largest magnitude, with its sign
  bool finite = true;
  KVATLAS_HOST_DEVICE void add(float x) {
    finite = finite && fabsf(x) <= 3.402823466e38f;
    low = fminf(low, x);
    high = fmaxf(high, x);
    if (fabsf(x) > fabsf(largest)) largest = x;
  }
  KVATLAS_HOST_DEVICE float magnitude() const { return fmaxf(fabsf(low), fabsf(high)); }
};

/// How the numbers of a group become codes and numbers again.
struct GroupCode {
  float factor = 0, zero = 0;   // a code is of x * factor + zero, or as the format says
  float scale = 0, offset = 0;  // of the restored number
  bool finite = true;
};

template <class Ops>
KVATLAS_HOST_DEVICE float inverse_of(float x) {
  return x != 0 ? Ops::div(1, x) : 0.0f;
}

/// iq4_nl needs the group's numbers themselves for its scale; see restore_scale_of_levels().
template <class Ops>
KVATLAS_HOST_DEVICE GroupCode group_code(RowFormat format, const GroupStats& s, float scale) {
  constexpr float kLeast = 1e-6f;
  GroupCode c;
  c.finite = s.finite;
  switch (format) {
    case RowFormat::int8_row:
    case RowFormat::e4m3_row:
      c.scale =
          fmaxf(Ops::div(s.magnitude(), format == RowFormat::int8_row ? 127.0f : 448.0f), kLeast);
      c.factor = Ops::div(1, c.scale);
      break;
    case RowFormat::int4_row: {
      const float step = fmaxf(Ops::div(s.high - s.low, 15), kLeast);
      c.zero = within(half_away(Ops::div(-s.low, step)), 0, 15);
      c.factor = Ops::div(1, step);
      c.scale = float_of(bits_of(step) & ~15u);  // the zero point lies in the lowest bits
      break;
    }
    case RowFormat::range4_row:
    case RowFormat::range3_row: {
      const float step = Ops::div(s.high - s.low, format == RowFormat::range4_row ? 15.0f : 7.0f);
      c.factor = step > 1e-8f ? step : 1e-8f;
      c.zero = s.low;
      c.scale = Ops::half(c.factor);
      c.offset = Ops::half(s.low);
      break;
    }
    case RowFormat::nvfp4: {
      const float inverse = Ops::div(1, scale);
      const float block = nearest_e4m3(Ops::mul(inverse, Ops::mul(s.magnitude(), 1.0f / 6.0f)));
      c.factor = block != 0 ? Ops::div(1, Ops::mul(block, Ops::div(1, inverse))) : 0;
      c.scale = Ops::mul(block, scale);
      break;
    }
    case RowFormat::q8_0:
      c.scale = Ops::div(s.magnitude(), 127);
      c.factor = inverse_of<Ops>(c.scale);
      c.scale = Ops::half(c.scale);
      break;
    case RowFormat::q4_0:
    case RowFormat::q5_0:
      c.zero = format == RowFormat::q4_0 ? 8.0f : 16.0f;
      c.scale = Ops::div(s.largest, -c.zero);
      c.factor = inverse_of<Ops>(c.scale);
      c.scale = Ops::half(c.scale);
      break;
    case RowFormat::q4_1:
    case RowFormat::q5_1:
      c.scale = Ops::div(s.high - s.low, format == RowFormat::q4_1 ? 15.0f : 31.0f);
      c.factor = inverse_of<Ops>(c.scale);
      c.scale = Ops::half(c.scale);
      c.zero = s.low;
      c.offset = Ops::half(s.low);
      break;
    case RowFormat::iq4_nl:
      c.factor = fabsf(s.largest) < 1e-15f ? 0.0f : inverse_of<Ops>(Ops::div(s.largest, -127));
      break;
    default:
      break;
  }
  return c;
}

/// How many of the midpoints are at most x, and the level that stands for it.
KVATLAS_HOST_DEVICE inline float level_of(float x, const RowTables& tables) {
  int code = 0;
  for (int i = 0; i + 1 < tables.count; ++i) code += tables.midpoints[i] <= x ? 1 : 0;
  return tables.levels[code];
}

/// iq4_nl's scale: the one with which the levels come nearest to the numbers, large ones counting
/// more.
template <class Ops>
KVATLAS_HOST_DEVICE void scale_of_levels(GroupCode& c, const float* x, std::int64_t count,
                                         const RowTables& tables) {
  float with_numbers = 0, with_levels = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float level = level_of(Ops::mul(x[i], c.factor), tables);
    const float weighted = Ops::mul(Ops::mul(x[i], x[i]), level);
    with_numbers += Ops::mul(weighted, x[i]);
    with_levels += Ops::mul(weighted, level);
  }
  c.scale = Ops::half(with_levels > 0 ? Ops::div(with_numbers, with_levels) : 0.0f);
}

/// A number as it is read back. Products with codes are exact, so that they may be fused.
template <class Ops>
KVATLAS_HOST_DEVICE float restored(RowFormat format, float x, const GroupCode& c,
                                   const RowTables& tables, float scale) {
  if (!c.finite) return NAN;
  switch (format) {
    case RowFormat::e4m3:
      return Ops::mul(nearest_e4m3(Ops::div(x, scale)), scale);
    case RowFormat::e4m3_cut:
      return Ops::mul(cut_float(Ops::mul(x, Ops::div(1, scale)), 448, 3, 121), scale);
    case RowFormat::e5m2:
      return Ops::mul(nearest_float(Ops::div(x, scale), 57344, 2, 113), scale);
    case RowFormat::e5m2_cut:
      return Ops::mul(cut_float(Ops::mul(x, Ops::div(1, scale)), 57344, 2, 113), scale);
    case RowFormat::int8_row:
      return Ops::mul(within(half_away(Ops::mul(x, c.factor)), -128, 127), c.scale);
    case RowFormat::e4m3_row:
      return Ops::mul(nearest_e4m3(Ops::mul(x, c.factor)), c.scale);
    case RowFormat::int4_row:
      return Ops::mul(within(half_away(Ops::mul(x, c.factor) + c.zero), 0, 15) - c.zero, c.scale);
    case RowFormat::range4_row:
    case RowFormat::range3_row:
      return within(truncf(Ops::div(x - c.zero, c.factor) + 0.5f), 0,
                    format == RowFormat::range4_row ? 15.0f : 7.0f) *
                 c.scale +
             c.offset;
    case RowFormat::lloyd4_row:
    case RowFormat::lloyd3_row:
      return level_of(x, tables);
    case RowFormat::nvfp4:
      return Ops::mul(nearest_e2m1(Ops::mul(x, c.factor)), c.scale);
    case RowFormat::q8_0:
      return roundf(Ops::mul(x, c.factor)) * c.scale;
    case RowFormat::q4_0:
    case RowFormat::q5_0:
      return (fminf(truncf(Ops::mul(x, c.factor) + (c.zero + 0.5f)), 2 * c.zero - 1) - c.zero) *
             c.scale;
    case RowFormat::q4_1:
    case RowFormat::q5_1:
      return fminf(truncf(Ops::mul(x - c.zero, c.factor) + 0.5f),
                   format == RowFormat::q4_1 ? 15.0f : 31.0f) *
                 c.scale +
             c.offset;
    case RowFormat::iq4_nl:
      return level_of(Ops::mul(x, c.factor), tables) * c.scale;
  }
  return x;
}

namespace reference {
void kv_round(const KvRound& io);
}  // namespace reference
namespace cuda {
void kv_round(const KvRound& io, void* stream);
}  // namespace cuda

}  // namespace kvatlas::kernels
