// SPDX-License-Identifier: Apache-2.0
// Colours of maps and of policies. A map is painted from 8-bit indices (viewer/maps/scale.hpp) and
// a palette, so another colour map costs a palette.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace kvatlas::viewer {

struct Colour {
  std::uint8_t red = 0, green = 0, blue = 0;
  bool operator==(const Colour&) const = default;
};

/// What an index of a map stands for. A value's indices are odd in number, so that a diverging map
/// has a middle one, which is white.
inline constexpr std::uint8_t kZeroIndex = 0;  // exactly zero
inline constexpr std::uint8_t kFirstIndex = 1, kLastIndex = 253;
inline constexpr std::uint8_t kMissingIndex = 254;  // not known: to be hatched
inline constexpr std::uint8_t kMaskedIndex = 255;   // outside the causal half: left blank

enum class ColourMap : std::uint8_t { viridis, cividis, magma, grey, blue_white_brown };
inline constexpr std::array kColourMaps = {ColourMap::viridis, ColourMap::cividis, ColourMap::magma,
                                           ColourMap::grey, ColourMap::blue_white_brown};
/// "viridis", …, "blue-white-brown".
const char* colour_map_name(ColourMap map);
/// For differences: to be used with a range that is the same on both sides of 0.
bool is_diverging(ColourMap map);

/// The colour at `position`, 0 (lowest value) to 1; what lies outside counts as the nearer end.
Colour colour_at(ColourMap map, double position);

/// A colour for every index. Zero takes the lowest colour, in a diverging map the middle one.
/// `missing` and `blank` are the window's, for they depend on its being light or dark.
using Palette = std::array<Colour, 256>;
Palette make_palette(ColourMap map, Colour missing, Colour blank);

/// Okabe and Ito's eight, told apart with every kind of colour vision; black first.
std::span<const Colour, 8> policy_colours();

}  // namespace kvatlas::viewer
