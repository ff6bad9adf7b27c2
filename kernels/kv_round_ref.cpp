// SPDX-License-Identifier: Apache-2.0
// The specification of kv_round.hpp, a format at a time, in float32: the numbers are defined bit
// for bit.
#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "kernels/kv_round_impl.hpp"
#include "kernels/read.hpp"

namespace kvatlas::kernels::reference {
namespace {

using RoundedRow = std::vector<float>;

float as_half(float x) { return f16_to_float(float_to_f16(x)); }

/// To the nearest number of this format, ties to even, or toward zero; at most `most`.
float in_bits(float x, float most, int mantissa, int least_exponent, bool cut) {
  if (std::isnan(x)) return x;
  const float size = std::min(std::abs(x), most);
  if (size == 0) return x;
  const float step = std::ldexp(1.0f, std::max(std::ilogb(size), least_exponent) - mantissa);
  const float steps = size / step;
  return std::copysign((cut ? std::trunc(steps) : std::nearbyint(steps)) * step, x);
}
float in_e4m3(float x) { return in_bits(x, 448, 3, -6, false); }

void for_groups(RoundedRow& row, std::int64_t size,
                const std::function<void(std::span<float>)>& change) {
  for (std::int64_t begin = 0; begin < std::ssize(row); begin += size) {
    const std::span<float> group(row.data() + begin,
                                 static_cast<std::size_t>(std::min(size, std::ssize(row) - begin)));
    if (std::all_of(group.begin(), group.end(), [](float x) { return std::isfinite(x); }))
      change(group);
    else
      std::fill(group.begin(), group.end(), std::numeric_limits<float>::quiet_NaN());
  }
}

float largest(std::span<const float> group) {
  return *std::max_element(group.begin(), group.end(),
                           [](float a, float b) { return std::abs(a) < std::abs(b); });
}

/// The element (i, j) of the matrix of Walsh and Hadamard is negative where i and j have an odd
/// number of bits in common; sums are taken of two, of two of those, and so on.
void walsh(std::span<float> row) {
  for (std::size_t bit = 1; bit < row.size(); bit *= 2) {
    const RoundedRow last(row.begin(), row.end());
    for (std::size_t i = 0; i < row.size(); ++i)
      row[i] = (i & bit) == 0 ? last[i] + last[i | bit] : last[i ^ bit] - last[i];
  }
}

void int4_row(RoundedRow& row, const RowTables& tables) {
  const std::int64_t order = rotated_at_a_time(std::ssize(row));
  const auto rotate = [&](bool signs_first) {
    for (std::int64_t begin = 0; begin < std::ssize(row); begin += order) {
      const std::span<float> block(row.data() + begin, static_cast<std::size_t>(order));
      const auto turn = [&] {
        for (std::size_t i = 0; i < block.size(); ++i)
          if ((tables.signs[i / 32] >> (i % 32) & 1u) != 0) block[i] = -block[i];
      };
      if (signs_first) turn();
      walsh(block);
      if (!signs_first) turn();
    }
  };
  rotate(true);
  for_groups(row, std::ssize(row), [](std::span<float> group) {
    const auto [low, high] = std::minmax_element(group.begin(), group.end());
    const float step = std::max((*high - *low) / 15, 1e-6f);
    const float zero = std::clamp(half_away(-*low / step), 0.0f, 15.0f);
    const float stored = float_of(bits_of(step) / 16 * 16), factor = 1 / step;
    for (float& x : group)
      x = (std::clamp(half_away(x * factor + zero), 0.0f, 15.0f) - zero) * stored;
  });
  rotate(false);
  for (float& x : row) x /= static_cast<float>(order);
}

void range_row(RoundedRow& row, int bits) {
  for_groups(row, std::ssize(row), [&](std::span<float> group) {
    const auto most = static_cast<float>((1 << bits) - 1);
    const auto [least, greatest] = std::minmax_element(group.begin(), group.end());
    const float low = *least, exact = (*greatest - low) / most;
    const float step = exact > 1e-8f ? exact : 1e-8f;
    for (float& x : group)
      x = std::clamp(std::trunc((x - low) / step + 0.5f), 0.0f, most) * as_half(step) +
          as_half(low);
  });
}

void lloyd_row(RoundedRow& row, const RowTables& tables) {
  const auto length_of = [](const RoundedRow& of) {
    std::vector<double> sums;
    for (const float x : of) sums.push_back(static_cast<double>(x) * static_cast<double>(x));
    while (sums.size() > 1) {
      const std::size_t half = sums.size() / 2;
      for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
      sums.resize(half);
    }
    return sums.front();
  };
  const auto unit = static_cast<float>(1 / std::sqrt(static_cast<double>(row.size())));
  const auto length = static_cast<float>(std::sqrt(length_of(row)));
  const auto rotate = [&] {
    RoundedRow turned(row.size());
    for (std::size_t i = 0; i < row.size(); ++i)
      for (std::size_t j = 0; j < row.size(); ++j)
        turned[j] = sum_of_product(turned[j], row[i], std::popcount(i & j) % 2 == 0 ? unit : -unit);
    row = turned;
  };
  for (float& x : row) x /= length + 1e-8f;
  rotate();
  for_groups(row, std::ssize(row), [&](std::span<float> group) {
    for (float& x : group) {
      const auto* const end = tables.midpoints + tables.count - 1;
      x = tables.levels[std::upper_bound(tables.midpoints, end, x) - tables.midpoints];
    }
  });
  const auto again = static_cast<float>(1 / std::sqrt(length_of(row) + 1e-16));
  for (float& x : row) x = as_half(length) * (x * again);
  rotate();
}

void nvfp4(RoundedRow& row, float scale) {
  for_groups(row, 16, [&](std::span<float> group) {
    const float inverse = 1 / scale;
    const float block = in_e4m3(inverse * (std::abs(largest(group)) * (1.0f / 6)));
    const float factor = block == 0 ? 0 : 1 / (block * (1 / inverse));
    for (float& x : group) {
      const float size = std::abs(x * factor);
      const float steps = size < 2 ? 2 : size < 4 ? 1 : 0.5f;  // in a unit
      x = std::copysign(std::min(std::nearbyint(size * steps) / steps, 6.0f), x) * (block * scale);
    }
  });
}

void blocks(RoundedRow& row, RowFormat format, const RowTables& tables) {
  for_groups(row, 32, [&](std::span<float> group) {
    const auto inverse = [](float x) { return x == 0 ? 0 : 1 / x; };
    const auto [least, greatest] = std::minmax_element(group.begin(), group.end());
    const float low = *least, spread = *greatest - low, most = largest(group);
    switch (format) {
      case RowFormat::q8_0: {
        const float step = std::abs(most) / 127, factor = inverse(step);
        for (float& x : group) x = std::round(x * factor) * as_half(step);
        break;
      }
      case RowFormat::q4_0:
      case RowFormat::q5_0: {
        const float half = format == RowFormat::q4_0 ? 8 : 16;
        const float step = most / -half, factor = inverse(step);
        for (float& x : group)
          x = (std::min(std::trunc(x * factor + (half + 0.5f)), 2 * half - 1) - half) *
              as_half(step);
        break;
      }
      case RowFormat::q4_1:
      case RowFormat::q5_1: {
        const float codes = format == RowFormat::q4_1 ? 15 : 31;
        const float step = spread / codes, factor = inverse(step);
        for (float& x : group)
          x = std::min(std::trunc((x - low) * factor + 0.5f), codes) * as_half(step) + as_half(low);
        break;
      }
      default: {
        const float factor = std::abs(most) < 1e-15f ? 0 : inverse(most / -127);
        float with_numbers = 0, with_levels = 0;
        RoundedRow levels;
        for (const float x : group) {
          const auto* const end = tables.midpoints + 15;
          const float level =
              tables.levels[std::upper_bound(tables.midpoints, end, x * factor) - tables.midpoints];
          levels.push_back(level);
          with_numbers += x * x * level * x;
          with_levels += x * x * level * level;
        }
        const float step = with_levels > 0 ? with_numbers / with_levels : 0;
        for (std::size_t i = 0; i < group.size(); ++i) group[i] = levels[i] * as_half(step);
      }
    }
  });
}

void round_row(RoundedRow& row, RowFormat format, const RowTables& tables, float scale) {
  const auto scaled = [&](float most, int mantissa, int least, bool cut) {
    const float inverse = 1 / scale;
    for (float& x : row)
      x = in_bits(cut ? x * inverse : x / scale, most, mantissa, least, cut) * scale;
  };
  switch (format) {
    case RowFormat::e4m3:
    case RowFormat::e4m3_cut:
      return scaled(448, 3, -6, format == RowFormat::e4m3_cut);
    case RowFormat::e5m2:
    case RowFormat::e5m2_cut:
      return scaled(57344, 2, -14, format == RowFormat::e5m2_cut);
    case RowFormat::int8_row:
    case RowFormat::e4m3_row:
      return for_groups(row, std::ssize(row), [&](std::span<float> group) {
        const bool whole = format == RowFormat::int8_row;
        const float step = std::max(std::abs(largest(group)) / (whole ? 127.0f : 448.0f), 1e-6f);
        const float factor = 1 / step;
        for (float& x : group)
          x = (whole ? std::clamp(half_away(x * factor), -128.0f, 127.0f) : in_e4m3(x * factor)) *
              step;
      });
    case RowFormat::int4_row:
      return int4_row(row, tables);
    case RowFormat::range4_row:
      return range_row(row, 4);
    case RowFormat::range3_row:
      return range_row(row, 3);
    case RowFormat::lloyd4_row:
    case RowFormat::lloyd3_row:
      return lloyd_row(row, tables);
    case RowFormat::nvfp4:
      return nvfp4(row, scale);
    default:
      return blocks(row, format, tables);
  }
}

}  // namespace

void kv_round(const KvRound& io) {
  const auto& [heads, tokens, channels] = io.from.sizes;
  const RowTables tables = row_tables(io.format, channels);
  RoundedRow row(static_cast<std::size_t>(channels));
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < tokens; ++i) {
      for (std::int64_t c = 0; c < channels; ++c)
        row[c] = static_cast<float>(read(io.from, h, i, c));
      round_row(row, io.format, tables, io.scale);
      for (std::int64_t c = 0; c < channels; ++c) io.to(h, i, c) = row[c];
    }
}

}  // namespace kvatlas::kernels::reference
