// SPDX-License-Identifier: Apache-2.0
#include "kernels/lag_scores.hpp"

#include <algorithm>
#include <limits>

#include <gmock/gmock.h>

#include "tests/support/error_of.hpp"
#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels::lag_scores_tests {
namespace {

using namespace testing_support;
using testing::HasSubstr;

struct Case {
  std::int64_t n_heads, n_tokens, head_dim, value_dim, sink;
  std::vector<std::int64_t> lags;
  LagVariant variant = LagVariant::lag;
  DType type = DType::f32;
  Layout layout = Layout::dense;
};

using Scores = std::vector<std::vector<float>>;

Scores scores_on(const Exec& exec, Memory memory, const Case& c, const std::vector<float>& keys,
                 const std::vector<float>& values) {
  const Tensor<3> k(keys, {c.n_heads, c.n_tokens, c.head_dim}, memory, c.type, c.layout);
  const Tensor<3> v(values, {c.n_heads, c.n_tokens, c.value_dim}, memory, c.type, c.layout);
  LagScores io;
  io.keys = k.view;
  io.values = v.view;
  io.sink = c.sink;
  io.variant = c.variant;
  io.lags = c.lags;
  std::vector<Output<float, 2>> outs;
  for (const std::int64_t lag : c.lags) {
    const std::int64_t scored = lag * lag_cut_partitions(c.n_tokens, c.sink, lag);
    io.scores.push_back(outs.emplace_back(std::array{c.n_heads, scored}, memory, c.layout).view);
  }
  lag_scores(io, exec);
  Scores result;
  for (const auto& out : outs) result.push_back(out.values());
  return result;
}

std::vector<std::int64_t> kept_on(const Exec& exec, Memory memory, std::int64_t n_heads,
                                  std::int64_t n_tokens, std::int64_t sink, std::int64_t lag,
                                  std::int64_t keep, const std::vector<float>& values,
                                  Layout layout = Layout::dense) {
  const Tensor<2> scores(values, {n_heads, lag * lag_cut_partitions(n_tokens, sink, lag)}, memory,
                         DType::f32, layout);
  const Output<std::int64_t, 2> positions({n_heads, lag_length(n_tokens, sink, lag, keep)}, memory,
                                          layout);
  LagKept io;
  io.scores = {static_cast<const float*>(scores.view.data), scores.view.sizes, scores.view.strides,
               memory};
  io.n_tokens = n_tokens;
  io.sink = sink;
  io.lag = lag;
  io.keep = keep;
  io.positions = positions.view;
  lag_kept(io, exec);
  return positions.values();
}

class LagScoresTest : public KernelTest {
 protected:
  Scores run(const Case& c, const std::vector<float>& keys, const std::vector<float>& values) {
    return scores_on(exec(), memory(), c, keys, values);
  }
  static Scores reference(const Case& c, const std::vector<float>& keys,
                          const std::vector<float>& values) {
    return scores_on(kReference, Memory::host, c, keys, values);
  }
};

void expect_close(const Scores& got, const Scores& expected, float error) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].size(), expected[i].size());
    for (std::size_t t = 0; t < got[i].size(); ++t) {
      const float a = got[i][t], b = expected[i][t];
      ASSERT_TRUE(std::abs(a - b) <= error * std::abs(b) || a == b ||
                  (std::isnan(a) && std::isnan(b)))
          << "lag " << i << " token " << t << ": " << a << " instead of " << b;
    }
  }
}

TEST_P(LagScoresTest, MatchesTheReference) {
  Random random(31);
  for (LagVariant variant : {LagVariant::lag, LagVariant::local, LagVariant::l2})
    for (Case c : {Case{1, 6, 2, 2, 0, {3}},
                   {2, 40, 5, 3, 4, {7, 1, 12}},
                   {3, 300, 64, 64, 16, {32, 64, 48, 128}},
                   {2, 200, 80, 17, 16, {64}},
                   {1, 1200, 16, 33, 16, {128, 512, 300}},
                   {1, 70, 200, 513, 4, {16, 30}},
                   {2, 150, 24, 24, 3, {20, 50}, LagVariant::lag, DType::f16},
                   {2, 150, 24, 24, 3, {20, 50}, LagVariant::lag, DType::bf16, Layout::strided},
                   {2, 150, 24, 24, 3, {20, 50}, LagVariant::lag, DType::f32, Layout::strided},
                   {3, 150, 64, 64, 3, {20, 50}, LagVariant::lag, DType::f32, Layout::swapped}}) {
      c.variant = variant;
      SCOPED_TRACE(testing::Message()
                   << c.n_tokens << " tokens, dim " << c.head_dim << ", " << dtype_name(c.type));
      const auto keys = random.normals(c.n_heads * c.n_tokens * c.head_dim, 3);
      const auto values = random.normals(c.n_heads * c.n_tokens * c.value_dim);
      const auto expected = reference(c, keys, values);
      // Short references give channels of small width and so large x'.
      const bool narrow =
          *std::min_element(c.lags.begin(), c.lags.end()) < 20 && variant == LagVariant::lag;
      expect_close(run(c, keys, values), expected, narrow ? 1e-3f : 2e-5f);
    }
}

TEST_P(LagScoresTest, LongPromptsAreTheSameInEveryPiece) {
  Random random(38);
  for (LagVariant variant : {LagVariant::lag, LagVariant::local}) {
    // Longer than what one task takes, and cut there in the midst of partitions.
    const Case c{1, 5000, 3, 5, 16, {300, 100, 7}, variant};
    const auto keys = random.normals(5000 * 3), values = random.normals(5000 * 5);
    const auto expected = reference(c, keys, values);
    expect_close(run(c, keys, values), expected, variant == LagVariant::lag ? 1e-3f : 2e-5f);
  }
}

TEST_P(LagScoresTest, SmallDeviationsFarFromTheMiddleKeepTheirDigits) {
  Random random(39);
  // Token t is about t % 40 / 10 in all channels, so that x' is from 0 to 1 in the reference and
  // its deviation a thousandth of its mean; the first partition reaches to 3 beyond.
  const Case c{2, 120, 80, 19, 0, {40, 20}};
  const auto rows = [&](std::int64_t dim) {
    auto x = random.normals(2 * 120 * dim, 1e-3f);
    for (std::int64_t i = 0; i < 2 * 120 * dim; ++i) x[i] += static_cast<float>(i / dim % 40) / 10;
    return x;
  };
  auto keys = rows(80), values = rows(19);
  for (std::size_t i = 0; i < 40 * 80; ++i) keys[i] *= 4;
  expect_close(run(c, keys, values), reference(c, keys, values), 2e-6f * (1 + 8));
}

TEST_P(LagScoresTest, ScoresOfAPartitionSumToTwo) {
  Random random(32);
  const Case c{2, 700, 32, 32, 16, {64, 128}};
  const auto scores = run(c, random.normals(2 * 700 * 32), random.normals(2 * 700 * 32));
  for (std::size_t i = 0; i < c.lags.size(); ++i)
    for (std::size_t begin = 0; begin < scores[i].size();
         begin += static_cast<std::size_t>(c.lags[i])) {
      double sum = 0;
      for (std::int64_t t = 0; t < c.lags[i]; ++t)
        sum += static_cast<double>(scores[i][begin + static_cast<std::size_t>(t)]);
      EXPECT_NEAR(sum, 2, 1e-5);
    }
}

TEST_P(LagScoresTest, ATokenFarOutsideItsReferenceTakesTheWholeWeight) {
  // Keys of the second partition are from 0 to 1. Token 2 is 10000 in one channel, and its
  // deviation of 7071 too much for an exponential; all others deviate by 0, as all values do.
  const std::vector<float> keys = {.5f, .5f, .5f, .5f, 1e4f, 0, .5f, .5f, 0, 0, 1, 1, 0, 0, 1, 1};
  const auto got = run({1, 8, 2, 2, 0, {4}}, keys, std::vector<float>(16, 1));
  EXPECT_EQ(got[0], (std::vector<float>{0.25f, 0.25f, 1.25f, 0.25f}));
}

TEST_P(LagScoresTest, ManyLagsGiveWhatEachGivesAlone) {
  Random random(33);
  const Case all{2, 500, 20, 20, 5, {128, 17, 60, 400}};
  const auto keys = random.normals(2 * 500 * 20), values = random.normals(2 * 500 * 20);
  const auto together = run(all, keys, values);
  for (std::size_t i = 0; i < all.lags.size(); ++i) {
    Case one = all;
    one.lags = {all.lags[i]};
    EXPECT_EQ(run(one, keys, values)[0], together[i]);
  }
}

TEST_P(LagScoresTest, ConstantChannelsCountAsZero) {
  Random random(34);
  const Case c{1, 90, 8, 8, 0, {30}};
  auto keys = random.normals(90 * 8), values = std::vector<float>(90 * 8, 2.5f);
  for (std::size_t t = 30; t < 60; ++t)
    keys[t * 8 + 3] = 1e-40f * static_cast<float>(t);  // a width below 2^-126
  const auto got = run(c, keys, values);
  expect_close(got, reference(c, keys, values), 2e-5f);
  const auto flat = run(c, values, values);
  for (float score : flat[0]) EXPECT_FLOAT_EQ(score, 2.0f / 30);
}

TEST_P(LagScoresTest, OddValuesSpoilTheirPartitions) {
  Random random(35);
  const auto keys = random.normals(100 * 4), values = random.normals(100 * 4);
  for (float odd : {std::nanf(""), kInf, -kInf}) {
    auto spoiled = keys;
    spoiled[(20 + 3) * 4 + 1] = odd;  // partition 1 of 20 tokens
    for (LagVariant variant : {LagVariant::lag, LagVariant::local}) {
      const Case c{1, 100, 4, 4, 0, {20}, variant};
      const auto got = run(c, spoiled, values);
      expect_close(got, reference(c, spoiled, values), 1e-4f);
      for (std::size_t t = 0; t < 80; ++t) {
        const bool bad = t / 20 == 1 || (t / 20 == 0 && variant == LagVariant::lag);
        EXPECT_EQ(std::isnan(got[0][t]), bad) << t;
      }
    }
    auto last = keys;
    last[(80 + 19) * 4 + 3] = odd;  // only scored against
    const auto spoilt = run({1, 100, 4, 4, 0, {20}}, last, values);
    for (std::size_t t = 0; t < 80; ++t) EXPECT_EQ(std::isnan(spoilt[0][t]), t / 20 == 3) << t;
    const Case c{1, 100, 4, 4, 0, {20}, LagVariant::l2};
    expect_close(run(c, spoiled, values), reference(c, spoiled, values), 1e-6f);
  }
}

TEST_P(LagScoresTest, NothingIsCutInShortPrompts) {
  const Case c{2, 20, 4, 4, 16, {3, 100}};
  const auto got = run(c, std::vector<float>(160), std::vector<float>(160));
  EXPECT_TRUE(got[0].empty() && got[1].empty());
  EXPECT_TRUE(run({2, 0, 4, 4, 16, {3}}, {}, {})[0].empty());
  EXPECT_TRUE(run({0, 50, 4, 4, 2, {3}}, {}, {})[0].empty());
}

TEST_P(LagScoresTest, ThreadsDoNotChangeABit) {
  Random random(36);
  const Case c{5, 400, 24, 24, 16, {64, 100}};
  const auto keys = random.normals(5 * 400 * 24), values = random.normals(5 * 400 * 24);
  expect_same_for_any_thread_count([&] { return run(c, keys, values); });
  const auto scores = random.normals(5 * 24 * 15);  // 400 tokens: 15 partitions of 24 are cut
  expect_same_for_any_thread_count(
      [&] { return kept_on(exec(), memory(), 5, 400, 16, 24, 7, scores); });
}

TEST_P(LagScoresTest, KeptPositionsAreValidSortedAndOfTheRightLength) {
  Random random(37);
  for (const std::int64_t n : {0, 3, 16, 40, 47, 48, 49, 200, 1000})
    for (const std::int64_t keep : {0, 1, 5, 16}) {
      constexpr std::int64_t kSink = 16, kLag = 16;
      const std::int64_t scored = kLag * lag_cut_partitions(n, kSink, kLag);
      std::vector<float> scores;
      for (std::int64_t i = 0; i < 2 * scored; ++i)
        scores.push_back(static_cast<float>(random.integer(0, 9)));
      const auto got = kept_on(exec(), memory(), 2, n, kSink, kLag, keep, scores);
      ASSERT_EQ(got, kept_on(kReference, Memory::host, 2, n, kSink, kLag, keep, scores));
      ASSERT_EQ(got, kept_on(exec(), memory(), 2, n, kSink, kLag, keep, scores, Layout::strided));
      // Eq. 10.
      const std::int64_t length = n < kSink + 2 * kLag ? n
                                                       : kSink + keep * ((n - kSink) / kLag - 1) +
                                                             kLag + (n - kSink) % kLag;
      ASSERT_EQ(static_cast<std::int64_t>(got.size()), 2 * length);
      for (std::int64_t i = 0; i < 2 * length; ++i) {
        const std::int64_t position = got[i];
        EXPECT_GE(position, 0);
        EXPECT_LT(position, n);
        if (i % length > 0) {
          EXPECT_GT(position, got[i - 1]);
        }
      }
    }
}

KVATLAS_EVERY_BODY(LagScoresTest);

TEST(LagScoresArguments, AreChecked) {
  float values[400] = {};
  std::int64_t positions[100];
  LagScores io;
  const auto error = [&] { return error_of([&] { lag_scores(io); }); };
  io.keys = View<float, 3>(values, {1, 100, 4});
  io.values = View<float, 3>(values, {1, 99, 4});
  io.lags = {20};
  io.scores = {{values, {1, 60}}};
  EXPECT_EQ(error(), "values has shape [1, 99, 4], expected [1, 100, 4]");
  io.values = View<float, 3>(values, {1, 100, 4});
  EXPECT_EQ(error(), "");
  io.lags = {0};
  EXPECT_THAT(error(), HasSubstr("lag is 0, expected 1 to "));
  io.lags = {20, 10};
  EXPECT_EQ(error(), "2 lags and 1 arrays of scores");
  io.lags = {30};
  EXPECT_EQ(error(), "scores has shape [1, 60], expected [1, 30]");
  io.keys = View<float, 3>(values, {1, 100, 1});
  EXPECT_THAT(error(), HasSubstr("head_dim is 1, expected 2 to "))
      << "one channel has no deviation";

  LagKept kept;
  kept.n_tokens = 40;
  kept.sink = 0;
  kept.lag = 20;
  kept.keep = 21;
  kept.scores = {values, {1, 20}};
  kept.positions = {positions, {1, 40}};
  EXPECT_EQ(error_of([&] { lag_kept(kept); }), "keep is 21, expected 0 to 20");
  kept.keep = 20;
  EXPECT_EQ(error_of([&] { lag_kept(kept); }), "");
  kept.keep = 19;
  EXPECT_EQ(error_of([&] { lag_kept(kept); }), "positions has shape [1, 40], expected [1, 39]");
}

TEST(LagRatio, IsADecimalOrAFraction) {
  EXPECT_EQ(kept_of_partition("0.25", 128), 32);
  EXPECT_EQ(kept_of_partition(".5", 128), 64);
  EXPECT_EQ(kept_of_partition("1/6", 128), 21);
  EXPECT_EQ(kept_of_partition("0.123456789", 1000), 123);
  for (const char* whole : {"1", "1.0", "2/2"}) EXPECT_EQ(kept_of_partition(whole, 128), 128);
  EXPECT_EQ(kept_of_partition(std::string_view("0.2599").substr(0, 4), 100), 25);
  for (const char* text : {"-0.25", "-0/1", "0.1234567890", "1e-1", "0.", "", "1/"})
    EXPECT_THAT(error_of([&] { kept_of_partition(text, 128); }),
                testing::HasSubstr("of at most 9 digits or decimals"))
        << text;
  for (const char* text : {"0", "0.0", "0/4", "1/0", "0/0", "3/2", "1.5", "2"})
    EXPECT_THAT(error_of([&] { kept_of_partition(text, 128); }),
                HasSubstr("expected more than 0 and at most 1"))
        << text;
}

}  // namespace
}  // namespace kvatlas::kernels::lag_scores_tests
