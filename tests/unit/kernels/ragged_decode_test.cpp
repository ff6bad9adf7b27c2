// SPDX-License-Identifier: Apache-2.0
#include "kernels/ragged_decode.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/error_of.hpp"
#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels::ragged_decode_tests {
namespace {

using namespace testing_support;

struct Decoded {
  std::vector<float> out, lse;
  bool operator==(const Decoded&) const = default;
};

struct Caches {
  AnyView<3> queries;
  AnyView<2> keys, values;
  std::vector<std::int64_t> starts, lengths;  // [n_candidates, kv_heads]
  std::int64_t kv_heads = 1;
  float scale = 1, soft_cap = 0;
  Layout out_layout = Layout::dense;
};

class RaggedDecodeTest : public KernelTest {
 protected:
  static Decoded run(const Caches& in, const Exec& how) {
    const Memory where = in.queries.memory;
    const std::int64_t candidates = in.queries.sizes[0], heads = in.queries.sizes[1];
    const std::int64_t dim = in.values.sizes[1];
    const Guarded<std::int64_t> starts(in.starts, where), lengths(in.lengths, where);
    const Output<float, 3> out({candidates, heads, dim}, where, in.out_layout);
    const Output<float, 2> lse({candidates, heads}, where, in.out_layout);
    ragged_decode({in.queries,
                   in.keys,
                   in.values,
                   {starts.data(), {candidates, in.kv_heads}, where},
                   {lengths.data(), {candidates, in.kv_heads}, where},
                   in.scale,
                   in.soft_cap,
                   out.view,
                   lse.view},
                  how);
    return {out.values(), lse.values()};
  }
  static void expect_close(const Decoded& got, const Decoded& want, double most) {
    for (std::size_t i = 0; i < want.out.size(); ++i) {
      if (std::isfinite(want.out[i]))
        ASSERT_NEAR(got.out[i], want.out[i], 1e-5 * most) << "out " << i;
      else
        ASSERT_FALSE(std::isfinite(got.out[i])) << "out " << i;
    }
    for (std::size_t i = 0; i < want.lse.size(); ++i) {
      if (std::isnan(want.lse[i]))
        ASSERT_TRUE(std::isnan(got.lse[i])) << "lse " << i;
      else if (std::isinf(want.lse[i]))
        ASSERT_EQ(got.lse[i], want.lse[i]) << "lse " << i;
      else
        ASSERT_NEAR(got.lse[i], want.lse[i],
                    5e-6 + 1e-6 * std::abs(static_cast<double>(want.lse[i])))
            << "lse " << i;
    }
  }
};

TEST_P(RaggedDecodeTest, MatchesTheReference) {
  Random random(1);
  struct Shape {
    std::int64_t heads, kv_heads, dim, value_dim;
    float soft_cap;
    DType type;
    Layout layout;
  };
  const std::int64_t rows = 2500;
  for (const Shape& s : {Shape{1, 1, 1, 1, 0, DType::f32, Layout::dense},
                         Shape{9, 3, 64, 64, 0, DType::f32, Layout::dense},
                         Shape{8, 2, 128, 128, 30, DType::f32, Layout::dense},
                         Shape{4, 4, 80, 33, 0, DType::f32, Layout::strided},
                         Shape{6, 2, 64, 64, 0, DType::f16, Layout::swapped},
                         Shape{2, 1, 96, 96, 20, DType::bf16, Layout::strided},
                         Shape{2, 2, 7, 5, 0, DType::f16, Layout::dense}}) {
    SCOPED_TRACE(testing::PrintToString(s.dim) + " " + dtype_name(s.type));
    const std::int64_t candidates = 4;
    const Tensor<3> q(random.normals(candidates * s.heads * s.dim, 3), {candidates, s.heads, s.dim},
                      memory(), s.type, s.layout);
    const Tensor<2> k(random.normals(rows * s.dim), {rows, s.dim}, memory(), s.type, s.layout);
    const Tensor<2> v(random.normals(rows * s.value_dim), {rows, s.value_dim}, memory(), s.type,
                      s.layout);
    Caches in{
        q.view,     k.view,  v.view, {}, {}, s.kv_heads, 1 / std::sqrt(static_cast<float>(s.dim)),
        s.soft_cap, s.layout};
    // Lengths around the borders of lanes, blocks and chunks; caches share rows.
    const std::int64_t lengths[] = {0, 1, 3, 63, 64, 65, 127, 1023, 1024, 1025, 2048, 2500};
    for (std::int64_t i = 0; i < candidates * s.kv_heads; ++i) {
      in.lengths.push_back(lengths[random.integer(0, 11)]);
      in.starts.push_back(random.integer(0, rows - in.lengths.back()));
    }
    Caches host = in;
    host.queries = q.host;
    host.keys = k.host;
    host.values = v.host;
    expect_close(run(in, exec()), run(host, kReference), 5);
  }
}

TEST_P(RaggedDecodeTest, OneRowIsItsValueAndEqualKeysGiveTheMean) {
  const Tensor<3> q({1, 2, 3, 4}, {2, 1, 2}, memory());
  const Tensor<2> k({5, 6, 1, 1, 1, 1}, {3, 2}, memory());
  const Tensor<2> v({10, 20, 30, 40, 50, 60}, {3, 2}, memory());
  const Decoded got = run({q.view, k.view, v.view, {0, 1}, {1, 2}, 1, 0.5f, 0}, exec());
  EXPECT_NEAR(got.out[0], 10, 1e-4);
  EXPECT_NEAR(got.out[1], 20, 1e-4);
  EXPECT_NEAR(got.out[2], 40, 1e-4);
  EXPECT_NEAR(got.out[3], 50, 1e-4);
  EXPECT_NEAR(got.lse[0], 0.5 * 17, 1e-5);
  EXPECT_NEAR(got.lse[1], 0.5 * 7 + std::log(2.0), 1e-5);
}

TEST_P(RaggedDecodeTest, PartsOfACacheJoinByTheirLogSumExps) {
  Random random(2);
  const Tensor<3> q(random.normals(64), {1, 1, 64}, memory());
  const Tensor<2> k(random.normals(300 * 64), {300, 64}, memory());
  const Tensor<2> v(random.normals(300 * 64), {300, 64}, memory());
  const auto part = [&](std::int64_t start, std::int64_t length) {
    return run({q.view, k.view, v.view, {start}, {length}, 1, 0.125f, 0}, exec());
  };
  const Decoded whole = part(0, 300), left = part(0, 111), right = part(111, 189);
  const double share = 1 / (1 + std::exp(static_cast<double>(right.lse[0] - left.lse[0])));
  for (std::size_t d = 0; d < 64; ++d)
    EXPECT_NEAR(
        whole.out[d],
        share * static_cast<double>(left.out[d]) + (1 - share) * static_cast<double>(right.out[d]),
        1e-5);
}

TEST_P(RaggedDecodeTest, EmptyCachesAndInputs) {
  const Tensor<3> q(Random(3).normals(2 * 4), {1, 2, 4}, memory());
  const Tensor<2> none({}, {0, 4}, memory());
  const Decoded got = run({q.view, none.view, none.view, {0}, {0}, 1, 1, 0}, exec());
  for (const float value : got.out) EXPECT_EQ(value, 0);
  for (const float value : got.lse) EXPECT_EQ(value, -kInf);
  const Tensor<3> nobody({}, {0, 2, 4}, memory());
  run({nobody.view, none.view, none.view, {}, {}, 1, 1, 0}, exec());
}

TEST_P(RaggedDecodeTest, NonFiniteInputs) {
  Random random(4);
  const std::int64_t rows = 100, dim = 16;
  for (const float bad : {std::nanf(""), kInf, -kInf}) {
    for (const int where : {0, 1, 2}) {
      auto queries = random.normals(2 * dim), keys = random.normals(rows * dim),
           values = random.normals(rows * dim);
      queries[2] = std::abs(queries[2]);
      (where == 0 ? queries[2] : where == 1 ? keys[37 * dim + 2] : values[37 * dim + 2]) = bad;
      const Tensor<3> q(queries, {1, 2, dim}, memory());
      const Tensor<2> k(keys, {rows, dim}, memory()), v(values, {rows, dim}, memory());
      expect_close(run({q.view, k.view, v.view, {0}, {rows}, 1, 0.25f, 0}, exec()),
                   run({q.host, k.host, v.host, {0}, {rows}, 1, 0.25f, 0}, kReference), 5);
    }
  }
  // What lies outside a cache does not matter; scores of -inf alone weigh nothing.
  const Tensor<3> q({1, 0}, {1, 1, 2}, memory());
  const Tensor<2> k({std::nanf(""), 0, 1, 2, std::nanf(""), 0}, {3, 2}, memory());
  EXPECT_EQ(run({q.view, k.view, k.view, {1}, {1}, 1, 1, 0}, exec()).out[1], 2);
  const Tensor<2> cold({-kInf, 1, -kInf, 1}, {2, 2}, memory()), v({1, 2, 3, 4}, {2, 2}, memory());
  const Tensor<3> ones({1, 1}, {1, 1, 2}, memory());
  const Decoded got = run({ones.view, cold.view, v.view, {0}, {2}, 1, 1, 0}, exec());
  EXPECT_EQ(got.out, (std::vector<float>{0, 0}));
  EXPECT_EQ(got.lse[0], -kInf);
}

TEST_P(RaggedDecodeTest, ZerosDenormalsAndHugeScores) {
  const std::int64_t rows = 70, dim = 8;
  for (const float size : {0.0f, 1e-42f, 100.0f}) {
    Random random(5);
    const Tensor<3> q(random.normals(dim, size), {1, 1, dim}, memory());
    const Tensor<2> k(random.normals(rows * dim, size), {rows, dim}, memory());
    const Tensor<2> v(random.normals(rows * dim, 1), {rows, dim}, memory());
    // Scores of 1e4: one key takes all, by more than float32 rounding can shift.
    expect_close(run({q.view, k.view, v.view, {0}, {rows}, 1, 1, 0}, exec()),
                 run({q.host, k.host, v.host, {0}, {rows}, 1, 1, 0}, kReference), 5);
  }
}

/// Candidates that read the same rows go through them together, in groups of several sizes.
TEST_P(RaggedDecodeTest, WhatOthersReadDoesNotChangeABit) {
  Random random(8);
  const std::int64_t rows = 1500, dim = 40, candidates = 23, heads = 10, kv_heads = 2;
  const Tensor<3> q(random.normals(candidates * heads * dim), {candidates, heads, dim}, memory());
  const Tensor<2> k(random.normals(rows * dim), {rows, dim}, memory());
  const Tensor<2> v(random.normals(rows * dim), {rows, dim}, memory());
  Caches in{q.view, k.view, v.view, {}, {}, kv_heads, 0.2f, 0};
  for (std::int64_t i = 0; i < candidates * kv_heads; ++i) {
    const bool first = random.integer(0, 2) > 0;
    in.starts.push_back(first ? 0 : 70);
    in.lengths.push_back(first ? 1100 : 67);
  }
  const Decoded together = run(in, exec());
  for (std::int64_t c = 0; c < candidates; ++c) {
    SCOPED_TRACE(c);
    Caches alone = in;
    alone.queries.sizes[0] = 1;
    alone.queries.data = static_cast<const float*>(in.queries.data) + c * in.queries.strides[0];
    const auto of = [&](const auto& all, std::int64_t count) {
      return std::vector(all.begin() + c * count, all.begin() + (c + 1) * count);
    };
    alone.starts = of(in.starts, kv_heads);
    alone.lengths = of(in.lengths, kv_heads);
    EXPECT_EQ(run(alone, exec()),
              (Decoded{of(together.out, heads * dim), of(together.lse, heads)}));
  }
}

TEST_P(RaggedDecodeTest, ThreadsDoNotChangeABit) {
  Random random(6);
  const std::int64_t rows = 5000, dim = 32;
  const Tensor<3> q(random.normals(3 * 4 * dim), {3, 4, dim}, memory());
  const Tensor<2> k(random.normals(rows * dim), {rows, dim}, memory());
  const Tensor<2> v(random.normals(rows * dim), {rows, dim}, memory());
  const Caches in{q.view, k.view, v.view, {0, 5, 1000, 0, 20, 7}, {5000, 100, 3000, 0, 1024, 4000},
                  2,      0.2f,   0};
  expect_same_for_any_thread_count([&] { return run(in, exec()); });
}

TEST(RaggedDecodeArguments, WhatDoesNotFitIsRefused) {
  float data[64] = {};
  const View<const float, 3> q(data, {1, 4, 2});
  const View<const float, 2> k(data, {3, 2}), v(data, {3, 5}), wide(data, {3, 3}),
      few(data, {2, 2});
  const View<float, 3> out(data, {1, 4, 5});
  const auto attempt = [&](AnyView<2> keys, AnyView<2> values, std::int64_t kv_heads,
                           std::vector<std::int64_t> starts, std::vector<std::int64_t> lengths,
                           float soft_cap = 0) {
    return error_of([&] {
      ragged_decode({q,
                     keys,
                     values,
                     {starts.data(), {1, kv_heads}},
                     {lengths.data(), {1, kv_heads}},
                     1,
                     soft_cap,
                     out,
                     {}});
    });
  };
  EXPECT_EQ(attempt(k, v, 2, {0, 1}, {3, 2}), "");
  EXPECT_EQ(attempt(wide, v, 2, {0, 1}, {3, 2}), "keys has shape [3, 3], expected [3, 2]");
  EXPECT_EQ(attempt(few, v, 2, {0, 1}, {2, 1}), "keys has shape [2, 2], expected [3, 2]");
  EXPECT_EQ(attempt(k, k, 2, {0, 1}, {3, 2}), "out has shape [1, 4, 5], expected [1, 4, 2]");
  EXPECT_EQ(attempt(k, v, 3, {0, 1, 2}, {1, 1, 1}),
            "4 query heads cannot share 3 key heads evenly");
  EXPECT_EQ(attempt(k, v, 2, {0, 2}, {3, 2}),
            "ragged_decode: candidate 0, KV head 1: 2 rows from 2, the cache has 3");
  EXPECT_NE(attempt(k, v, 2, {-1, 1}, {3, 2}), "");
  EXPECT_NE(attempt(k, v, 2, {0, 1}, {-1, 2}), "");
  EXPECT_NE(attempt(k, v, 2, {0, 1}, {std::numeric_limits<std::int64_t>::max(), 2}), "");
  EXPECT_EQ(attempt(k, v, 2, {0, 1}, {3, 2}, std::nanf("")), "soft_cap is nan, expected 0 or more");
}

KVATLAS_EVERY_BODY(RaggedDecodeTest);

}  // namespace
}  // namespace kvatlas::kernels::ragged_decode_tests
