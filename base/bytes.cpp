// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/error.hpp"

namespace kvatlas {

std::int64_t parse_bytes(std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  static constexpr std::array<Unit, 14> kUnits{{{"", 1},
                                                {"B", 1},
                                                {"K", 0x1p10},
                                                {"KiB", 0x1p10},
                                                {"M", 0x1p20},
                                                {"MiB", 0x1p20},
                                                {"G", 0x1p30},
                                                {"GiB", 0x1p30},
                                                {"T", 0x1p40},
                                                {"TiB", 0x1p40},
                                                {"KB", 1e3},
                                                {"MB", 1e6},
                                                {"GB", 1e9},
                                                {"TB", 1e12}}};
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (error == std::errc() && unit.empty() && number >= 1 && number < 0x1p16)
    fail(ErrorCode::usage, quoted(text), " would be so many bytes: write the unit, as in ", text,
         "GiB");
  for (const auto& known : kUnits) {
    const double bytes = number * known.bytes;
    if (error == std::errc() && unit == known.name && (bytes == 0 || bytes >= 1) && bytes < 0x1p62)
      return static_cast<std::int64_t>(bytes);
  }
  fail(ErrorCode::usage, quoted(text),
       " is not a size: write it as 24GiB, 512MiB or a number of bytes");
}

namespace {

std::string rounded_str(std::int64_t bytes, double (*round)(double)) {
  static constexpr std::array<const char*, 5> kNames{"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024.0 && unit + 1 < kNames.size(); ++unit) value /= 1024.0;
  const int decimals = unit == 0 || value >= 100.0 ? 0 : 1;
  const double steps = decimals == 0 ? 1 : 10;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.*f %s", decimals, round(value * steps) / steps,
                kNames[unit]);
  return text.data();
}

}  // namespace

std::string bytes_str(std::int64_t bytes) { return rounded_str(bytes, std::nearbyint); }
std::string enough_bytes_str(std::int64_t bytes) { return rounded_str(bytes, std::ceil); }

}  // namespace kvatlas
