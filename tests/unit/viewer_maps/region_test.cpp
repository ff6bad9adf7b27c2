// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/region.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/error_of.hpp"

namespace kvatlas::viewer {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Causal attention of n tokens, each to all keys up to its own alike, as block means and maxima.
struct EvenAttention {
  EvenAttention(std::int64_t tokens, std::int64_t block)
      : n_tokens(tokens), block_tokens(block), side((tokens + block - 1) / block) {
    for (std::int64_t row = 0; row < side; ++row)
      for (std::int64_t column = 0; column < side; ++column) {
        double sum = 0;
        float greatest = 0;
        std::int64_t count = 0;
        for (std::int64_t i = row * block; i < std::min(tokens, (row + 1) * block); ++i)
          for (std::int64_t j = column * block; j < std::min(tokens, (column + 1) * block); ++j) {
            const double value = j <= i ? 1 / static_cast<double>(i + 1) : 0;
            sum += value;
            greatest = std::max(greatest, static_cast<float>(value));
            ++count;
          }
        means.push_back(static_cast<float>(sum / static_cast<double>(count)));
        maxima.push_back(greatest);
      }
  }
  Region whole() const { return {{means, side, side}, maxima, block_tokens, n_tokens}; }

  std::int64_t n_tokens, block_tokens, side;
  std::vector<float> means, maxima;
};

TEST(Region, OfAllOfAMap) {
  for (const std::int64_t block : {1, 2, 4, 64}) {
    const EvenAttention map(11, block);  // the last block is partial
    const auto found = region_statistics(map.whole());
    EXPECT_NEAR(found.sum, 11, 1e-5) << block;
    EXPECT_EQ(found.pairs, 11 * 12 / 2);
    EXPECT_NEAR(found.mean, 11.0 / 66, 1e-6);
    EXPECT_EQ(found.maximum, 1);
    EXPECT_NEAR(found.share_of_rows, 1, 1e-6);
    EXPECT_EQ(found.missing, 0);
  }
}

TEST(Region, EntropyIsOfTheCells) {
  const std::vector<float> even(8, 0.125F), one = {0, 0, 0, 0, 0, 0.5F, 0, 0};
  EXPECT_NEAR(region_statistics({{even, 1, 8, 100, 0}, {}, 1, 101}).entropy, 3, 1e-9);
  EXPECT_EQ(region_statistics({{one, 1, 8, 100, 0}, {}, 1, 101}).entropy, 0);
  const std::vector<float> none(8, 0.0F);
  const auto found = region_statistics({{none, 1, 8, 100, 0}, {}, 1, 101});
  EXPECT_EQ(found.entropy, 0);
  EXPECT_EQ(found.mean, 0);
}

TEST(Region, OfAPartBelowTheDiagonal) {
  const EvenAttention map(8, 1);
  // Queries 6 and 7, keys 0 to 2.
  std::vector<float> part;
  for (const std::size_t row : {6, 7})
    for (std::size_t column = 0; column < 3; ++column) part.push_back(map.means[row * 8 + column]);
  const auto found = region_statistics({{part, 2, 3, 6, 0}, {}, 1, 8});
  EXPECT_NEAR(found.sum, 3.0 / 7 + 3.0 / 8, 1e-6);
  EXPECT_NEAR(found.share_of_rows, (3.0 / 7 + 3.0 / 8) / 2, 1e-6);
  EXPECT_NEAR(found.maximum, 1.0 / 7, 1e-7);
  EXPECT_EQ(found.pairs, 6);
}

TEST(Region, IsOfTheBlocksThatItTouches) {
  EXPECT_EQ(blocks_touched({601, 3, 28, 1}, 8, 700), (TokenRectangle{600, 0, 32, 8}));
  EXPECT_EQ(blocks_touched({600, 0, 32, 8}, 8, 700), (TokenRectangle{600, 0, 32, 8}));
  EXPECT_EQ(blocks_touched({690, 0, 10, 8}, 64, 700), (TokenRectangle{640, 0, 60, 64}));
}

TEST(Region, MaximumNeedsTheMaxima) {
  const std::vector<float> means = {0.01F}, maxima = {0.9F};
  EXPECT_NEAR(region_statistics({{means, 1, 1, 1, 0}, maxima, 64, 200}).maximum, 0.9, 1e-6);
  EXPECT_NEAR(region_statistics({{means, 1, 1, 1, 0}, {}, 64, 200}).maximum, 0.01, 1e-6);
}

TEST(Region, MissingCellsAreLeftOut) {
  const std::vector<float> values = {kNan, kNan, 0.25F, 0.5F};
  const auto found = region_statistics({{values, 2, 2, 6, 0}, {}, 1, 8});
  EXPECT_EQ(found.missing, 2);
  EXPECT_EQ(found.pairs, 2);
  EXPECT_NEAR(found.sum, 0.75, 1e-9);
  EXPECT_NEAR(found.share_of_rows, 0.75, 1e-9);  // of the row that is known
  const std::vector<float> unknown = {kNan};
  EXPECT_EQ(region_statistics({{unknown, 1, 1, 6, 0}, {}, 1, 8}).share_of_rows, 0);
}

TEST(Region, RefusesSizesThatDoNotFit) {
  const std::vector<float> values(3);
  EXPECT_NE(testing_support::error_of([&] { region_statistics({{values, 2, 2}, {}, 1, 8}); }), "");
}

}  // namespace
}  // namespace kvatlas::viewer
