// SPDX-License-Identifier: Apache-2.0
#include "kernels/transformer_ops.hpp"

#include <cmath>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels::transformer_ops_tests {
namespace {

using testing_support::Guarded;
using testing_support::Random;

/// One case for every instruction set; these steps have a CPU body only.
class TransformerOps : public testing_support::KernelTest {};

const std::vector<std::int64_t> kWidths{1, 2, 3, 7, 16, 31, 64, 576, 1025, 4099};

TEST_P(TransformerOps, RmsNormIsTheFormula) {
  Random random(1);
  for (std::int64_t width : kWidths) {
    const std::int64_t n = 19;
    const auto rows = random.normals(n * width, 3.0f), weight = random.normals(width);
    Guarded<float> out(n * width, 0.0f);
    rms_norm<float>({.rows = View<const float, 2>(rows.data(), {n, width}),
                     .weight = weight.data(),
                     .eps = 1e-5f,
                     .offset = 1.0f,
                     .out = View<float, 2>(out.data(), {n, width})});
    const auto got = out.values();
    EXPECT_TRUE(out.intact());
    for (std::int64_t i = 0; i < n; ++i) {
      double squares = 0;
      const auto at = [&](std::int64_t j) { return static_cast<std::size_t>(i * width + j); };
      for (std::int64_t j = 0; j < width; ++j) squares += std::pow(rows[at(j)], 2.0);
      const double factor = 1.0 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
      for (std::int64_t j = 0; j < width; ++j) {
        const double want = rows[at(j)] * factor * (1.0 + weight[j]);
        ASSERT_NEAR(got[at(j)], want, 2e-6 * (1.0 + std::abs(want)))
            << width << " " << i << " " << j;
      }
    }
  }
}

TEST_P(TransformerOps, RotateTurnsPairsAndLeavesTheRest) {
  Random random(2);
  for (std::int64_t half : {1, 3, 8, 32, 33}) {
    const std::int64_t n = 5, heads = 3, head_dim = 2 * half + 3;
    const auto before = random.normals(n * heads * head_dim);
    std::vector<float> cosine, sine;
    for (std::int64_t i = 0; i < n * half; ++i) {
      const float angle = random.uniform(-3.0f, 3.0f);
      cosine.push_back(std::cos(angle));
      sine.push_back(std::sin(angle));
    }
    Guarded<float> values(before);
    rotate<float>({View<float, 3>(values.data(), {n, heads, head_dim}),
                   View<const float, 2>(cosine.data(), {n, half}),
                   View<const float, 2>(sine.data(), {n, half})});
    const auto after = values.values();
    EXPECT_TRUE(values.intact());
    for (std::int64_t row = 0; row < n; ++row)
      for (std::int64_t head = 0; head < heads; ++head)
        for (std::int64_t i = 0; i < head_dim; ++i) {
          const std::int64_t start = (row * heads + head) * head_dim;
          const auto x = [&](std::int64_t j) { return before[start + j]; };
          const auto c = [&](std::int64_t j) { return cosine[row * half + j]; };
          const auto s = [&](std::int64_t j) { return sine[row * half + j]; };
          const float want = i < half       ? x(i) * c(i) - x(i + half) * s(i)
                             : i < 2 * half ? x(i) * c(i - half) + x(i - half) * s(i - half)
                                            : x(i);
          ASSERT_NEAR(after[start + i], want, 1e-6);
        }
  }
}

TEST_P(TransformerOps, GatedActivationIsTheFormulaAlsoFarOut) {
  Random random(3);
  for (bool gelu : {false, true})
    for (std::int64_t width : kWidths) {
      const std::int64_t n = 17;
      auto gate_up = random.normals(n * 2 * width, 4.0f);
      for (std::size_t i = 0; i < gate_up.size(); i += 5) gate_up[i] *= 50.0f;
      Guarded<float> out(n * width, 0.0f);
      gated_activation<float>({View<const float, 2>(gate_up.data(), {n, 2 * width}), gelu,
                               View<float, 2>(out.data(), {n, width})});
      const auto got = out.values();
      EXPECT_TRUE(out.intact());
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < width; ++j) {
          const double x = gate_up[i * 2 * width + j];
          const double up = gate_up[i * 2 * width + width + j];
          const double gate =
              gelu ? 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)))
                   : x / (1.0 + std::exp(-x));
          // Where the activation has all but vanished the float formula keeps its sign and size
          // only.
          ASSERT_NEAR(got[i * width + j], gate * up,
                      2e-6 * std::abs(gate * up) + 2e-6 * std::abs(up))
              << "x = " << x;
        }
    }
}

/// As bfloat16, and as the floats that those stand for.
std::pair<std::vector<Bf16>, std::vector<float>> halved(const std::vector<float>& values) {
  std::vector<Bf16> halves;
  std::vector<float> floats;
  for (const float value : values) {
    halves.push_back({float_to_bf16(value)});
    floats.push_back(bf16_to_float(halves.back().bits));
  }
  return {halves, floats};
}

void expect_rounded(const std::vector<Bf16>& got, const std::vector<float>& want) {
  for (std::size_t i = 0; i < want.size(); ++i) ASSERT_EQ(got[i].bits, float_to_bf16(want[i])) << i;
}

TEST_P(TransformerOps, InBfloat16IsRoundedOnce) {
  Random random(5);
  for (std::int64_t width : kWidths) {
    const std::int64_t n = 5;
    auto numbers = random.normals(2 * n * width, 3.0f);
    numbers[0] = std::nanf("");
    numbers[1] = HUGE_VALF;
    const auto [rows, row_floats] = halved(numbers);
    const auto [weight, weight_floats] = halved(random.normals(width));
    std::vector<Bf16> got(rows.size() / 2);
    std::vector<float> want(got.size());
    rms_norm<Bf16>({.rows = {rows.data(), {n, width}},
                    .weight = weight.data(),
                    .out = {got.data(), {n, width}}});
    rms_norm<float>({.rows = {row_floats.data(), {n, width}},
                     .weight = weight_floats.data(),
                     .out = {want.data(), {n, width}}});
    expect_rounded(got, want);
    for (const bool gelu : {false, true}) {
      gated_activation<Bf16>({{rows.data(), {n, 2 * width}}, gelu, {got.data(), {n, width}}});
      gated_activation<float>(
          {{row_floats.data(), {n, 2 * width}}, gelu, {want.data(), {n, width}}});
      expect_rounded(got, want);
    }
    const auto cosine = random.normals(n * width), sine = random.normals(n * width);
    auto heads = rows;
    auto head_floats = row_floats;
    const View<const float, 2> cosines(cosine.data(), {n, width}), sines(sine.data(), {n, width});
    rotate<Bf16>({{heads.data(), {n, 1, 2 * width}}, cosines, sines});
    rotate<float>({{head_floats.data(), {n, 1, 2 * width}}, cosines, sines});
    expect_rounded(heads, head_floats);
  }
}

TEST_P(TransformerOps, ResultsDoNotDependOnTheThreads) {
  Random random(4);
  const std::int64_t n = 100, width = 333;
  const auto rows = random.normals(n * width), weight = random.normals(width);
  const int before = thread_count();
  std::vector<std::vector<float>> results;
  for (int threads : {1, 2, 5}) {
    set_thread_count(threads);
    std::vector<float> out(rows.size());
    rms_norm<float>({.rows = View<const float, 2>(rows.data(), {n, width}),
                     .weight = weight.data(),
                     .out = View<float, 2>(out.data(), {n, width})});
    results.push_back(out);
  }
  set_thread_count(before);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST_P(TransformerOps, ShapesThatDoNotFitAreRefused) {
  std::vector<float> data(64);
  EXPECT_THROW(gated_activation<float>({View<const float, 2>(data.data(), {2, 7}), false,
                                        View<float, 2>(data.data(), {2, 4})}),
               Error);
}

INSTANTIATE_TEST_SUITE_P(Host, TransformerOps, testing::ValuesIn(testing_support::cpu_bodies()),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace kvatlas::kernels::transformer_ops_tests
