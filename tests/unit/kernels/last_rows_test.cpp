// SPDX-License-Identifier: Apache-2.0
#include "kernels/last_rows.hpp"

#include <algorithm>
#include <limits>

#include <gmock/gmock.h>

#include "tests/support/error_of.hpp"
#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels::last_rows_tests {
namespace {

using namespace testing_support;
using testing::HasSubstr;

struct Case {
  std::int64_t n_heads, n_kv_heads, q_rows, n_tokens, head_dim;
  std::int64_t window = 0;
  float soft_cap = 0;
  DType type = DType::f32, key_type = type;
  Layout layout = Layout::dense;
  float scale = 0;  // 0: 1 / sqrt(head_dim)
  bool sinks = false;
  bool chunks = false;
  std::int64_t row_step = 1;
};

Case in_chunks(Case c) {
  c.chunks = true;
  return c;
}

Case apart(std::int64_t step, Case c) {
  c.row_step = step;
  return c;
}

/// Some weigh next to nothing, one takes nearly all.
std::vector<float> sinks_of(std::int64_t heads) {
  std::vector<float> sinks;
  for (std::int64_t h = 0; h < heads; ++h)
    sinks.push_back(h % 4 == 3 ? 60.0f : static_cast<float>(h) - 2);
  return sinks;
}

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << "heads " << c.n_heads << "/" << c.n_kv_heads << ", rows " << c.q_rows << ", tokens "
             << c.n_tokens << ", step " << c.row_step << ", dim " << c.head_dim
             << (c.chunks ? ", chunk " : ", window ") << c.window << ", cap " << c.soft_cap << ", "
             << dtype_name(c.type) << " and " << dtype_name(c.key_type) << ", layout "
             << static_cast<int>(c.layout);
}

struct Result {
  std::vector<float> probs, mass, proximal, distant;
  bool operator==(const Result&) const = default;
};

const std::vector<Proximity> kGrid = {{4, 1024}, {0, 0},    {0, 1},  {4, 64},
                                      {16, 64},  {16, 200}, {70, 3}, {1000000, 1}};

Result run_on(const Exec& exec, Memory memory, const Case& c, const std::vector<float>& queries,
              const std::vector<float>& keys, const std::vector<Proximity>& grid,
              bool want_probs = true) {
  const Tensor<3> q(queries, {c.n_heads, c.q_rows, c.head_dim}, memory, c.type, c.layout);
  const Tensor<3> k(keys, {c.n_kv_heads, c.n_tokens, c.head_dim}, memory, c.key_type, c.layout);
  const std::array<std::int64_t, 3> of_rows = {c.n_heads, c.q_rows, c.n_tokens};
  const std::array<std::int64_t, 3> of_grid = {static_cast<std::int64_t>(grid.size()), c.n_heads,
                                               c.q_rows};
  const Output<float, 3> probs(of_rows, memory, c.layout), mass(of_grid, memory, c.layout),
      proximal(of_grid, memory, c.layout), distant(of_grid, memory, c.layout);
  LastRows io;
  io.queries = q.view;
  io.keys = k.view;
  io.row_step = c.row_step;
  io.scale = c.scale > 0 ? c.scale : 1 / std::sqrt(static_cast<float>(c.head_dim));
  io.soft_cap = c.soft_cap;
  io.window = {c.window, c.chunks};
  const Tensor<1> sinks(sinks_of(c.n_heads), {c.n_heads}, memory, DType::f32, Layout::dense);
  if (c.sinks)
    io.sinks = {static_cast<const float*>(sinks.view.data), sinks.view.sizes, sinks.view.strides,
                memory};
  if (want_probs) io.probs = probs.view;
  io.grid = grid;
  io.mass = mass.view;
  io.proximal_lse = proximal.view;
  io.distant_lse = distant.view;
  last_rows(io, exec);
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
    return run_on(kReference, Memory::host, c, q, k, grid);
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
                        in_chunks({4, 2, 7, 600, 16, 100}),
                        in_chunks({4, 2, 5, 600, 16, 1}),
                        in_chunks({4, 2, 9, 515, 16, 128}),
                        in_chunks({2, 1, 5, 40, 8, 1000}),
                        {2, 1, 40, 130, 16, 30},
                        {2, 1, 3, 200, 16, 5000},
                        {4, 1, 9, 300, 32, 0, 30.0f},
                        {4, 2, 4, 400, 24, 90, 5.0f},
                        {4, 2, 5, 333, 20, 0, 0, DType::f16},
                        {4, 2, 5, 333, 20, 0, 0, DType::bf16, DType::bf16, Layout::strided},
                        {4, 2, 5, 333, 20, 77, 0, DType::f32, DType::f32, Layout::strided},
                        {6, 2, 5, 333, 64, 0, 0, DType::f32, DType::f32, Layout::swapped},
                        {6, 2, 5, 333, 64, 0, 0, DType::f32, DType::f16, Layout::swapped},
                        {6, 2, 5, 333, 64, 0, 0, DType::bf16, DType::f32},
                        {8, 2, 9, 700, 16, 0, 0, DType::f32, DType::f32, Layout::dense, 0, true},
                        {5, 1, 3, 200, 24, 50, 9, DType::f16, DType::f16, Layout::strided, 0, true},
                        {12, 1, 16, 257, 128, 0, 0, DType::f16, DType::f16, Layout::strided},
                        apart(2, {9, 3, 32, 700, 64}),
                        apart(100, {4, 2, 7, 601, 16}),
                        apart(3, {4, 2, 20, 130, 16, 30}),
                        apart(7, in_chunks({4, 2, 9, 515, 16, 128}))}) {
    SCOPED_TRACE(testing::Message() << c);
    const auto q = random.normals(c.n_heads * c.q_rows * c.head_dim);
    const auto k = random.normals(c.n_kv_heads * c.n_tokens * c.head_dim, 2);
    expect_close(run(c, q, k), reference(c, q, k));
  }
}

TEST_P(LastRowsTest, RowsApartAreAmongAllRows) {
  Random random(17);
  constexpr std::int64_t kStep = 5, kRows = 9, kSpan = (kRows - 1) * kStep + 1;
  const Case some = apart(kStep, {4, 2, kRows, 300, 16, 120}), all{4, 2, kSpan, 300, 16, 120};
  const auto q = random.normals(all.n_heads * kSpan * all.head_dim),
             k = random.normals(all.n_kv_heads * all.n_tokens * all.head_dim);
  const auto each = [](const std::vector<float>& rows, std::int64_t width) {
    std::vector<float> out;
    for (std::int64_t row = 0; row * width < std::ssize(rows); ++row)
      if (row % kSpan % kStep == 0)
        out.insert(out.end(), rows.begin() + row * width, rows.begin() + (row + 1) * width);
    return out;
  };
  const Result of_all = run(all, q, k);
  expect_close(run(some, each(q, all.head_dim), k),
               {each(of_all.probs, all.n_tokens), each(of_all.mass, 1), each(of_all.proximal, 1),
                each(of_all.distant, 1)});
}

TEST_P(LastRowsTest, ASinkTakesItsShareAndIsProximal) {
  Random random(13);
  Case c{8, 2, 3, 300, 16};
  const auto q = random.normals(c.n_heads * c.q_rows * c.head_dim),
             k = random.normals(c.n_kv_heads * c.n_tokens * c.head_dim);
  const auto without = run(c, q, k);
  c.sinks = true;
  const auto with = run(c, q, k);
  const auto sinks = sinks_of(c.n_heads);
  const auto both = [](double a, double b) {
    return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
  };
  for (std::size_t i = 0; i < with.proximal.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i) % (c.n_heads * c.q_rows);
    const auto sink = static_cast<double>(sinks[static_cast<std::size_t>(row / c.q_rows)]);
    const double near = both(static_cast<double>(without.proximal[i]), sink);
    EXPECT_NEAR(with.proximal[i], near, 1e-4);
    EXPECT_FLOAT_EQ(with.distant[i], without.distant[i]);
    EXPECT_NEAR(with.mass[i], 1 / (1 + std::exp(static_cast<double>(without.distant[i]) - near)),
                1e-5);
  }
  for (std::int64_t row = 0; row < c.n_heads * c.q_rows; ++row) {
    const auto at = static_cast<std::size_t>(row);  // of the first entry of the grid
    const double all =
        both(static_cast<double>(without.proximal[at]), static_cast<double>(without.distant[at]));
    const auto sink = static_cast<double>(sinks[static_cast<std::size_t>(row / c.q_rows)]);
    const double left = 1 / (1 + std::exp(sink - all));
    for (std::int64_t j = 0; j < c.n_tokens; ++j) {
      const auto cell = static_cast<std::size_t>(row * c.n_tokens + j);
      ASSERT_NEAR(with.probs[cell], left * static_cast<double>(without.probs[cell]), 1e-6);
    }
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
  Case c{2, 1, 3, 300, 32};
  c.scale = 0.02f;
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
      const float p = r.probs[row * c.n_tokens + j];
      sum += static_cast<double>(p);
      if (j > c.n_tokens - c.q_rows + row % c.q_rows) {
        EXPECT_EQ(p, 0);
      }
    }
    EXPECT_NEAR(sum, 1, 1e-5);
    const auto mass = [&](int a, int b) { return r.mass[(a * 6 + b) * rows + row]; };
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
  Case c{1, 1, 3, 10, 2};
  c.scale = 1;
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
  Case c{1, 1, 1, 300, 1};
  c.scale = 1;
  std::vector<float> k(300, 0);
  for (std::size_t j = 0; j < 300; ++j) k[j] = 0.01f * static_cast<float>(j % 7);
  k[250] = 60;
  expect_close(run(c, {1}, k, {{4, 100}, {4, 60}, {4, 20}, {280, 20}}),
               reference(c, {1}, k, {{4, 100}, {4, 60}, {4, 20}, {280, 20}}));
}

TEST_P(LastRowsTest, WeightsBelowTheNormalRangeMayCountAsZero) {
  // e^-80 of the largest is a float, e^-100 is not.
  Case c{1, 1, 1, 40, 1};
  c.scale = 1;
  std::vector<float> k(40, -100);
  k[39] = 0;
  auto got = run(c, {1}, k, {{0, 1}});
  EXPECT_EQ(got.mass[0], 1);
  EXPECT_TRUE(got.distant[0] == -kInf || std::abs(got.distant[0] - std::log(39.0f) + 100) < 1e-4f)
      << got.distant[0];
  EXPECT_LT(got.probs[5], 0x1p-126f);
  k[5] = -80;
  got = run(c, {1}, k, {{0, 1}});
  EXPECT_NEAR(got.distant[0], -80, 1e-4);
  EXPECT_NEAR(got.probs[5] / std::exp(-80.0), 1, 1e-4);
}

TEST_P(LastRowsTest, LongRowsKeepTheirPrecision) {
  // Many equal weights: what float32 loses by adding them one by one would show.
  const Case c{1, 1, 2, 200000, 1};
  std::vector<float> k(200000, 0.0f);
  const std::vector<Proximity> grid = {{4, 100000}};
  const auto got = run(c, {1, 1}, k, grid), want = reference(c, {1, 1}, k, grid);
  expect_close(got, want, 2e-6f);
}

TEST_P(LastRowsTest, EmptyInputs) {
  EXPECT_TRUE(run({0, 1, 2, 5, 4}, {}, std::vector<float>(20)).probs.empty());
  EXPECT_TRUE(run({0, 0, 1, 5, 4}, {}, {}).probs.empty());
  EXPECT_TRUE(run({2, 1, 0, 0, 4}, {}, {}).probs.empty());
  EXPECT_TRUE(run({2, 1, 0, 3, 4}, {}, std::vector<float>(12)).probs.empty());
  Case c{1, 1, 1, 4, 0};
  c.scale = 1;
  for (float p : run(c, {}, {}).probs) EXPECT_FLOAT_EQ(p, 0.25f);
}

TEST_P(LastRowsTest, ThreadsDoNotChangeABit) {
  Random random(15);
  const Case c{6, 3, 5, 1700, 16};
  const auto q = random.normals(c.n_heads * c.q_rows * c.head_dim),
             k = random.normals(c.n_kv_heads * c.n_tokens * c.head_dim);
  expect_same_for_any_thread_count([&] { return run(c, q, k); });
}

KVATLAS_EVERY_BODY(LastRowsTest);

TEST(LastRowsArguments, AreChecked) {
  float values[64] = {};
  LastRows io;
  const auto error = [&] { return error_of([&] { last_rows(io); }); };
  io.queries = View<float, 3>(values, {3, 1, 4});
  io.keys = View<float, 3>(values, {2, 4, 4});
  EXPECT_EQ(error(), "3 query heads cannot share 2 key heads evenly");
  io.keys = View<float, 3>(values, {3, 4, 2});
  EXPECT_EQ(error(), "keys have head_dim 2, the queries 4");
  io.keys = View<float, 3>(nullptr, {3, 4, 4});
  EXPECT_EQ(error(), "keys has no data");
  io.keys = View<float, 3>(values, {3, -4, 4});
  EXPECT_EQ(error(), "keys has shape [3, -4, 4]");
  io.keys = View<float, 3>(values, {3, 4, 4});
  EXPECT_EQ(error(), "");
  io.queries = View<float, 3>(values, {3, 5, 4});
  EXPECT_EQ(error(), "q_rows is 5, expected 0 to 4");
  io.queries = View<float, 3>(values, {3, 3, 4});
  io.row_step = 2;
  EXPECT_EQ(error(), "q_rows is 3, expected 0 to 2");
  io.row_step = 0;
  EXPECT_THAT(error(), HasSubstr("row_step is 0, expected 1 to "));
  io.row_step = 1;
  io.queries = View<float, 3>(values, {3, 1, 4});
  io.grid = {{-1, 3}};
  EXPECT_THAT(error(), HasSubstr("initial is -1, expected 0 to "));
  io.grid = {{1, 3}};
  io.mass = {values, {1, 2, 1}};
  EXPECT_EQ(error(), "a statistic of the grid has shape [1, 2, 1], expected [1, 3, 1]");
  io.mass = {};
  io.probs = {values, {3, 1, 5}};
  EXPECT_EQ(error(), "probs has shape [3, 1, 5], expected [3, 1, 4]");
  io.probs = {values, {3, 1, 4}, Memory::device};
  EXPECT_EQ(error(), "probs lies in device memory, the inputs do not");
  io.probs = {};
  io.soft_cap = std::nanf("");
  EXPECT_EQ(error(), "soft_cap is nan, expected 0 or more");
}

}  // namespace
}  // namespace kvatlas::kernels::last_rows_tests
