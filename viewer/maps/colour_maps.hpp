// SPDX-License-Identifier: Apache-2.0
// Colours of maps and of policies. A map is painted from 8-bit indices (viewer/maps/scale.hpp) and
// a palette, so choosing another colour map only makes another palette.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace kvatlas::viewer {

struct Colour {
  std::uint8_t red = 0, green = 0, blue = 0;
  bool operator==(const Colour&) const = default;
};

/// What an index of a map stands for. There is an odd number of indices for values, so that a
/// diverging colour map has a middle one, which is white.
inline constexpr std::uint8_t kZeroIndex = 0;  // exactly zero
inline constexpr std::uint8_t kFirstIndex = 1, kLastIndex = 253;
/// A value that is not known, which is hatched.
inline constexpr std::uint8_t kMissingIndex = 254;
/// A cell outside the causal half, which is left blank.
inline constexpr std::uint8_t kMaskedIndex = 255;

enum class ColourMap : std::uint8_t { viridis, cividis, magma, grey, blue_white_brown };
inline constexpr std::array kColourMaps = {ColourMap::viridis, ColourMap::cividis, ColourMap::magma,
                                           ColourMap::grey, ColourMap::blue_white_brown};
/// The name of a colour map: "viridis", …, "blue-white-brown".
const char* colour_map_name(ColourMap map);
/// Whether a colour map is for differences: its range must reach equally far on both sides of 0.
bool is_diverging(ColourMap map);

/// The colour at a position from 0 (the lowest value) to 1. A position outside gets the colour of
/// the nearer end.
Colour colour_at(ColourMap map, double position);

/// A colour for every index. Zero takes the lowest colour, in a diverging map the middle one. The
/// window gives `missing` and `blank`, for they depend on whether it is light or dark.
using Palette = std::array<Colour, 256>;
Palette make_palette(ColourMap map, Colour missing, Colour blank);

/// The eight colours of Okabe and Ito, black first. They can be told apart with every kind of
/// colour vision.
std::span<const Colour, 8> policy_colours();

}  // namespace kvatlas::viewer
