// SPDX-License-Identifier: Apache-2.0
// What a simulated step computes with tensors, beside plain loops: MiniCache's merge, and the
// divergence of two rows of logits.
#include <cmath>
#include <limits>

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "calibrate/simulate/kl_divergence.hpp"
#include "calibrate/simulate/plan_impl.hpp"
#include "tests/support/random.hpp"
#include "tests/support/slerp.hpp"

namespace kvatlas::calibrate {
namespace {

using testing_support::Random;
using Floats = std::vector<float>;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::pair<Floats, Floats> merged(const Floats& a, const Floats& b, double t) {
  const std::int64_t size = std::ssize(a);
  const auto [below, above] =
      merged_directions(at::tensor(a).view({1, size}), at::tensor(b).view({1, size}), t);
  const auto values = [&](const at::Tensor& of) {
    const at::Tensor floats = of.to(at::kFloat).contiguous();
    return Floats(floats.const_data_ptr<float>(), floats.const_data_ptr<float>() + size);
  };
  return {values(below), values(above)};
}

TEST(MergedDirections, AreTheSlerpOfBothWithTheirOwnLengths) {
  Random random(1);
  for (const std::int64_t size : {1, 2, 7, 64, 128})
    for (const double t : {0.0, 0.25, 0.6, 1.0})
      for (int kind = 0; kind < 6; ++kind) {
        const Floats a = random.normals(size, 2);
        Floats b = random.normals(size);
        for (std::size_t i = 0; i < b.size(); ++i) {  // as neighbouring layers have them
          if (kind == 1) b[i] = a[i] + 0.1f * b[i];
          if (kind == 2) b[i] = a[i];
          if (kind == 3) b[i] = -4 * a[i];
          if (kind == 4) b[i] = 0;
        }
        const auto [below, above] = merged(a, b, t);
        const auto [low, up] =
            testing_support::slerp({a.begin(), a.end()}, {b.begin(), b.end()}, t);
        for (std::size_t i = 0; i < a.size(); ++i) {
          EXPECT_NEAR(below[i], low[i], 1e-5) << "size " << size << " kind " << kind;
          EXPECT_NEAR(above[i], up[i], 1e-5) << "size " << size << " kind " << kind;
        }
      }
}

TEST(MergedDirections, TurnByTheShareOfTheAngle) {
  const auto [below, above] = merged({2, 0}, {0, 3}, 0.6);
  const double angle = 0.6 * std::acos(0.0);
  EXPECT_NEAR(below[0], 2 * std::cos(angle), 1e-6);
  EXPECT_NEAR(above[1], 3 * std::sin(angle), 1e-6);
  EXPECT_EQ(merged({0, 0}, {3, 4}, 0.6).second, (Floats{3, 4}));
  EXPECT_EQ(merged({3, 4}, {0, 0}, 0.6).first, (Floats{3, 4}));
  EXPECT_NEAR(merged({3, 4}, {-6, -8}, 0.5).first[1], -4, 1e-6);
}

TEST(KlDivergence, IsThatOfTheDistributions) {
  Random random(3);
  for (const std::int64_t size : {1, 2, 15, 513, 4000, 49152})
    for (const float difference : {0.001f, 1.0f, 10.0f}) {
      const Floats full = random.normals(size, 4);
      Floats other = full;
      for (float& value : other) value += difference * random.normal();
      const auto logs_of = [](const Floats& logits) {
        double sum = 0;
        for (const float value : logits) sum += std::exp(static_cast<double>(value));
        std::vector<double> logs;
        for (const float value : logits) logs.push_back(static_cast<double>(value) - std::log(sum));
        return logs;
      };
      const auto p = logs_of(full), q = logs_of(other);
      double want = 0;
      for (std::size_t i = 0; i < p.size(); ++i) want += std::exp(p[i]) * (p[i] - q[i]);
      EXPECT_NEAR(kl_divergence(full, other), want, 2e-6 + 1e-5 * want) << size;
    }
}

TEST(KlDivergence, OfRowsThatAreEqualMaskedOrNoDistribution) {
  const Floats row = Random(4).normals(777, 5);
  EXPECT_EQ(kl_divergence(row, row), 0);
  EXPECT_EQ(kl_divergence(Floats{1, 2, -kInf}, Floats{1, 2, -kInf}), 0);
  EXPECT_EQ(kl_divergence(Floats{1, 2, 3}, Floats{1, 2, -kInf}), kInf);
  EXPECT_NEAR(kl_divergence(Floats{0, 60}, Floats{60, 0}), 60, 1e-3);
  EXPECT_NEAR(kl_divergence(Floats{1, 1}, Floats{0, std::log(3.0f)}),
              0.5 * std::log(2.0) + 0.5 * std::log(2.0 / 3.0), 1e-6);
  const Floats good(100, 1);
  for (const float bad : {std::nanf(""), kInf}) {
    Floats spoilt = good;
    spoilt[50] = bad;
    EXPECT_TRUE(std::isnan(kl_divergence(good, spoilt)));
    EXPECT_TRUE(std::isnan(kl_divergence(spoilt, good)));
  }
  EXPECT_TRUE(std::isnan(kl_divergence(Floats(100, -kInf), good)));
}

}  // namespace
}  // namespace kvatlas::calibrate
