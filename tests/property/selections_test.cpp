// SPDX-License-Identifier: Apache-2.0
// The scores of a window and the stored logarithms, beside plain loops.
#include <cmath>
#include <limits>

#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "analyzer/capture/selections-inl.hpp"
#include "base/half.hpp"
#include "base/share_code.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::capture {
namespace {

using testing_support::Random;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

struct Case {
  std::int64_t heads, groups, rows, tokens, window, kernel;
};

std::vector<double> by_hand(const Case& c, Pooling pooling, const std::vector<float>& probs) {
  const std::int64_t positions = c.tokens - c.window, in_group = c.heads / c.groups;
  std::vector<double> scores(static_cast<std::size_t>(c.groups * positions));
  for (std::int64_t h = 0; h < c.heads; ++h) {
    const auto mean = [&](std::int64_t j) {
      double sum = 0;
      for (std::int64_t row = c.rows - c.window; row < c.rows; ++row)
        sum += static_cast<double>(probs[(h * c.rows + row) * c.tokens + j]);
      return sum / static_cast<double>(c.window);
    };
    for (std::int64_t j = 0; j < positions; ++j) {
      double sum = 0, most = -std::numeric_limits<double>::infinity();
      for (std::int64_t near = std::max<std::int64_t>(0, j - c.kernel / 2);
           near <= std::min(positions - 1, j + c.kernel / 2); ++near) {
        sum += mean(near);
        most = std::max(most, mean(near));
      }
      scores[h / in_group * positions + j] +=
          (pooling == Pooling::average ? sum / static_cast<double>(c.kernel) : most) /
          static_cast<double>(in_group);
    }
  }
  return scores;
}

TEST(WindowScores, AreMeansPooledAndSharedByTheGroup) {
  Random random(21);
  for (const Pooling pooling : {Pooling::average, Pooling::maximum})
    for (const Case c : {Case{1, 1, 1, 2, 1, 1},
                         {1, 1, 1, 2, 1, 7},
                         {2, 2, 4, 30, 3, 7},
                         {6, 2, 16, 500, 16, 7},
                         {4, 1, 20, 333, 8, 5},
                         {2, 2, 2, 10, 2, 101}}) {
      std::vector<float> probs;
      for (std::int64_t row = 0; row < c.heads * c.rows; ++row) {
        const auto values = random.softmax_row(c.tokens, 3);
        probs.insert(probs.end(), values.begin(), values.end());
      }
      const at::Tensor got =
          window_scores(at::from_blob(probs.data(), {c.heads, c.rows, c.tokens}, at::kFloat),
                        {c.window, c.kernel, pooling}, c.groups);
      const auto want = by_hand(c, pooling, probs);
      ASSERT_EQ(got.numel(), std::ssize(want));
      ASSERT_EQ(got.size(0), c.groups);
      for (std::int64_t i = 0; i < got.numel(); ++i)
        ASSERT_NEAR(got.const_data_ptr<float>()[i], want[i], 1e-5 * want[i])
            << c.heads << "x" << c.tokens << " window " << c.window << " kernel " << c.kernel;
    }
}

TEST(WindowScores, OddValuesReachTheirPoolAndNoFurther) {
  for (const Pooling pooling : {Pooling::average, Pooling::maximum})
    for (const float odd : {kNan, kInf}) {
      std::vector<float> probs(120, 0.5f);
      probs[20] = odd;
      const at::Tensor got =
          window_scores(at::from_blob(probs.data(), {1, 2, 60}, at::kFloat), {2, 5, pooling}, 1);
      for (std::int64_t j = 0; j < 58; ++j)
        EXPECT_EQ(std::isfinite(got.const_data_ptr<float>()[j]), j < 18 || j > 22) << j;
    }
}

TEST(WindowScores, NoPositionBeforeTheWindowHasNoScore) {
  std::vector<float> probs(18, 1);
  EXPECT_EQ(
      window_scores(at::from_blob(probs.data(), {2, 3, 3}, at::kFloat), {3, 7, Pooling::average}, 2)
          .numel(),
      0);
}

TEST(StoredLogarithms, AreExactInEveryType) {
  Random random(3);
  std::vector<float> shares = {0, 1, kNan, 0x1p-126f, 0x1p-127f, 1e-9f};
  for (int i = 0; i < 5000; ++i) shares.push_back(std::exp2(-140 * random.uniform()));
  const at::Tensor in = at::tensor(shares);
  const at::Tensor floats = stored_log2(in, at::kFloat, 0x1p-126f),
                   codes = stored_log2(in, at::kByte, 0x1p-126f);
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const float log = floats.const_data_ptr<float>()[i], code = codes.const_data_ptr<float>()[i];
    if (std::isnan(shares[i])) {
      EXPECT_TRUE(std::isnan(log));
      EXPECT_EQ(code, static_cast<float>(share_code::kUnknown));
      continue;
    }
    EXPECT_EQ(std::isinf(log), shares[i] < 0x1p-126f);
    const double exact = std::log2(static_cast<double>(shares[i]));
    if (!std::isinf(log)) {
      EXPECT_NEAR(log, exact, 1e-6 + std::abs(exact) * 0x1p-23) << shares[i];
    }
    EXPECT_LE(std::abs(code - static_cast<float>(share_code::code_of(shares[i]))), 1) << shares[i];
    if (code > 0 && code < static_cast<float>(share_code::kOne)) {
      EXPECT_NEAR(code * share_code::kScale + share_code::kOffset, exact, 0.0625 + 1e-5);
    }
  }
  const at::Tensor fewer = stored_log2(in, at::kFloat, 1e-6f);
  for (std::size_t i = 0; i < shares.size(); ++i)
    EXPECT_EQ(std::isinf(fewer.const_data_ptr<float>()[i]), shares[i] < 1e-6f) << shares[i];
}

}  // namespace
}  // namespace kvatlas::capture
