// SPDX-License-Identifier: Apache-2.0
#include "kernels/js_divergence.hpp"

#include <limits>

#include "tests/support/error_of.hpp"
#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels::js_divergence_tests {
namespace {

using namespace testing_support;

struct Shape {
  std::int64_t layers, heads, rows, tokens;
  std::int64_t count() const { return layers * heads * rows * tokens; }
};

struct Result {
  std::vector<float> mean, per_row;
  bool operator==(const Result&) const = default;
};

class JsDivergenceTest : public KernelTest {
 protected:
  Result run(const Shape& s, const std::vector<float>& probs, DType type = DType::f32,
             Layout layout = Layout::dense) {
    return run_on(exec(), memory(), s, probs, type, layout);
  }

  static Result run_on(const Exec& exec, Memory memory, const Shape& s,
                       const std::vector<float>& probs, DType type, Layout layout) {
    const Tensor<4> rows(probs, {s.layers, s.heads, s.rows, s.tokens}, memory, type, layout);
    const Output<float, 3> mean({s.heads, s.layers, s.layers}, memory, layout);
    const Output<float, 4> per_row({s.heads, s.rows, s.layers, s.layers}, memory, layout);
    js_divergence({rows.view, mean.view, per_row.view}, exec);
    return {mean.values(), per_row.values()};
  }

  static Result reference(const Shape& s, const std::vector<float>& probs,
                          DType type = DType::f32) {
    return run_on(kReference, Memory::host, s, probs, type, Layout::dense);
  }
};

void expect_near(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_TRUE(std::abs(got[i] - expected[i]) <= 1e-5f ||
                (std::isnan(got[i]) && std::isnan(expected[i])))
        << "element " << i << ": " << got[i] << " instead of " << expected[i];
}

std::vector<float> random_rows(Random& random, const Shape& s) {
  std::vector<float> probs;
  for (std::int64_t row = 0; row < s.layers * s.heads * s.rows; ++row) {
    const auto values = random.softmax_row(s.tokens, random.uniform(0, 6));
    probs.insert(probs.end(), values.begin(), values.end());
  }
  return probs;
}

TEST_P(JsDivergenceTest, MatchesTheReference) {
  Random random(3);
  for (const Shape s : {Shape{1, 1, 1, 1},
                        {2, 1, 1, 3},
                        {5, 2, 3, 255},
                        {3, 1, 2, 256},
                        {33, 1, 1, 257},
                        {4, 3, 2, 1000},
                        {3, 1, 1, 20000}}) {
    const auto probs = random_rows(random, s);
    for (DType type : {DType::f32, DType::f16, DType::bf16}) {
      SCOPED_TRACE(testing::Message() << s.layers << "x" << s.tokens << " " << dtype_name(type));
      const auto expected = reference(s, probs, type);
      for (Layout layout : {Layout::dense, Layout::swapped, Layout::strided}) {
        const auto got = run(s, probs, type, layout);
        expect_near(got.mean, expected.mean);
        expect_near(got.per_row, expected.per_row);
      }
    }
  }
}

TEST_P(JsDivergenceTest, ObeysItsLaws) {
  Random random(4);
  const Shape s{6, 2, 2, 700};
  auto probs = random_rows(random, s);
  // Layer 5 repeats layer 1.
  std::copy_n(probs.begin() + s.heads * s.rows * s.tokens, s.heads * s.rows * s.tokens,
              probs.begin() + 5 * s.heads * s.rows * s.tokens);
  const auto js = run(s, probs).per_row;
  const auto at = [&](std::int64_t row, std::int64_t a, std::int64_t b) {
    return js[(row * s.layers + a) * s.layers + b];
  };
  for (std::int64_t row = 0; row < s.heads * s.rows; ++row)
    for (std::int64_t a = 0; a < s.layers; ++a)
      for (std::int64_t b = 0; b < s.layers; ++b) {
        EXPECT_EQ(at(row, a, b), at(row, b, a));
        EXPECT_GE(at(row, a, b), 0);
        EXPECT_LE(at(row, a, b), 1);
        const bool same = a == b || (a % 4 == 1 && b % 4 == 1);
        EXPECT_EQ(at(row, a, b) == 0, same) << a << " " << b;
      }
}

TEST_P(JsDivergenceTest, DisjointRowsAreOneApart) {
  const Shape s{3, 1, 1, 600};
  std::vector<float> probs(1800, 0);
  probs[5] = 1;  // layer 0: one-hot in the first block
  for (std::size_t j = 512; j < 576; ++j) probs[600 + j] = 0x1p-6f;  // layer 1: uniform in the last
  probs[1200 + 5] = probs[1200 + 520] = 0.5f;                        // layer 2: half on each
  const auto js = run(s, probs).mean;
  EXPECT_EQ(js[0], 0);
  EXPECT_FLOAT_EQ(js[1], 1);  // a GPU's logarithm of 2^-7 is not exact
  EXPECT_FLOAT_EQ(js[3], 1);
  expect_near(js, reference(s, probs).mean);
}

TEST_P(JsDivergenceTest, NeitherRoundingNorRowsThatSumToMoreLeaveTheUnitInterval) {
  Random random(8);
  const Shape s{2, 1, 200, 40};
  auto probs = random_rows(random, s);  // the second layer differs from the first in last bits
  for (std::size_t i = 0; i < probs.size() / 2; ++i)
    probs[probs.size() / 2 + i] = std::nextafter(probs[i], random.integer(0, 1) ? 1.0f : 0.0f);
  for (const float divergence : run(s, probs).per_row) {
    EXPECT_GE(divergence, 0);
    EXPECT_LE(divergence, 1e-5f);
  }
  EXPECT_EQ(run({2, 1, 1, 2}, {2, 0, 0, 2}).mean, (std::vector<float>{0, 1, 1, 0}));
}

TEST_P(JsDivergenceTest, SparseRowsMatchTheReference) {
  Random random(5);
  const Shape s{7, 1, 3, 3000};
  std::vector<float> probs(static_cast<std::size_t>(s.count()), 0);
  for (std::int64_t row = 0; row < s.layers * s.rows; ++row) {
    const std::int64_t begin = random.integer(0, 2500), count = random.integer(1, 499);
    const auto values = random.softmax_row(count, 2);
    std::copy(values.begin(), values.end(), probs.begin() + row * s.tokens + begin);
  }
  expect_near(run(s, probs).per_row, reference(s, probs).per_row);
}

TEST_P(JsDivergenceTest, OddValues) {
  const Shape s{6, 1, 1, 40};
  std::vector<float> probs(240, 0.025f);
  probs[40] = std::nanf("");
  probs[80] = kInf;
  std::fill_n(probs.begin() + 120, 40, 0.0f);    // a zero row
  std::fill_n(probs.begin() + 160, 40, 1e-42f);  // denormals
  probs[160] = 1;
  std::fill_n(probs.begin() + 200, 40, 0.0f);
  probs[200] = 1;
  const auto js = run(s, probs).mean;
  for (int a = 0; a < 6; ++a)
    for (int b = 0; b < 6; ++b) {
      const bool bad = a == 1 || a == 2 || b == 1 || b == 2;
      EXPECT_EQ(std::isnan(js[a * 6 + b]), bad) << a << " " << b;
    }
  EXPECT_NEAR(js[3], 0.5, 1e-6) << "against a zero row, by the definition";
  EXPECT_EQ(js[3 * 6 + 3], 0);
  EXPECT_NEAR(js[4 * 6 + 5], 0, 1e-6);
}

TEST_P(JsDivergenceTest, EmptyInputs) {
  EXPECT_TRUE(run({0, 2, 2, 5}, {}).mean.empty());
  EXPECT_TRUE(run({3, 0, 2, 5}, {}).mean.empty());
  for (float value : run({2, 1, 2, 0}, {}).mean) EXPECT_EQ(value, 0);
  for (float value : run({2, 1, 0, 5}, {}).mean) EXPECT_TRUE(std::isnan(value));
}

TEST_P(JsDivergenceTest, ThreadsDoNotChangeABit) {
  Random random(6);
  const Shape s{5, 3, 2, 1500};
  const auto probs = random_rows(random, s);
  expect_same_for_any_thread_count([&] { return run(s, probs); });
}

TEST_P(JsDivergenceTest, RowsAreOptional) {
  Random random(7);
  const Shape s{4, 2, 3, 100};
  const auto probs = random_rows(random, s);
  const Tensor<4> rows(probs, {s.layers, s.heads, s.rows, s.tokens}, memory());
  const Output<float, 3> mean({s.heads, s.layers, s.layers}, memory());
  js_divergence({rows.view, mean.view, {}}, exec());
  EXPECT_EQ(mean.values(), run(s, probs).mean);
}

KVATLAS_EVERY_BODY(JsDivergenceTest);

TEST(JsDivergenceArguments, AreChecked) {
  float values[16] = {};
  JsDivergence io;
  const auto error = [&] { return error_of([&] { js_divergence(io); }); };
  io.probs = View<float, 4>(values, {2, 1, 1, 4});
  io.mean = {values, {1, 2, 1}};
  EXPECT_EQ(error(), "mean has shape [1, 2, 1], expected [1, 2, 2]");
  io.mean = {nullptr, {1, 2, 2}};
  EXPECT_EQ(error(), "mean has no data");
  io.mean = {values, {1, 2, 2}};
  EXPECT_EQ(error(), "");
  io.per_row = {values, {1, 2, 2, 2}};
  EXPECT_EQ(error(), "per_row has shape [1, 2, 2, 2], expected [1, 1, 2, 2]");
  io.per_row = {};
  io.mean.memory = Memory::device;
  EXPECT_EQ(error(), "mean lies in device memory, the inputs do not");
}

}  // namespace
}  // namespace kvatlas::kernels::js_divergence_tests
