// SPDX-License-Identifier: Apache-2.0
#include "kernels/last_rows.hpp"

#include <algorithm>
#include <limits>

#include "kernels/base/error.hpp"
#include "kernels/base/parallel.hpp"
#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels {
namespace {

using namespace testing_support;

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Case {
  std::int64_t n_heads, n_kv_heads, q_rows, n_tokens, head_dim;
  std::int64_t window = 0;
  float soft_cap = 0;
  DType type = DType::f32;
  bool strided = false;
  float scale = 0;  // 0: 1 / sqrt(head_dim)
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "heads " << c.n_heads << "/" << c.n_kv_heads << ", rows " << c.q_rows << ", tokens "
             << c.n_tokens << ", dim " << c.head_dim << ", window " << c.window << ", cap "
             << c.soft_cap << ", " << dtype_name(c.type) << (c.strided ? ", strided" : "");
}

struct Result {
  std::vector<float> probs, mass, proximal, distant;
};

const std::vector<Proximity> kGrid = {{4, 1024}, {0, 0},    {0, 1},  {4, 64},
                                      {16, 64},  {16, 200}, {70, 3}, {1000000, 1}};

Result run_on(const Exec& exec, Memory memory, const Case& c, const std::vector<float>& queries,
              const std::vector<float>& keys, const std::vector<Proximity>& grid,
              bool want_probs = true) {
  const std::int64_t step = c.strided ? 2 : 1;
  const auto spread = [&](const std::vector<float>& values) {
    std::vector<float> out(values.size() * static_cast<std::size_t>(step), std::nanf(""));
    for (std::size_t i = 0; i < values.size(); ++i)
      out[i * static_cast<std::size_t>(step)] = values[i];
    return Encoded(c.type, out);
  };
  const Encoded q = spread(queries), k = spread(keys);
  const Guarded<float> q_full(q.values, memory), k_full(k.values, memory);
  const Guarded<std::uint16_t> q_half(q.half, memory), k_half(k.half, memory);
  const auto view = [&](const Guarded<float>& full, const Guarded<std::uint16_t>& half,
                        std::array<std::int64_t, 3> sizes) {
    auto strides = dense_strides(sizes);
    for (auto& stride : strides) stride *= step;
    return AnyView<3>(c.type == DType::f32 ? static_cast<const void*>(full.data()) : half.data(),
                      c.type, sizes, strides, memory);
  };
  const auto entries = static_cast<std::int64_t>(grid.size());
  const std::int64_t rows = c.n_heads * c.q_rows;
  const Guarded<float> probs(rows * c.n_tokens, -7, memory), mass(entries * rows, -7, memory),
      proximal(entries * rows, -7, memory), distant(entries * rows, -7, memory);
  LastRows io;
  io.queries = view(q_full, q_half, {c.n_heads, c.q_rows, c.head_dim});
  io.keys = view(k_full, k_half, {c.n_kv_heads, c.n_tokens, c.head_dim});
  io.scale = c.scale > 0 ? c.scale : 1 / std::sqrt(static_cast<float>(c.head_dim));
  io.soft_cap = c.soft_cap;
  io.window = c.window;
  if (want_probs) io.probs = {probs.data(), {c.n_heads, c.q_rows, c.n_tokens}, memory};
  io.grid = grid;
  const std::array<std::int64_t, 3> shape = {entries, c.n_heads, c.q_rows};
  io.mass = {mass.data(), shape, memory};
  io.proximal_lse = {proximal.data(), shape, memory};
  io.distant_lse = {distant.data(), shape, memory};
  last_rows(io, exec);
  EXPECT_TRUE(probs.intact() && mass.intact() && proximal.intact() && distant.intact());
  return {probs.values(), mass.values(), proximal.values(), distant.values()};
}

/// |got - expected| <= absolute + relative * |expected|, infinities and NaN alike.
void expect_close(const char* what, const std::vector<float>& got,
                  const std::vector<float>& expected, float absolute, float relative) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i]) || std::isinf(expected[i])) {
      ASSERT_TRUE(got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i])))
          << what << " " << i << ": " << got[i] << " instead of " << expected[i];
    } else {
      ASSERT_LE(std::abs(got[i] - expected[i]), absolute + relative * std::abs(expected[i]))
          << what << " " << i << ": " << got[i] << " instead of " << expected[i];
    }
  }
}

void expect_close(const Result& got, const Result& expected, float error = 1e-5f) {
  expect_close("weight", got.probs, expected.probs, 1e-37f, error);
  expect_close("mass", got.mass, expected.mass, 1e-37f, error);
  expect_close("proximal log-sum-exp", got.proximal, expected.proximal, error, 2e-7f);
  expect_close("distant log-sum-exp", got.distant, expected.distant, error, 2e-7f);
}

class LastRowsTest : public KernelTest {
 protected:
  Result run(const Case& c, const std::vector<float>& q, const std::vector<float>& k,
             const std::vector<Proximity>& grid = kGrid) {
    return run_on(exec(), memory(), c, q, k, grid);
  }
  static Result reference(const Case& c, const std::vector<float>& q, const std::vector<float>& k,
                          const std::vector<Proximity>& grid = kGrid) {
    return run_on({.backend = Backend::reference}, Memory::host, c, q, k, grid);
  }
};

TEST_P(LastRowsTest, MatchesTheReference) {
  Random random(11);
  for (const Case& c : {Case{1, 1, 1, 1, 1},
                        {2, 1, 1, 5, 3},
                        {3, 3, 2, 64, 8},
                        {9, 3, 16, 700, 64},
                        {8, 2, 32, 1100, 16},
                        {4, 4, 1, 513, 80},
                        {6, 2, 70, 70, 5},
                        {4, 2, 7, 600, 16, 100},
                        {4, 2, 5, 600, 16, 1},
                        {2, 1, 40, 130, 16, 30},
                        {2, 1, 3, 200, 16, 5000},
                        {4, 1, 9, 300, 32, 0, 30.0f},
                        {4, 2, 4, 400, 24, 90, 5.0f},
                        {4, 2, 5, 333, 20, 0, 0, DType::f16},
                        {4, 2, 5, 333, 20, 0, 0, DType::bf16, true},
                        {4, 2, 5, 333, 20, 77, 0, DType::f32, true},
                        {12, 1, 16, 257, 128, 0, 0, DType::f16, true}}) {
    SCOPED_TRACE(testing::Message() << c);
    const auto q = random.normals(c.n_heads * c.q_rows * c.head_dim);
    const auto k = random.normals(c.n_kv_heads * c.n_tokens * c.head_dim, 2);
    expect_close(run(c, q, k), reference(c, q, k));
  }
}

TEST_P(LastRowsTest, StatisticsDoNotNeedTheRows) {
  Random random(12);
  const Case c{6, 3, 4, 500, 16};
  const auto q = random.normals(c.n_heads * c.q_rows * c.head_dim),
             k = random.normals(c.n_kv_heads * c.n_tokens * c.head_dim);
  const auto with = run(c, q, k), without = run_on(exec(), memory(), c, q, k, kGrid, false);
  EXPECT_EQ(with.mass, without.mass);
  EXPECT_EQ(with.proximal, without.proximal);
  EXPECT_EQ(with.distant, without.distant);
  for (float value : without.probs) EXPECT_EQ(value, -7);
}

TEST_P(LastRowsTest, LargeScoresKeepTheirStatedError) {
  Random random(13);
  const Case c{2, 1, 3, 300, 32, 0, 0, DType::f32, false, 0.02f};
  const auto q = random.normals(c.n_heads * c.q_rows * c.head_dim, 10),
             k = random.normals(c.n_kv_heads * c.n_tokens * c.head_dim, 10);
  // scale * sum |q k| is at most about 0.02 * 32 * 100 * 3.
  expect_close(run(c, q, k), reference(c, q, k), (32 + 4) * 0x1p-24f * 192);
}

TEST_P(LastRowsTest, ObeysItsLaws) {
  Random random(14);
  const Case c{4, 2, 6, 400, 16, 0, 0, DType::f32};
  const auto q = random.normals(c.n_heads * c.q_rows * c.head_dim, 2),
             k = random.normals(c.n_kv_heads * c.n_tokens * c.head_dim);
  std::vector<Proximity> grid;
  for (std::int64_t initial : {0, 1, 4, 64, 65, 399})
    for (std::int64_t recent : {1, 2, 63, 64, 128, 400}) grid.push_back({initial, recent});
  const auto r = run(c, q, k, grid);
  const std::int64_t rows = c.n_heads * c.q_rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (std::int64_t j = 0; j < c.n_tokens; ++j) {
      const float p = r.probs[static_cast<std::size_t>(row * c.n_tokens + j)];
      sum += static_cast<double>(p);
      if (j > c.n_tokens - c.q_rows + row % c.q_rows) {
        EXPECT_EQ(p, 0);
      }
    }
    EXPECT_NEAR(sum, 1, 1e-5);
    const auto mass = [&](int a, int b) {
      return r.mass[static_cast<std::size_t>((a * 6 + b) * rows + row)];
    };
    for (int a = 0; a < 6; ++a)
      for (int b = 0; b < 6; ++b) {
        if (a > 0) {
          EXPECT_GE(mass(a, b), mass(a - 1, b));
        }
        if (b > 0) {
          EXPECT_GE(mass(a, b), mass(a, b - 1));
        }
        EXPECT_LE(mass(a, b), 1);
      }
    EXPECT_EQ(mass(0, 5), 1) << "no distant key, so exactly 1";
  }
}

TEST_P(LastRowsTest, OddValues) {
  // Row 0 of 3 sees keys 0..7, row 2 sees 0..9.
  const Case c{1, 1, 3, 10, 2, 0, 0, DType::f32, false, 1};
  const std::vector<Proximity> grid = {{1, 2}};
  const std::vector<float> q = {1, 0, 0, 0, 1, 0};  // the middle query is zero
  std::vector<float> k(20, 0.25f);
  k[18] = std::nanf("");  // key 9: seen by row 2 alone
  auto got = run(c, q, k, grid);
  expect_close(got, reference(c, q, k, grid));
  EXPECT_EQ(got.probs[9], 0) << "an unseen NaN leaves no trace";
  EXPECT_FALSE(std::isnan(got.mass[0]));
  EXPECT_NEAR(got.probs[10], 1.0 / 9, 1e-7) << "a zero query gives a uniform row";
  EXPECT_TRUE(std::isnan(got.probs[20]) && std::isnan(got.mass[2]) && std::isnan(got.proximal[2]));

  k.assign(20, 0.25f);
  k[6] = -kInf;  // key 3
  got = run(c, q, k, grid);
  EXPECT_EQ(got.probs[3], 0) << "a score of -inf is a weight of 0";
  EXPECT_TRUE(std::isnan(got.probs[10])) << "0 * inf";
  k[6] = kInf;
  got = run(c, q, k, grid);
  EXPECT_TRUE(std::isnan(got.probs[0]) && std::isnan(got.mass[0]) && std::isnan(got.distant[0]));
  for (std::size_t i = 0; i < 20; i += 2) k[i] = -kInf;
  got = run(c, q, k, grid);
  EXPECT_TRUE(std::isnan(got.probs[0]) && std::isnan(got.mass[0]) && std::isnan(got.proximal[0]));
  EXPECT_EQ(got.probs[8], 0) << "unseen";

  k.assign(20, 1e-42f);
  expect_close(run(c, q, k, grid), reference(c, q, k, grid));
}

TEST_P(LastRowsTest, TinyDistantMassKeepsItsPrecision) {
  // Key 200 outweighs all others by e^60: the distant set is far below float32's epsilon of the
  // total.
  const Case c{1, 1, 1, 300, 1, 0, 0, DType::f32, false, 1};
  std::vector<float> k(300, 0);
  for (std::size_t j = 0; j < 300; ++j) k[j] = 0.01f * static_cast<float>(j % 7);
  k[250] = 60;
  expect_close(run(c, {1}, k, {{4, 100}, {4, 60}, {4, 20}, {280, 20}}),
               reference(c, {1}, k, {{4, 100}, {4, 60}, {4, 20}, {280, 20}}));
}

TEST_P(LastRowsTest, EmptyInputs) {
  EXPECT_TRUE(run({0, 1, 2, 5, 4}, {}, std::vector<float>(20)).probs.empty());
  EXPECT_TRUE(run({2, 1, 0, 0, 4}, {}, {}).probs.empty());
  for (float p : run({1, 1, 1, 4, 0, 0, 0, DType::f32, false, 1}, {}, {}).probs)
    EXPECT_FLOAT_EQ(p, 0.25f);
}

TEST_P(LastRowsTest, ThreadsDoNotChangeABit) {
  Random random(15);
  const Case c{6, 3, 5, 1700, 16};
  const auto q = random.normals(c.n_heads * c.q_rows * c.head_dim),
             k = random.normals(c.n_kv_heads * c.n_tokens * c.head_dim);
  const int before = thread_count();
  std::vector<Result> results;
  for (int threads : {1, 2, 5}) {
    set_thread_count(threads);
    results.push_back(run(c, q, k));
  }
  set_thread_count(before);
  for (const auto& other : {results[1], results[2]}) {
    EXPECT_EQ(results[0].probs, other.probs);
    EXPECT_EQ(results[0].mass, other.mass);
    EXPECT_EQ(results[0].proximal, other.proximal);
    EXPECT_EQ(results[0].distant, other.distant);
  }
}

KVATLAS_EVERY_BODY(LastRowsTest);

TEST(LastRowsArguments, AreChecked) {
  float values[64] = {};
  LastRows io;
  io.queries = View<float, 3>(values, {3, 1, 4});
  io.keys = View<float, 3>(values, {2, 4, 4});
  EXPECT_THROW(last_rows(io), Error) << "3 heads on 2";
  io.keys = View<float, 3>(values, {3, 4, 2});
  EXPECT_THROW(last_rows(io), Error) << "other head_dim";
  io.keys = View<float, 3>(values, {3, 4, 4});
  EXPECT_NO_THROW(last_rows(io));
  io.queries = View<float, 3>(values, {3, 5, 4});
  EXPECT_THROW(last_rows(io), Error) << "more rows than tokens";
  io.queries = View<float, 3>(values, {3, 1, 4});
  io.grid = {{-1, 3}};
  EXPECT_THROW(last_rows(io), Error);
  io.grid = {{1, 3}};
  io.mass = {values, {1, 2, 1}};
  EXPECT_THROW(last_rows(io), Error);
  io.mass = {};
  io.soft_cap = std::nanf("");
  EXPECT_THROW(last_rows(io), Error);
}

}  // namespace
}  // namespace kvatlas::kernels
