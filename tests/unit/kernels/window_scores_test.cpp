// SPDX-License-Identifier: Apache-2.0
#include "kernels/window_scores.hpp"

#include <limits>
#include <numeric>

#include "kernels/base/error.hpp"
#include "kernels/base/parallel.hpp"
#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels {
namespace {

using namespace testing_support;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

struct Case {
  std::int64_t n_heads, n_groups, q_rows, n_tokens, window, kernel;
  Pooling pooling = Pooling::average;
  DType type = DType::f32;
  bool strided = false;
};

std::vector<float> scores_on(const Exec& exec, Memory memory, const Case& c,
                             const std::vector<float>& probs) {
  const std::int64_t step = c.strided ? 3 : 1;
  std::vector<float> spread(probs.size() * static_cast<std::size_t>(step), kNan);
  for (std::size_t i = 0; i < probs.size(); ++i)
    spread[i * static_cast<std::size_t>(step)] = probs[i];
  const Encoded encoded(c.type, spread);
  const Guarded<float> full(encoded.values, memory);
  const Guarded<std::uint16_t> half(encoded.half, memory);
  auto strides = dense_strides<3>({c.n_heads, c.q_rows, c.n_tokens});
  for (auto& stride : strides) stride *= step;
  const std::int64_t n_positions = c.n_tokens - c.window;
  // The output has a gap after each row.
  const Guarded<float> scores(c.n_groups * (n_positions + 3), -7, memory);
  WindowScores io;
  io.probs = {c.type == DType::f32 ? static_cast<const void*>(full.data()) : half.data(),
              c.type,
              {c.n_heads, c.q_rows, c.n_tokens},
              strides,
              memory};
  io.window = c.window;
  io.kernel = c.kernel;
  io.pooling = c.pooling;
  io.scores = {scores.data(), {c.n_groups, n_positions}, {n_positions + 3, 1}, memory};
  window_scores(io, exec);
  EXPECT_TRUE(scores.intact());
  std::vector<float> out;
  const auto all = scores.values();
  for (std::int64_t g = 0; g < c.n_groups; ++g)
    for (std::int64_t j = 0; j < n_positions + 3; ++j) {
      const float value = all[static_cast<std::size_t>(g * (n_positions + 3) + j)];
      if (j < n_positions) {
        out.push_back(value);
      } else {
        EXPECT_EQ(value, -7);
      }
    }
  return out;
}

class WindowScoresTest : public KernelTest {
 protected:
  std::vector<float> run(const Case& c, const std::vector<float>& probs) {
    return scores_on(exec(), memory(), c, probs);
  }
  static std::vector<float> reference(const Case& c, const std::vector<float>& probs) {
    return scores_on({.backend = Backend::reference}, Memory::host, c, probs);
  }
};

TEST_P(WindowScoresTest, MatchesTheReference) {
  Random random(21);
  for (Pooling pooling : {Pooling::average, Pooling::maximum})
    for (Case c : {Case{1, 1, 1, 1, 1, 1},
                   {1, 1, 1, 2, 1, 7},
                   {2, 2, 4, 30, 3, 7},
                   {6, 2, 16, 500, 16, 7},
                   {4, 1, 20, 333, 8, 5},
                   {2, 1, 3, 4500, 2, 3},
                   {3, 3, 5, 100, 5, 1},
                   {2, 2, 2, 10, 2, 101},
                   {4, 2, 6, 200, 4, 7, Pooling::average, DType::f16},
                   {4, 2, 6, 200, 4, 7, Pooling::average, DType::bf16, true},
                   {4, 4, 6, 2100, 4, 9, Pooling::average, DType::f32, true}}) {
      c.pooling = pooling;
      SCOPED_TRACE(testing::Message() << c.n_heads << "x" << c.n_tokens << " window " << c.window
                                      << " kernel " << c.kernel);
      std::vector<float> probs;
      for (std::int64_t row = 0; row < c.n_heads * c.q_rows; ++row) {
        const auto values = random.softmax_row(c.n_tokens, 3);
        probs.insert(probs.end(), values.begin(), values.end());
      }
      const auto got = run(c, probs), expected = reference(c, probs);
      ASSERT_EQ(got.size(), expected.size());
      const float bound =
          static_cast<float>(c.window + c.kernel + c.n_heads / c.n_groups) * 0x1p-24f;
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_LE(std::abs(got[i] - expected[i]), (bound + 0x1p-23f) * expected[i]) << i;
    }
}

TEST_P(WindowScoresTest, OddValuesReachTheirPoolAndNoFurther) {
  for (Pooling pooling : {Pooling::average, Pooling::maximum})
    for (float odd : {kNan, kInf, -kInf}) {
      const Case c{1, 1, 2, 60, 2, 5, pooling};
      std::vector<float> probs(120, 0.5f);
      probs[20] = odd;
      const auto got = run(c, probs);
      for (std::size_t j = 0; j < 58; ++j) {
        const bool near = j >= 18 && j <= 22;
        if (!near && pooling == Pooling::maximum) {
          EXPECT_EQ(got[j], 0.5f);
        }
        if (near && std::isnan(odd)) {
          EXPECT_TRUE(std::isnan(got[j]));
        }
        if (near && odd == kInf) {
          EXPECT_EQ(got[j], kInf);
        }
        if (near && odd == -kInf) {
          EXPECT_EQ(got[j], pooling == Pooling::average ? -kInf : 0.5f);
        }
      }
      EXPECT_FLOAT_EQ(got[30], 0.5f);
    }
}

TEST_P(WindowScoresTest, DenormalsAndZerosAreKept) {
  const Case c{1, 1, 1, 5, 1, 1};
  EXPECT_EQ(run(c, {0, 1e-42f, 0, 1, 0}), (std::vector<float>{0, 1e-42f, 0, 1}));
}

TEST_P(WindowScoresTest, EmptyInputs) {
  EXPECT_TRUE(run({2, 2, 3, 3, 3, 7}, std::vector<float>(18)).empty())
      << "no position before the window";
  EXPECT_TRUE(run({0, 0, 3, 9, 3, 7}, {}).empty());
}

TEST_P(WindowScoresTest, ThreadsDoNotChangeABit) {
  Random random(22);
  const Case c{4, 2, 8, 5000, 8, 7};
  const auto probs = random.normals(c.n_heads * c.q_rows * c.n_tokens);
  const int before = thread_count();
  std::vector<std::vector<float>> results;
  for (int threads : {1, 2, 5}) {
    set_thread_count(threads);
    results.push_back(run(c, probs));
  }
  set_thread_count(before);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

KVATLAS_EVERY_BODY(WindowScoresTest);

class SelectionTest : public KernelTest {
 protected:
  std::vector<std::int64_t> counts(const std::array<std::int64_t, 3>& shape,
                                   const std::vector<float>& values,
                                   const std::vector<std::int64_t>& k) {
    return counts_on(exec(), memory(), shape, values, k);
  }
  static std::vector<std::int64_t> counts_on(const Exec& exec, Memory memory,
                                             const std::array<std::int64_t, 3>& shape,
                                             const std::vector<float>& values,
                                             const std::vector<std::int64_t>& k) {
    const Guarded<float> scores(values, memory);
    const auto n_k = static_cast<std::int64_t>(k.size());
    const Guarded<std::int64_t> out(n_k * shape[0], -7, memory);
    TopCounts io;
    io.scores = {scores.data(), shape, memory};
    io.k = k;
    io.counts = {out.data(), {n_k, shape[0]}, memory};
    top_counts(io, exec);
    EXPECT_TRUE(out.intact());
    return out.values();
  }
  std::vector<std::int64_t> positions(std::int64_t rows, std::int64_t n,
                                      const std::vector<float>& values, std::int64_t k) {
    return positions_on(exec(), memory(), rows, n, values, k);
  }
  static std::vector<std::int64_t> positions_on(const Exec& exec, Memory memory, std::int64_t rows,
                                                std::int64_t n, const std::vector<float>& values,
                                                std::int64_t k) {
    const Guarded<float> scores(values, memory);
    const Guarded<std::int64_t> out(rows * k, -7, memory);
    TopPositions io;
    io.scores = {scores.data(), {rows, n}, memory};
    io.positions = {out.data(), {rows, k}, memory};
    top_positions(io, exec);
    EXPECT_TRUE(out.intact());
    return out.values();
  }
  /// Scores with many ties, zeros of both signs, denormals, infinities and NaN.
  static std::vector<float> adversarial(Random& random, std::int64_t count) {
    const float odd[] = {0,    -0.0f, 1e-42f, -1e-42f, kInf, -kInf,
                         kNan, -kNan, 1,      1,       0.5f, std::nextafter(0.5f, 1.0f),
                         -3};
    std::vector<float> out;
    for (std::int64_t i = 0; i < count; ++i) out.push_back(odd[random.integer(0, 12)]);
    return out;
  }
};

TEST_P(SelectionTest, CountsMatchTheReference) {
  Random random(23);
  const Exec plain{.backend = Backend::reference};
  for (const std::array<std::int64_t, 3> shape : {std::array<std::int64_t, 3>{1, 1, 1},
                                                  {1, 1, 700},
                                                  {5, 3, 100},
                                                  {30, 2, 333},
                                                  {3, 1, 5000}}) {
    const std::int64_t total = shape[0] * shape[1] * shape[2];
    std::vector<std::int64_t> k = {0, 1, total, total / 2, total / 3, total - 1, total / 2};
    for (int i = 0; i < 5; ++i) k.push_back(random.integer(0, total));
    std::vector<float> smooth;
    for (std::int64_t i = 0; i < total; ++i) smooth.push_back(std::exp(4 * random.normal()));
    for (const auto& values : {smooth, adversarial(random, total),
                               std::vector<float>(static_cast<std::size_t>(total), 0.25f)}) {
      const auto got = counts(shape, values, k);
      ASSERT_EQ(got, counts_on(plain, Memory::host, shape, values, k));
      for (std::size_t i = 0; i < k.size(); ++i)
        EXPECT_EQ(std::accumulate(got.begin() + static_cast<std::ptrdiff_t>(i) * shape[0],
                                  got.begin() + static_cast<std::ptrdiff_t>(i + 1) * shape[0],
                                  std::int64_t{0}),
                  k[i]);
    }
  }
}

TEST_P(SelectionTest, TiesGoToTheLowerLayer) {
  EXPECT_EQ(counts({3, 1, 2}, {1, 1, 2, 1, 1, 1}, {4}), (std::vector<std::int64_t>{2, 2, 0}));
  EXPECT_EQ(counts({3, 1, 2}, {0, -0.0f, -0.0f, 0, 0, 0}, {3}),
            (std::vector<std::int64_t>{2, 1, 0}));
}

TEST_P(SelectionTest, ManyK) {
  Random random(24);
  const auto values = random.normals(600);
  std::vector<std::int64_t> k(600);
  std::iota(k.begin(), k.end(), 1);
  EXPECT_EQ(counts({4, 1, 150}, values, k),
            counts_on({.backend = Backend::reference}, Memory::host, {4, 1, 150}, values, k));
}

TEST_P(SelectionTest, PositionsMatchTheReference) {
  Random random(25);
  for (const std::int64_t n : {1, 2, 255, 256, 257, 1000, 3000})
    for (const std::int64_t k : {std::int64_t{0}, std::int64_t{1}, n / 3, n - 1, n}) {
      for (const auto& values : {random.normals(2 * n), adversarial(random, 2 * n),
                                 std::vector<float>(static_cast<std::size_t>(2 * n), -1.0f)}) {
        const auto got = positions(2, n, values, k);
        ASSERT_EQ(got, positions_on({.backend = Backend::reference}, Memory::host, 2, n, values, k))
            << n << " " << k;
        for (std::int64_t i = 1; i < k; ++i)
          ASSERT_LT(got[static_cast<std::size_t>(i - 1)], got[static_cast<std::size_t>(i)]);
      }
    }
}

TEST_P(SelectionTest, EarlierTiesAreTaken) {
  EXPECT_EQ(positions(1, 6, {1, 2, 1, 2, 1, 2}, 4), (std::vector<std::int64_t>{0, 1, 3, 5}));
  EXPECT_EQ(positions(1, 3, {kNan, -kInf, 0}, 2), (std::vector<std::int64_t>{1, 2})) << "NaN last";
}

TEST_P(SelectionTest, EmptyInputs) {
  EXPECT_TRUE(counts({0, 2, 3}, {}, {0}).empty());
  EXPECT_EQ(counts({2, 0, 3}, {}, {0}), (std::vector<std::int64_t>{0, 0}));
  EXPECT_TRUE(counts({2, 1, 1}, {1, 2}, {}).empty());
  EXPECT_TRUE(positions(0, 5, {}, 2).empty());
}

KVATLAS_EVERY_BODY(SelectionTest);

TEST(WindowScoresArguments, AreChecked) {
  float values[64] = {};
  WindowScores io;
  io.probs = View<float, 3>(values, {4, 2, 8});
  io.window = 2;
  io.scores = {values, {4, 6}};
  EXPECT_NO_THROW(window_scores(io));
  io.kernel = 4;
  EXPECT_THROW(window_scores(io), Error) << "even";
  io.kernel = 3;
  io.window = 3;
  EXPECT_THROW(window_scores(io), Error) << "more than the rows";
  io.window = 2;
  io.scores = {values, {3, 6}};
  EXPECT_THROW(window_scores(io), Error) << "3 groups of 4 heads";
  io.scores = {values, {4, 5}};
  EXPECT_THROW(window_scores(io), Error);

  std::int64_t out[8];
  TopCounts top;
  top.scores = {values, {2, 2, 2}};
  top.k = {9};
  top.counts = {out, {1, 2}};
  EXPECT_THROW(top_counts(top), Error) << "9 of 8";
  TopPositions positions;
  positions.scores = {values, {2, 3}};
  positions.positions = {out, {2, 4}};
  EXPECT_THROW(top_positions(positions), Error) << "4 of 3";
}

}  // namespace
}  // namespace kvatlas::kernels
