// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/top_k_bounds.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.hpp"
#include "tests/support/error_of.hpp"

namespace {

using namespace kvatlas;
using namespace kvatlas::calibrate;
using testing::HasSubstr;
using testing_support::error_of;

std::vector<double> random_distribution(Random& random, std::size_t size, double sharpness) {
  std::vector<double> p(size);
  for (double& one : p) one = std::exp(sharpness * (random.share() - 0.5));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& one : p) one /= sum;
  return p;
}

/// The `count` most probable tokens, and one more as some servers give it.
TopTokens seen_of(const std::vector<double>& p, std::size_t count, std::size_t extra) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return p[a] > p[b]; });
  std::vector<TopToken> tokens;
  for (std::size_t i = 0; i < count; ++i)
    tokens.push_back({static_cast<std::int64_t>(order[i]), std::log(p[order[i]])});
  if (std::find(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), extra) ==
      order.begin() + static_cast<std::ptrdiff_t>(count))
    tokens.push_back({static_cast<std::int64_t>(extra), std::log(p[extra])});
  return top_tokens(std::move(tokens), count);
}

TEST(TopKBounds, HoldForAnyDistributions) {
  Random random(3, "bounds");
  double tightest = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto size = static_cast<std::size_t>(3 + random.below(200));
    const double sharpness = 20 * random.share();
    const auto p = random_distribution(random, size, sharpness);
    auto q = random_distribution(random, size, sharpness);
    const double near = random.share();  // from unrelated to nearly the same
    for (std::size_t t = 0; t < size; ++t) q[t] = near * p[t] + (1 - near) * q[t];
    double kl = 0, tv = 0, js = 0;
    for (std::size_t t = 0; t < size; ++t) {
      kl += p[t] * std::log(p[t] / q[t]);
      tv += std::abs(p[t] - q[t]) / 2;
      const double m = (p[t] + q[t]) / 2;
      js += (p[t] * std::log(p[t] / m) + q[t] * std::log(q[t] / m)) / 2;
    }
    const auto k = static_cast<std::size_t>(1 + random.below(std::min<std::size_t>(size, 30)));
    const auto extra = static_cast<std::size_t>(random.below(size));
    const auto bounds = divergence_bounds(seen_of(p, k, extra), seen_of(q, k, extra));
    EXPECT_LE(bounds.kl_low, kl + 1e-9);
    EXPECT_LE(bounds.tv_low, tv + 1e-9);
    EXPECT_GE(bounds.tv_high, tv - 1e-9);
    EXPECT_LE(bounds.js_low, js + 1e-9);
    EXPECT_GE(bounds.js_high, js - 1e-9);
    tightest = std::max(tightest, bounds.kl_low / kl);
    if (k == size) {
      EXPECT_NEAR(bounds.kl_low, kl, 1e-6);
      EXPECT_NEAR(bounds.tv_high, tv, 1e-9);
    }
  }
  EXPECT_GT(tightest, 0.9);
}

TEST(TopKBounds, EqualOnesDoNotDiverge) {
  Random random(5, "bounds");
  const auto p = random_distribution(random, 100, 10);
  const auto seen = seen_of(p, 20, 99);
  const auto bounds = divergence_bounds(seen, seen);
  EXPECT_NEAR(bounds.kl_low, 0, 1e-9);
  EXPECT_NEAR(bounds.tv_low, 0, 1e-9);
  EXPECT_GE(bounds.tv_high, 0);
  const auto nothing = divergence_bounds({}, {});
  EXPECT_EQ(nothing.kl_low, 0);
  EXPECT_EQ(nothing.tv_high, 1);
  EXPECT_NEAR(nothing.js_high, std::numbers::ln2, 1e-12);
}

TEST(TopKBounds, ListsThatCannotBeAreRefused) {
  EXPECT_THAT(error_of([] { top_tokens({{1, 0.5}}, 1); }), HasSubstr("is none"));
  EXPECT_THAT(error_of([] { top_tokens({{1, NAN}}, 1); }), HasSubstr("is none"));
  EXPECT_THAT(error_of([] { top_tokens({{1, -0.1}, {2, -0.1}}, 2); }), HasSubstr("together"));
  EXPECT_THAT(error_of([] { top_tokens({{1, -1}, {1, -2}}, 2); }), HasSubstr("twice"));
  EXPECT_EQ(top_tokens({{1, -9999}}, 1).most_outside, 0);  // vLLM's least
}

TEST(PrefixAgreement, SaysWhatTheCommonBeginningDoes) {
  const std::vector<std::int64_t> full = {1, 2, 3, 4}, parts = {1, 2, 9}, shorter = {1, 2, 3};
  EXPECT_EQ(prefix_agreement(full, full).low, 1);
  EXPECT_EQ(prefix_agreement(full, parts).low, 0.5);
  EXPECT_EQ(prefix_agreement(full, parts).high, 0.75);
  EXPECT_EQ(prefix_agreement(full, shorter).high, 0.75);
  EXPECT_EQ(prefix_agreement({}, full).low, 0);
}

}  // namespace
