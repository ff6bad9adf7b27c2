// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/colour_maps.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace kvatlas::viewer {

namespace {

#include "viewer/maps/colour_tables.inc"

/// Björn Ottosson's OKLab: equal steps look equal.
struct OkLab {
  double lightness, green_red, blue_yellow;
};

OkLab mix(const OkLab& a, const OkLab& b, double share) {
  return {std::lerp(a.lightness, b.lightness, share), std::lerp(a.green_red, b.green_red, share),
          std::lerp(a.blue_yellow, b.blue_yellow, share)};
}

/// A linear light of 0 to 1 as an sRGB byte.
std::uint8_t srgb_byte(double linear) {
  const double light = std::clamp(linear, 0.0, 1.0);
  const double encoded =
      light <= 0.0031308 ? 12.92 * light : 1.055 * std::pow(light, 1 / 2.4) - 0.055;
  return static_cast<std::uint8_t>(std::lround(255 * encoded));
}

Colour to_srgb(const OkLab& c) {
  const auto cube = [](double v) { return v * v * v; };
  const double l = cube(c.lightness + 0.3963377774 * c.green_red + 0.2158037573 * c.blue_yellow);
  const double m = cube(c.lightness - 0.1055613458 * c.green_red - 0.0638541728 * c.blue_yellow);
  const double s = cube(c.lightness - 0.0894841775 * c.green_red - 1.2914855480 * c.blue_yellow);
  return {srgb_byte(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
          srgb_byte(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
          srgb_byte(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s)};
}

// Ends of one lightness, and all in between within sRGB.
constexpr OkLab kWhite = {1, 0, 0};
constexpr OkLab kBlue = {0.42, -0.02, -0.13}, kBrown = {0.42, 0.045, 0.08};

constexpr std::array<Colour, 8> kOkabeIto = {{{0, 0, 0},
                                              {230, 159, 0},
                                              {86, 180, 233},
                                              {0, 158, 115},
                                              {240, 228, 66},
                                              {0, 114, 178},
                                              {213, 94, 0},
                                              {204, 121, 167}}};

/// sRGB's own curve is near that of CIELAB's lightness.
Colour grey(double position) {
  const auto byte = static_cast<std::uint8_t>(std::lround(255 * position));
  return {byte, byte, byte};
}

/// Between two entries of a table, in sRGB: they are next to each other.
Colour interpolate(const std::array<std::uint32_t, 256>& table, double position) {
  const double place = position * static_cast<double>(table.size() - 1);
  const auto below = std::min(static_cast<std::size_t>(place), table.size() - 2);
  const double share = place - static_cast<double>(below);
  const auto channel = [&](int shift) {
    const auto of = [&](std::size_t entry) {
      return static_cast<double>((table[entry] >> shift) & 0xffu);
    };
    return static_cast<std::uint8_t>(std::lround(std::lerp(of(below), of(below + 1), share)));
  };
  return {channel(16), channel(8), channel(0)};
}

}  // namespace

const char* colour_map_name(ColourMap map) {
  switch (map) {
    case ColourMap::viridis:
      return "viridis";
    case ColourMap::cividis:
      return "cividis";
    case ColourMap::magma:
      return "magma";
    case ColourMap::grey:
      return "grey";
    case ColourMap::blue_white_brown:
      break;
  }
  return "blue-white-brown";
}

bool is_diverging(ColourMap map) { return map == ColourMap::blue_white_brown; }

Colour colour_at(ColourMap map, double position) {
  const double p = std::clamp(position, 0.0, 1.0);
  switch (map) {
    case ColourMap::viridis:
      return interpolate(kViridis, p);
    case ColourMap::cividis:
      return interpolate(kCividis, p);
    case ColourMap::magma:
      return interpolate(kMagma, p);
    case ColourMap::grey:
      return grey(p);
    case ColourMap::blue_white_brown:
      break;
  }
  return to_srgb(p < 0.5 ? mix(kBlue, kWhite, 2 * p) : mix(kBrown, kWhite, 2 - 2 * p));
}

Palette make_palette(ColourMap map, Colour missing, Colour blank) {
  Palette palette;
  for (int index = kFirstIndex; index <= kLastIndex; ++index)
    palette[index] =
        colour_at(map, static_cast<double>(index - kFirstIndex) / (kLastIndex - kFirstIndex));
  palette[kZeroIndex] = colour_at(map, is_diverging(map) ? 0.5 : 0);
  palette[kMissingIndex] = missing;
  palette[kMaskedIndex] = blank;
  return palette;
}

std::span<const Colour, 8> policy_colours() { return kOkabeIto; }

}  // namespace kvatlas::viewer
