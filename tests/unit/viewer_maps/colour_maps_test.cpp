// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/colour_maps.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include <gtest/gtest.h>

namespace kvatlas::viewer {
namespace {

double linear_light(std::uint8_t byte) {
  const double v = byte / 255.0;
  return v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4);
}

/// CIELAB's L, 0 (black) to 100 (white): another measure than what the palettes are made in.
double lightness(Colour c) {
  const double y =
      0.2126 * linear_light(c.red) + 0.7152 * linear_light(c.green) + 0.0722 * linear_light(c.blue);
  return y > 216.0 / 24389 ? 116 * std::cbrt(y) - 16 : y * 24389 / 27;
}

constexpr Colour kMissing = {1, 2, 3}, kBlank = {250, 251, 252};

TEST(ColourMaps, SequentialOnesGetLighter) {
  for (const ColourMap map : kColourMaps) {
    if (is_diverging(map)) continue;
    SCOPED_TRACE(colour_map_name(map));
    const Palette palette = make_palette(map, kMissing, kBlank);
    const double whole = lightness(palette[kLastIndex]) - lightness(palette[kFirstIndex]);
    EXPECT_GT(whole, 55);
    for (std::size_t i = kFirstIndex; i < kLastIndex; ++i)
      // The colours' rounding to 8 bits takes back at most a tenth of a unit.
      EXPECT_GT(lightness(palette[i + 1]), lightness(palette[i]) - 0.1) << "index " << i;
    // Evenly: no eighth of the scale has less than half its share of the lightness.
    constexpr std::size_t kEighth = (kLastIndex - kFirstIndex) / 8;
    for (std::size_t i = kFirstIndex; i + kEighth <= kLastIndex; i += kEighth)
      EXPECT_GT(lightness(palette[i + kEighth]) - lightness(palette[i]), whole / 16)
          << "from index " << i;
  }
}

TEST(ColourMaps, DivergingOneIsSymmetricAboutWhite) {
  const Palette palette = make_palette(ColourMap::blue_white_brown, kMissing, kBlank);
  constexpr std::size_t kMiddle = (kFirstIndex + kLastIndex) / 2;
  EXPECT_EQ(palette[kMiddle], (Colour{255, 255, 255}));
  for (std::size_t away = 1; kMiddle + away <= kLastIndex; ++away) {
    const Colour below = palette[kMiddle - away], above = palette[kMiddle + away];
    EXPECT_NEAR(lightness(below), lightness(above), 2.5) << away;
    EXPECT_LT(lightness(above), lightness(palette[kMiddle + away - 1]) + 0.1);
    EXPECT_LT(lightness(below), lightness(palette[kMiddle - away + 1]) + 0.1);
  }
  const Colour blue = palette[kFirstIndex], brown = palette[kLastIndex];
  EXPECT_GT(blue.blue, blue.red + 50);
  EXPECT_GT(brown.red, brown.blue + 50);
}

TEST(ColourMaps, EndsAreTheTables) {
  EXPECT_EQ(colour_at(ColourMap::viridis, 0), (Colour{0x44, 0x01, 0x54}));
  EXPECT_EQ(colour_at(ColourMap::viridis, 1), (Colour{0xfd, 0xe7, 0x25}));
  EXPECT_EQ(colour_at(ColourMap::cividis, -3), colour_at(ColourMap::cividis, 0));
  EXPECT_EQ(colour_at(ColourMap::grey, 2), (Colour{255, 255, 255}));
  EXPECT_EQ(colour_at(ColourMap::grey, 0), (Colour{0, 0, 0}));
}

TEST(ColourMaps, ReservedIndices) {
  const Palette sequential = make_palette(ColourMap::magma, kMissing, kBlank);
  EXPECT_EQ(sequential[kZeroIndex], sequential[kFirstIndex]);
  EXPECT_EQ(sequential[kMissingIndex], kMissing);
  EXPECT_EQ(sequential[kMaskedIndex], kBlank);
  const Palette diverging = make_palette(ColourMap::blue_white_brown, kMissing, kBlank);
  EXPECT_EQ(diverging[kZeroIndex], (Colour{255, 255, 255}));
}

TEST(ColourMaps, PolicyColoursDiffer) {
  const auto colours = policy_colours();
  for (std::size_t a = 0; a < colours.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) {
      const auto apart = std::abs(colours[a].red - colours[b].red) +
                         std::abs(colours[a].green - colours[b].green) +
                         std::abs(colours[a].blue - colours[b].blue);
      EXPECT_GT(apart, 75) << a << " and " << b;
    }
}

}  // namespace
}  // namespace kvatlas::viewer
