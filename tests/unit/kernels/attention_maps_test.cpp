// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_maps.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/error_of.hpp"
#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels::attention_maps_tests {
namespace {

using namespace testing_support;

struct Case {
  std::int64_t heads, kv_heads, n, dim, block, levels = 1, window = 0;
  float soft_cap = 0, sharpness = 1;
  DType type = DType::f32;
  Layout layout = Layout::dense;
  DType key_type = type;
  bool chunks = false;
  KeyWindow key_window() const { return {window, chunks}; }
};

Case in_chunks(Case c) {
  c.chunks = true;
  return c;
}

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.heads << "/" << c.kv_heads << " heads, " << c.n << " tokens of " << c.dim << ", block "
       << c.block << " x" << c.levels << (c.chunks ? ", chunk " : ", window ") << c.window
       << ", cap " << c.soft_cap << ", " << dtype_name(c.type) << ", layout "
       << static_cast<int>(c.layout);
}

/// The outputs of one run, on the host.
struct Maps {
  std::vector<float> lse, columns;
  std::vector<std::vector<float>> mean, max;
  bool operator==(const Maps&) const = default;
};

class AttentionMapsTest : public KernelTest {
 protected:
  /// Both kernels on the same queries and keys; the maps take their lse from `lse_from` if given.
  Maps run(const Case& c, const CausalScores& scores, const Exec& how, Memory where,
           const std::vector<float>* lse_from = nullptr) {
    Maps out;
    const std::array<std::int64_t, 2> of_rows = {c.heads, c.n};
    const Output<float, 2> lse(of_rows, where, c.layout), columns(of_rows, where, c.layout);
    row_logsumexp({scores, lse.view}, how);
    out.lse = lse.values();
    const Tensor<2> given(lse_from ? *lse_from : out.lse, of_rows, where, DType::f32, c.layout);
    AttentionMaps io{
        .scores = scores,
        .lse = {static_cast<const float*>(given.view.data), of_rows, given.view.strides, where},
        .block = c.block,
        .levels = {},
        .column_sums = columns.view};
    std::vector<Output<float, 3>> means, maxima;
    for (std::int64_t l = 0; l < c.levels; ++l) {
      const std::int64_t side = map_blocks(c.n, c.block << l);
      const std::array<std::int64_t, 3> of_level = {c.heads, side, side};
      means.emplace_back(of_level, where, c.layout);
      maxima.emplace_back(of_level, where, c.layout);
      io.levels.push_back({means.back().view, maxima.back().view});
    }
    attention_maps(io, how);
    out.columns = columns.values();
    for (std::size_t l = 0; l < means.size(); ++l) {
      out.mean.push_back(means[l].values());
      out.max.push_back(maxima[l].values());
    }
    return out;
  }

  static void expect_close(const std::vector<float>& got, const std::vector<float>& want,
                           double absolute, double relative, const char* what) {
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (!std::isfinite(want[i]))
        ASSERT_FALSE(std::isfinite(got[i])) << what << " at " << i;
      else
        ASSERT_NEAR(got[i], want[i], absolute + relative * std::abs(static_cast<double>(want[i])))
            << what << " at " << i;
    }
  }

  void expect_maps(const Maps& got, const Maps& want) {
    expect_close(got.lse, want.lse, 2e-5, 2e-6, "lse");
    expect_close(got.columns, want.columns, 1e-6, 1e-4, "column sum");
    for (std::size_t l = 0; l < want.mean.size(); ++l) {
      expect_close(got.mean[l], want.mean[l], 1e-6, 1e-4, "mean");
      expect_close(got.max[l], want.max[l], 1e-6, 1e-4, "max");
    }
  }
};

const Case kCases[] = {
    {1, 1, 1, 1, 1},
    {1, 1, 2, 3, 1, 2},
    {2, 1, 7, 5, 2, 3},
    {3, 3, 33, 16, 4, 4},
    {6, 2, 100, 64, 8, 5},
    {9, 3, 97, 64, 1, 8},
    {4, 2, 130, 80, 3, 3},
    {2, 2, 385, 64, 64, 4},
    {2, 1, 401, 32, 100, 2, 57},
    {1, 1, 769, 64, 256, 3},
    {1, 1, 900, 16, 500, 2, 100},
    {1, 1, 300, 8, 1000, 2},
    {2, 1, 64, 128, 16, 2, 1},
    {2, 1, 65, 64, 16, 2, 64},
    {2, 1, 50, 64, 16, 2, 1000},
    {2, 2, 70, 300, 16, 2, 9},
    {2, 2, 40, 600, 7, 2},
    {4, 2, 140, 64, 16, 3, 0, 30.0f, 6},
    {2, 1, 120, 256, 16, 2, 33, 50.0f, 8},
    {2, 1, 200, 64, 32, 2, 0, 0, 5},
    {4, 2, 150, 64, 16, 3, 20, 0, 1, DType::f16, Layout::swapped},
    {4, 2, 150, 64, 16, 3, 0, 0, 1, DType::bf16, Layout::strided},
    {3, 1, 90, 40, 8, 2, 0, 0, 1, DType::f32, Layout::strided},
    {2, 1, 90, 64, 8, 2, 0, 0, 1, DType::f32, Layout::dense, DType::bf16},
    {1, 1, 200, 16, 100, 2, 0, 0, 1, DType::f16, Layout::strided, DType::f32},
    {2, 1, 200, 128, 128, 2, 0, 0, 1, DType::bf16},
    {1, 1, 150, 200, 16, 2, 0, 0, 1, DType::f16},
    {2, 1, 130, 24, 8, 3, 30, 0, 1, DType::bf16},
    {1, 1, 70, 5, 4, 2, 0, 0, 1, DType::f16},
    in_chunks({2, 1, 401, 32, 100, 2, 57}),
    in_chunks({1, 1, 900, 16, 500, 2, 100}),
    in_chunks({2, 1, 64, 128, 16, 2, 1}),
    in_chunks({2, 1, 200, 64, 16, 3, 64}),
    in_chunks({2, 1, 50, 64, 16, 2, 1000}),
    in_chunks({4, 2, 150, 64, 16, 3, 20, 30.0f, 6, DType::f16, Layout::swapped}),
};

TEST_P(AttentionMapsTest, MatchesTheReference) {
  Random random(5);
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::PrintToString(c));
    const Tensor<3> q(random.normals(c.heads * c.n * c.dim, c.sharpness), {c.heads, c.n, c.dim},
                      memory(), c.type, c.layout);
    const Tensor<3> k(random.normals(c.kv_heads * c.n * c.dim), {c.kv_heads, c.n, c.dim}, memory(),
                      c.key_type, c.layout);
    const float scale = 1 / std::sqrt(static_cast<float>(c.dim));
    const Maps want =
        run(c, {q.host, k.host, scale, c.key_window(), c.soft_cap}, kReference, Memory::host);
    // Float32 rounding of lse alone is within the tolerance, so either may be used; the reference's
    // keeps errors apart.
    const Maps got =
        run(c, {q.view, k.view, scale, c.key_window(), c.soft_cap}, exec(), memory(), &want.lse);
    expect_maps(got, want);
  }
}

TEST_P(AttentionMapsTest, RowsSumToOneAndMaximaBoundMeans) {
  Random random(6);
  const Case c{3, 1, 500, 64, 16, 5};
  const Tensor<3> q(random.normals(c.heads * c.n * c.dim, 3), {c.heads, c.n, c.dim}, memory());
  const Tensor<3> k(random.normals(c.kv_heads * c.n * c.dim), {c.kv_heads, c.n, c.dim}, memory());
  const Maps got = run(c, {q.view, k.view, 0.125f}, exec(), memory());
  for (std::int64_t h = 0; h < c.heads; ++h) {
    double columns = 0;
    for (std::int64_t j = 0; j < c.n; ++j) columns += static_cast<double>(got.columns[h * c.n + j]);
    EXPECT_NEAR(columns, static_cast<double>(c.n), 1e-3);
    for (std::int64_t l = 0; l < c.levels; ++l) {
      const std::int64_t block = c.block << l, side = map_blocks(c.n, block);
      double total = 0;
      for (std::int64_t bi = 0; bi < side; ++bi) {
        for (std::int64_t bj = 0; bj < side; ++bj) {
          const auto at = static_cast<std::size_t>((h * side + bi) * side + bj);
          const std::int64_t rows = std::min(block, c.n - bi * block);
          const std::int64_t cols = std::min(block, c.n - bj * block);
          total += static_cast<double>(got.mean[l][at]) * static_cast<double>(rows * cols);
          EXPECT_GE(got.max[l][at], got.mean[l][at] * 0.9999f);
          if (bj > bi) {
            EXPECT_EQ(got.max[l][at], 0);
          }
        }
      }
      EXPECT_NEAR(total, static_cast<double>(c.n), 1e-3);
    }
  }
}

TEST_P(AttentionMapsTest, ThreadsDoNotChangeABit) {
  Random random(7);
  const Case c{4, 2, 450, 64, 8, 4, 200};
  const Tensor<3> q(random.normals(c.heads * c.n * c.dim), {c.heads, c.n, c.dim}, memory());
  const Tensor<3> k(random.normals(c.kv_heads * c.n * c.dim), {c.kv_heads, c.n, c.dim}, memory());
  expect_same_for_any_thread_count([&] {
    return run(c, {q.view, k.view, 0.125f, c.key_window()}, exec(), memory());
  });
}

TEST_P(AttentionMapsTest, NonFiniteInputsSpoilOnlyTheirRowsAndColumns) {
  const Case c{1, 1, 60, 8, 4, 2};
  const std::vector<float> plain = Random(8).normals(c.n * c.dim);
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const float bad : {std::nanf(""), kInf, -kInf}) {
      for (const bool in_query : {true, false}) {
        SCOPED_TRACE(testing::PrintToString(bad) +
                     (in_query ? " in a query of " : " in a key of ") + dtype_name(type));
        auto q_values = plain, k_values = plain;
        (in_query ? q_values : k_values)[17 * c.dim + 3] = bad;
        const Tensor<3> q(q_values, {1, c.n, c.dim}, memory(), type);
        const Tensor<3> k(k_values, {1, c.n, c.dim}, memory(), type);
        const Maps want = run(c, {q.host, k.host, 0.4f}, kReference, Memory::host);
        expect_maps(run(c, {q.view, k.view, 0.4f}, exec(), memory(), &want.lse), want);
      }
    }
  }
  // A spoilt row leaves the columns to its right and the rows above alone.
  auto q_values = plain;
  q_values[17 * c.dim] = std::nanf("");
  const Tensor<3> q(q_values, {1, c.n, c.dim}, memory()), k(plain, {1, c.n, c.dim}, memory());
  const Maps got = run(c, {q.view, k.view, 0.4f}, exec(), memory());
  for (std::int64_t i = 0; i < c.n; ++i) {
    EXPECT_EQ(std::isnan(got.lse[i]), i == 17);
    EXPECT_EQ(std::isnan(got.columns[i]), i <= 17);
  }
}

TEST_P(AttentionMapsTest, InfiniteScoresAreNothingBelowAndSpoilTheirRowAbove) {
  const Tensor<3> ones({1, 1, 1}, {1, 3, 1}, memory());
  const auto lse_of = [&](const std::vector<float>& keys) {
    const Tensor<3> k(keys, {1, 3, 1}, memory());
    const Guarded<float> lse(3, 0.0f, memory());
    row_logsumexp({{ones.view, k.view, 1.0f}, {lse.data(), {1, 3}, memory()}}, exec());
    return lse.values();
  };
  const auto above = lse_of({0, kInf, 0});
  EXPECT_EQ(above[0], 0);
  EXPECT_TRUE(std::isnan(above[1]) && std::isnan(above[2]));
  EXPECT_EQ(lse_of({-kInf, 0, -kInf}), (std::vector<float>{-kInf, 0, 0}));
}

TEST_P(AttentionMapsTest, ZerosDenormalsAndHugeScores) {
  const Case c{1, 1, 50, 16, 8, 2};
  for (const float size : {0.0f, 1e-42f, 1e-20f, 3.0f}) {
    SCOPED_TRACE(size);
    const Tensor<3> q(Random(9).normals(c.n * c.dim, size), {1, c.n, c.dim}, memory());
    const Tensor<3> k(Random(10).normals(c.n * c.dim, size), {1, c.n, c.dim}, memory());
    const Maps want = run(c, {q.host, k.host, 2.0f}, kReference, Memory::host);
    expect_maps(run(c, {q.view, k.view, 2.0f}, exec(), memory(), &want.lse), want);
  }
  // Scores around 1e4, one-hot rows: float32 scores are off by 1e-3, so only the shape is looked
  // at.
  const Tensor<3> q(Random(9).normals(c.n * c.dim, 1e3f), {1, c.n, c.dim}, memory());
  const Tensor<3> k(Random(10).normals(c.n * c.dim, 1.0f), {1, c.n, c.dim}, memory());
  const Maps got = run(c, {q.view, k.view, 2.0f}, exec(), memory());
  double total = 0;
  for (const float value : got.columns) total += static_cast<double>(value);
  EXPECT_NEAR(total, static_cast<double>(c.n), 0.2);
}

TEST_P(AttentionMapsTest, EmptyInputsAndOptionalOutputs) {
  const Tensor<3> none({}, {2, 0, 8}, memory());
  row_logsumexp({{none.view, none.view, 1.0f}, {nullptr, {2, 0}, memory()}}, exec());
  attention_maps({.scores = {none.view, none.view, 1.0f},
                  .lse = {nullptr, {2, 0}, memory()},
                  .block = 4,
                  .levels = {{}},
                  .column_sums = {}},
                 exec());
  const Tensor<3> x(Random(1).normals(5 * 4), {1, 5, 4}, memory());
  Guarded<float> lse(5, 0.0f, memory()), max(9, -7.0f, memory());
  row_logsumexp({{x.view, x.view, 1.0f}, {lse.data(), {1, 5}, memory()}}, exec());
  attention_maps({.scores = {x.view, x.view, 1.0f},
                  .lse = {lse.data(), {1, 5}, memory()},
                  .block = 2,
                  .levels = {{{}, {max.data(), {1, 3, 3}, memory()}}, {}},
                  .column_sums = {}},
                 exec());
  EXPECT_TRUE(max.intact());
  for (const float value : max.values()) EXPECT_GE(value, 0);
  const Guarded<float> columns(5, -7.0f, memory());
  attention_maps({.scores = {x.view, x.view, 1.0f},
                  .lse = {lse.data(), {1, 5}, memory()},
                  .levels = {},
                  .column_sums = {columns.data(), {1, 5}, memory()}},
                 exec());
  float sum = 0;
  for (const float value : columns.values()) sum += value;
  EXPECT_NEAR(sum, 5, 1e-5);
}

TEST(AttentionMapsArguments, ShapesThatDoNotFitAreNamed) {
  float data[64] = {};
  const View<const float, 3> q(data, {2, 3, 4}), other(data, {1, 3, 5}), odd(data, {3, 3, 4});
  const View<float, 2> lse(data, {2, 3});
  const auto lse_error = [](const CausalScores& scores, const View<float, 2>& to) {
    return error_of([&] { row_logsumexp({scores, to}); });
  };
  EXPECT_EQ(lse_error({q, other, 1.0f}, lse), "keys has shape [1, 3, 5], expected [1, 3, 4]");
  EXPECT_EQ(lse_error({q, odd, 1.0f}, lse), "2 query heads cannot share 3 key heads evenly");
  EXPECT_EQ(lse_error({q, q, 1.0f}, View<float, 2>(data, {2, 4})),
            "lse has shape [2, 4], expected [2, 3]");
  EXPECT_NE(lse_error({q, q, 1.0f, -1}, lse), "");
  EXPECT_EQ(lse_error({q, q, 1.0f, {}, -2.0f}, lse), "soft_cap is -2, expected 0 or more");
  AttentionMaps io{.scores = {q, q, 1.0f}, .lse = lse, .block = 0, .levels = {}, .column_sums = {}};
  const auto error = [&] { return error_of([&] { attention_maps(io); }); };
  EXPECT_NE(error(), "") << "blocks of 0 tokens";
  io.block = 2;
  io.levels = {{View<float, 3>(data, {2, 3, 3}), {}}};
  EXPECT_EQ(error(), "a level of the maps has shape [2, 3, 3], expected [2, 2, 2]");
  io.levels = {{{}, {}}, {View<float, 3>(data, {2, 1, 1}), {}}};
  EXPECT_EQ(error(), "level 1 of the maps asks for what level 0 lacks");
}

TEST(AttentionMapsArguments, FinestBlock) {
  EXPECT_EQ(finest_map_block(1), 1);
  EXPECT_EQ(finest_map_block(512), 1);
  EXPECT_EQ(finest_map_block(513), 2);
  EXPECT_EQ(finest_map_block(32768), 64);
  EXPECT_EQ(finest_map_block(32769), 128);
}

KVATLAS_EVERY_BODY(AttentionMapsTest);

}  // namespace
}  // namespace kvatlas::kernels::attention_maps_tests
