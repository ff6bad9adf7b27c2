// SPDX-License-Identifier: Apache-2.0
#include "viewer/maps/scale.hpp"

#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "viewer/maps/colour_maps.hpp"

namespace kvatlas::viewer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kMiddle = (kFirstIndex + kLastIndex) / 2;

Cells square(const std::vector<float>& values, std::int64_t side, bool causal) {
  return {values, side, side, 0, 0, causal};
}

TEST(Scale, LinearIndices) {
  const Scale scale(ScaleKind::linear, {-2, 2});
  EXPECT_EQ(scale.index(-2), kFirstIndex);
  EXPECT_EQ(scale.index(-kInfinity), kFirstIndex);
  EXPECT_EQ(scale.index(1e-9F), kMiddle);
  EXPECT_EQ(scale.index(0), kZeroIndex);
  EXPECT_EQ(scale.index(2), kLastIndex);
  EXPECT_EQ(scale.index(kInfinity), kLastIndex);
  EXPECT_EQ(scale.index(kNotANumber), kMissingIndex);
}

TEST(Scale, LogAndSquareRootHaveTheirMiddles) {
  const Scale log(ScaleKind::log, {1e-4, 1});
  EXPECT_EQ(log.index(1e-2F), kMiddle);
  EXPECT_EQ(log.index(1e-7F), kFirstIndex);
  EXPECT_EQ(log.index(-1), kFirstIndex);
  const Scale root(ScaleKind::square_root, {0, 1});
  EXPECT_EQ(root.index(0.25F), kMiddle);
  for (const Scale& scale : {log, root})
    for (const double position : {0.0, 0.3, 1.0})
      EXPECT_NEAR(scale.position(scale.value_at(position)), position, 1e-9);
}

TEST(Scale, RankGoesByTheSampleAlone) {
  const Scale scale(ScaleKind::rank, {}, {1, 2, 2, 2, 1000});
  EXPECT_DOUBLE_EQ(scale.position(0.5), 0);
  EXPECT_DOUBLE_EQ(scale.position(2), 0.5);  // the middle of ranks 1 to 4
  EXPECT_DOUBLE_EQ(scale.position(999), 0.8);
  EXPECT_DOUBLE_EQ(scale.position(1e9), 1);
}

TEST(Scale, RefusesRangesWithoutWidth) {
  const auto message = [](ScaleKind kind, Range range) -> std::string {
    try {
      const Scale scale(kind, range);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message(ScaleKind::linear, {1, 1}), HasSubstr("no width"));
  EXPECT_THAT(message(ScaleKind::linear, {0, kInfinity}), HasSubstr("no width"));
  EXPECT_THAT(message(ScaleKind::linear, {kNotANumber, 1}), HasSubstr("no width"));
  EXPECT_THAT(message(ScaleKind::log, {0, 1}), HasSubstr("above 0"));
  EXPECT_THAT(message(ScaleKind::square_root, {-1, 1}), HasSubstr("square-root"));
  EXPECT_THAT(message(ScaleKind::rank, {0, 1}), HasSubstr("rank"));
  EXPECT_THAT(message(ScaleKind::log, {1e-6, 1}), IsEmpty());
}

TEST(RobustRange, LeavesOutOneInAHundredAtEachEnd) {
  std::vector<float> values(101);
  std::iota(values.begin(), values.end(), 0.0F);
  values.back() = 1e9F;
  const Range range = robust_range(values, ScaleKind::linear);
  EXPECT_DOUBLE_EQ(range.low, 1);
  EXPECT_DOUBLE_EQ(range.high, 99);
}

TEST(RobustRange, OfLogIsOfThePositiveValues) {
  const std::vector<float> values = {0, 0, 0, 0, 0.25F, 0.5F};
  EXPECT_GE(robust_range(values, ScaleKind::log).low, 0.25);
}

TEST(RobustRange, IsNeverEmpty) {
  const std::vector<std::vector<float>> samples = {{}, {0}, {0, 0}, {3, 3}, {-3, -3}, {1e-30F}};
  for (const auto& sample : samples)
    for (const ScaleKind kind : {ScaleKind::linear, ScaleKind::log, ScaleKind::square_root})
      EXPECT_NO_THROW(Scale(kind, robust_range(sample, kind)));
  EXPECT_NO_THROW(Scale(ScaleKind::linear, symmetric_range(std::vector<float>{0})));
  const Range both = symmetric_range(std::vector<float>{-1, 4});
  EXPECT_DOUBLE_EQ(both.low, -both.high);
  EXPECT_GT(both.high, 3.9);
}

TEST(SampleVisible, LeavesOutMaskedAndMissing) {
  const std::vector<float> values = {1, 100,         100,  //
                                     2, kNotANumber, 100, 3, 4, kInfinity};
  const Cells cells = square(values, 3, true);
  EXPECT_THAT(sample_visible({&cells, 1}), ElementsAre(1, 2, 3, 4));
}

TEST(SampleVisible, IsBoundedEvenAndTheSameAgain) {
  std::vector<float> values(512 * 512);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 512);
  const std::vector<Cells> twice = {square(values, 512, false), square(values, 512, false)};
  const auto sample = sample_visible(twice, 4096);
  EXPECT_LE(sample.size(), 4096u);
  EXPECT_GE(sample.size(), 4000u);
  EXPECT_EQ(sample, sample_visible(twice, 4096));
  // All columns have their turn, though their number is a power of two.
  EXPECT_NEAR(
      std::accumulate(sample.begin(), sample.end(), 0.0) / static_cast<double>(sample.size()),
      255.5, 8);
  EXPECT_EQ(sample.front(), 0);
  EXPECT_EQ(sample.back(), 511);
}

TEST(Quantise, ReservedLooks) {
  const std::vector<float> values = {0.5F, 9,           9,  //
                                     0,    kNotANumber, 9,  //
                                     1,    1e-8F,       0};
  std::vector<std::uint8_t> indices(9);
  const Scale scale(ScaleKind::log, {1e-4, 1});
  quantise(square(values, 3, true), scale, {}, indices);
  EXPECT_EQ(indices[0], scale.index(0.5F));
  EXPECT_EQ(indices[1], kMaskedIndex);
  EXPECT_EQ(indices[3], kZeroIndex);
  EXPECT_EQ(indices[4], kMissingIndex);
  EXPECT_EQ(indices[6], kLastIndex);
  EXPECT_EQ(indices[7], kFirstIndex);
}

TEST(Quantise, MaskGoesByThePlaceInTheMap) {
  const std::vector<float> values(4, 1.0F);
  std::vector<std::uint8_t> indices(4);
  const Scale scale(ScaleKind::linear, {0, 1});
  quantise({values, 2, 2, 4, 5}, scale, {}, indices);
  EXPECT_THAT(indices, ElementsAre(kMaskedIndex, kMaskedIndex, kLastIndex, kMaskedIndex));
  quantise({values, 2, 2, 5, 4}, scale, {}, indices);
  EXPECT_THAT(indices, ElementsAre(kLastIndex, kLastIndex, kLastIndex, kLastIndex));
}

TEST(Quantise, PerRowEachRowFillsTheScale) {
  const std::vector<float> values = {1, 2, 0.1F, 0.2F};
  const Cells cells = square(values, 2, false);
  std::vector<float> maxima(2, 0.0F);
  raise_row_maxima(cells, maxima);
  EXPECT_THAT(maxima, ElementsAre(2, 0.2F));
  std::vector<std::uint8_t> indices(4);
  quantise(cells, Scale(ScaleKind::linear, {0, 1}), maxima, indices);
  EXPECT_THAT(indices, ElementsAre(kMiddle, kLastIndex, kMiddle, kLastIndex));
}

std::vector<std::string> labels(const Scale& scale, int most) {
  std::vector<std::string> found;
  double before = -1;
  for (const Tick& tick : ticks(scale, most)) {
    EXPECT_GT(tick.position, before);
    before = tick.position;
    found.push_back(tick.label);
  }
  EXPECT_LE(before, 1);
  EXPECT_LE(static_cast<int>(found.size()), most);
  return found;
}

TEST(Ticks, RoundNumbersAndDecades) {
  EXPECT_THAT(labels(Scale(ScaleKind::linear, {0, 1}), 6),
              ElementsAre("0", "0.2", "0.4", "0.6", "0.8", "1"));
  EXPECT_THAT(labels(Scale(ScaleKind::linear, {-0.3, 0.3}), 5), ElementsAre("-0.2", "0", "0.2"));
  EXPECT_THAT(labels(Scale(ScaleKind::log, {3e-5, 0.5}), 6),
              ElementsAre("0.0001", "0.001", "0.01", "0.1"));
  EXPECT_THAT(labels(Scale(ScaleKind::log, {1e-12, 1}), 5),
              ElementsAre("1e-12", "1e-09", "1e-06", "0.001", "1"));
  EXPECT_THAT(labels(Scale(ScaleKind::log, {0.2, 0.9}), 5),
              ElementsAre("0.2", "0.4", "0.6", "0.8"));
  EXPECT_THAT(labels(Scale(ScaleKind::rank, {}, {1, 2, 3, 4, 5}), 5),
              ElementsAre("1", "2", "3", "4", "5"));
}

}  // namespace
}  // namespace kvatlas::viewer
