// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/pair_attention.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels::causal_attention_tests {
namespace {

using namespace testing_support;

struct Case {
  std::int64_t heads, kv_heads, n, n_all, dim, value_dim;
  KeyWindow window = {};
  float soft_cap = 0, sharpness = 1;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.heads << "/" << c.kv_heads << " heads, " << c.n << " of " << c.n_all << " tokens, "
       << c.dim << " and " << c.value_dim << " channels, window " << c.window.size
       << (c.window.chunks ? " in chunks" : "") << ", cap " << c.soft_cap;
}

struct Result {
  std::vector<float> out, lse;
  bool operator==(const Result&) const = default;
};

/// It has CPU bodies only.
class CausalAttentionTest : public KernelTest {
 protected:
  static Result run(const Case& c, const std::vector<float>& q, const std::vector<float>& k,
                    const std::vector<float>& v, float scale) {
    Guarded<float> out(c.n * c.heads * c.value_dim, -7.0f), lse(c.heads * c.n, -7.0f);
    causal_attention({.queries = {q.data(), {c.heads, c.n, c.dim}},
                      .keys = {k.data(), {c.kv_heads, c.n_all, c.dim}},
                      .values = {v.data(), {c.kv_heads, c.n_all, c.value_dim}},
                      .scale = scale,
                      .soft_cap = c.soft_cap,
                      .window = c.window,
                      .out = {out.data(), {c.n, c.heads, c.value_dim}},
                      .lse = {lse.data(), {c.heads, c.n}}});
    EXPECT_TRUE(out.intact() && lse.intact());
    return {out.values(), lse.values()};
  }
};

/// As the header says it, in float64.
Result plain(const Case& c, const std::vector<float>& q, const std::vector<float>& k,
             const std::vector<float>& v, float scale) {
  Result result{std::vector<float>(static_cast<std::size_t>(c.n * c.heads * c.value_dim)),
                std::vector<float>(static_cast<std::size_t>(c.heads * c.n))};
  for (std::int64_t h = 0; h < c.heads; ++h)
    for (std::int64_t row = 0; row < c.n; ++row) {
      const std::int64_t i = c.n_all - c.n + row, kv = h / (c.heads / c.kv_heads);
      const std::int64_t first = c.window.first_key(i);
      std::vector<double> scores;
      for (std::int64_t j = first; j <= i; ++j) {
        double dot = 0;
        for (std::int64_t d = 0; d < c.dim; ++d)
          dot += static_cast<double>(q[(h * c.n + row) * c.dim + d]) *
                 static_cast<double>(k[(kv * c.n_all + j) * c.dim + d]);
        dot *= static_cast<double>(scale);
        const auto cap = static_cast<double>(c.soft_cap);
        scores.push_back(cap > 0 ? cap * std::tanh(dot / cap) : dot);
      }
      const double top = *std::max_element(scores.begin(), scores.end());
      double total = 0;
      std::vector<double> mean(static_cast<std::size_t>(c.value_dim));
      for (std::size_t j = 0; j < scores.size(); ++j) {
        const double weight = std::exp(scores[j] - top);
        total += weight;
        for (std::int64_t d = 0; d < c.value_dim; ++d)
          mean[d] +=
              weight *
              static_cast<double>(
                  v[(kv * c.n_all + first + static_cast<std::int64_t>(j)) * c.value_dim + d]);
      }
      for (std::int64_t d = 0; d < c.value_dim; ++d)
        result.out[(row * c.heads + h) * c.value_dim + d] = static_cast<float>(mean[d] / total);
      result.lse[h * c.n + row] = static_cast<float>(top + std::log(total));
    }
  return result;
}

const Case kCases[] = {
    {1, 1, 1, 1, 1, 1},
    {2, 1, 2, 2, 3, 5},
    {3, 3, 17, 17, 16, 16},
    {6, 2, 100, 100, 64, 64},
    {4, 4, 97, 97, 80, 80},
    {2, 1, 401, 401, 32, 48},
    {1, 1, 300, 300, 300, 7},
    {4, 2, 40, 333, 64, 64},
    {2, 1, 193, 193, 64, 64, {}, 0, 6},
    {2, 1, 300, 300, 64, 64, {57, false}},
    {2, 1, 150, 400, 64, 64, {120, false}},
    {2, 1, 300, 300, 24, 24, {1, false}},
    {2, 1, 300, 300, 24, 24, {1000, false}},
    {2, 1, 300, 300, 64, 64, {100, true}},
    {2, 2, 64, 300, 16, 16, {7, true}},
    {4, 2, 140, 140, 64, 64, {}, 30, 6},
    {2, 1, 50, 50, 16, 16, {9, false}, 2, 2},  // so little that what is hidden would count
    {2, 1, 220, 220, 256, 256, {33, false}, 50, 8},
};

TEST_P(CausalAttentionTest, IsTheMeanOfTheValuesUnderTheSoftmax) {
  Random random(5);
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::PrintToString(c));
    const auto q = random.normals(c.heads * c.n * c.dim, c.sharpness),
               k = random.normals(c.kv_heads * c.n_all * c.dim),
               v = random.normals(c.kv_heads * c.n_all * c.value_dim);
    const float scale = 1 / std::sqrt(static_cast<float>(c.dim));
    const Result want = plain(c, q, k, v, scale), got = run(c, q, k, v, scale);
    for (std::size_t i = 0; i < want.out.size(); ++i)
      ASSERT_NEAR(got.out[i], want.out[i], 3e-5) << "value " << i;
    for (std::size_t i = 0; i < want.lse.size(); ++i)
      ASSERT_NEAR(got.lse[i], want.lse[i], 2e-5) << "row " << i;
  }
}

std::vector<Bf16> rounded(std::vector<float>& values) {
  std::vector<Bf16> out;
  for (float& value : values) {
    out.push_back({float_to_bf16(value)});
    value = bf16_to_float(out.back().bits);
  }
  return out;
}

/// As the header says it, and a count of what each thread took and gave back.
thread_local int taken = 0;
constexpr PairProduct kPlainProduct = {
    [](std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t lda, std::int64_t ldb,
       std::int64_t ldc, bool add, const Bf16* a, const Bf16* b, float* c) {
      taken = 1;
      EXPECT_EQ(k % 2, 0);
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          double sum = add ? static_cast<double>(c[i * ldc + j]) : 0.0;
          for (std::int64_t x = 0; x < k; ++x)
            sum += static_cast<double>(bf16_to_float(a[i * lda + x].bits)) *
                   static_cast<double>(bf16_to_float(b[(x / 2 * ldb + j) * 2 + x % 2].bits));
          c[i * ldc + j] = static_cast<float>(sum);
        }
    },
    [] { taken = 0; }};

Result run_in_pairs(const Case& c, const std::vector<Bf16>& q, const std::vector<Bf16>& k,
                    const std::vector<Bf16>& v, float scale) {
  std::vector<Bf16> out(static_cast<std::size_t>(c.n * c.heads * c.value_dim), Bf16{0x7fc0});
  Guarded<float> lse(c.heads * c.n, -7.0f);
  pair_attention({.queries = {q.data(), {c.heads, c.n, c.dim}},
                  .keys = {k.data(), {c.kv_heads, c.n_all, c.dim}},
                  .values = {v.data(), {c.kv_heads, c.n_all, c.value_dim}},
                  .scale = scale,
                  .soft_cap = c.soft_cap,
                  .window = c.window,
                  .out = {out.data(), {c.n, c.heads, c.value_dim}},
                  .lse = {lse.data(), {c.heads, c.n}}},
                 kPlainProduct);
  EXPECT_TRUE(lse.intact());
  EXPECT_EQ(taken, 0);
  Result result{{}, lse.values()};
  for (const Bf16 value : out) result.out.push_back(bf16_to_float(value.bits));
  return result;
}

TEST_P(CausalAttentionTest, OfPairsIsTheSameToBfloat16) {
  Random random(6);
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::PrintToString(c));
    auto q = random.normals(c.heads * c.n * c.dim, c.sharpness),
         k = random.normals(c.kv_heads * c.n_all * c.dim),
         v = random.normals(c.kv_heads * c.n_all * c.value_dim);
    const auto queries = rounded(q), keys = rounded(k), values = rounded(v);
    const float scale = 1 / std::sqrt(static_cast<float>(c.dim));
    const Result want = plain(c, q, k, v, scale),
                 got = run_in_pairs(c, queries, keys, values, scale);
    float largest = 0;
    for (const float value : v) largest = std::max(largest, std::abs(value));
    for (std::size_t i = 0; i < want.out.size(); ++i)
      ASSERT_NEAR(got.out[i], want.out[i], largest / 128) << "value " << i;
    for (std::size_t i = 0; i < want.lse.size(); ++i)
      ASSERT_NEAR(got.lse[i], want.lse[i], 2e-5) << "row " << i;
  }
}

TEST_P(CausalAttentionTest, ThreadsDoNotChangeABitOfPairs) {
  Random random(8);
  const Case c{6, 2, 450, 500, 64, 64, {200, false}};
  auto q = random.normals(c.heads * c.n * c.dim), k = random.normals(c.kv_heads * c.n_all * c.dim),
       v = random.normals(c.kv_heads * c.n_all * c.value_dim);
  const auto queries = rounded(q), keys = rounded(k), values = rounded(v);
  expect_same_for_any_thread_count([&] { return run_in_pairs(c, queries, keys, values, 0.125f); });
}

TEST_P(CausalAttentionTest, EqualKeysGiveTheMeanOfTheValues) {
  const Case c{1, 1, 250, 250, 8, 1};
  const std::vector<float> q = Random(1).normals(c.n * c.dim), k(q.size(), 0.5f);
  std::vector<float> v;
  for (std::int64_t j = 0; j < c.n; ++j) v.push_back(static_cast<float>(j));
  const Result got = run(c, q, k, v, 1);
  for (std::int64_t i = 0; i < c.n; ++i)
    EXPECT_NEAR(got.out[i], static_cast<double>(i) / 2, 1e-4) << i;
}

TEST_P(CausalAttentionTest, OddValuesSpoilTheirRowAndThoseThatSeeThem) {
  const Case c{1, 1, 120, 120, 4, 4};
  const auto plain_q = Random(2).normals(c.n * c.dim), k = Random(3).normals(c.n * c.dim),
             v = Random(4).normals(c.n * c.dim);
  for (const float bad : {std::nanf(""), kInf}) {
    auto q = plain_q, keys = k;
    q[50 * c.dim] = bad;
    const Result in_query = run(c, q, k, v, 1);
    for (std::int64_t i = 0; i < c.n; ++i) EXPECT_EQ(std::isfinite(in_query.lse[i]), i != 50) << i;
    EXPECT_FALSE(std::isfinite(in_query.out[50 * c.dim]));
    keys[50 * c.dim + 1] = std::nanf("");
    const Result in_key = run(c, plain_q, keys, v, 1);
    for (std::int64_t i = 0; i < c.n; ++i) EXPECT_EQ(std::isfinite(in_key.lse[i]), i < 50) << i;
  }
}

TEST_P(CausalAttentionTest, ThreadsDoNotChangeABit) {
  Random random(7);
  const Case c{4, 2, 450, 500, 64, 64, {200, false}};
  const auto q = random.normals(c.heads * c.n * c.dim),
             k = random.normals(c.kv_heads * c.n_all * c.dim),
             v = random.normals(c.kv_heads * c.n_all * c.value_dim);
  expect_same_for_any_thread_count([&] { return run(c, q, k, v, 0.125f); });
}

TEST(CausalAttentionArguments, ShapesThatDoNotFitAreNamed) {
  float data[256] = {};
  const auto error = [&](std::int64_t heads, std::int64_t n, std::int64_t kv_heads,
                         std::int64_t n_all, std::int64_t dim, float cap) {
    return error_of([&] {
      causal_attention({.queries = {data, {heads, n, 4}},
                        .keys = {data, {kv_heads, n_all, dim}},
                        .values = {data, {kv_heads, n_all, 4}},
                        .soft_cap = cap,
                        .out = {data, {n, heads, 4}},
                        .lse = {data, {heads, n}}});
    });
  };
  EXPECT_EQ(error(2, 3, 1, 5, 4, 0), "");
  EXPECT_EQ(error(0, 3, 1, 5, 4, 0), "");
  EXPECT_EQ(error(2, 3, 1, 5, 3, 0), "keys has shape [1, 5, 3], expected [1, 5, 4]");
  EXPECT_EQ(error(3, 3, 2, 5, 4, 0), "3 query heads cannot share 2 key heads evenly");
  EXPECT_EQ(error(2, 6, 1, 5, 4, 0), "6 queries are more than 5 keys");
  EXPECT_EQ(error(2, 3, 1, 5, 4, -1), "soft_cap is -1, expected 0 or more");
}

INSTANTIATE_TEST_SUITE_P(Host, CausalAttentionTest, testing::ValuesIn(cpu_bodies()),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace kvatlas::kernels::causal_attention_tests
