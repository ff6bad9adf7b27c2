// SPDX-License-Identifier: Apache-2.0
#include "kernels/top_counts.hpp"

#include <limits>
#include <numeric>

#include "kernels/lag_scores.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels::top_counts_tests {
namespace {

using namespace testing_support;

const float kNan = std::nanf("");

/// A strided or dense input of the selections, whose elements are float32.
template <std::size_t N>
View<const float, N> scores_view(const Tensor<N>& tensor) {
  return {static_cast<const float*>(tensor.view.data), tensor.view.sizes, tensor.view.strides,
          tensor.view.memory};
}

class SelectionTest : public KernelTest {
 protected:
  std::vector<std::int64_t> counts(const std::array<std::int64_t, 3>& shape,
                                   const std::vector<float>& values,
                                   const std::vector<std::int64_t>& k,
                                   Layout layout = Layout::dense) {
    return counts_on(exec(), memory(), shape, values, k, layout);
  }
  static std::vector<std::int64_t> counts_on(const Exec& exec, Memory memory,
                                             const std::array<std::int64_t, 3>& shape,
                                             const std::vector<float>& values,
                                             const std::vector<std::int64_t>& k,
                                             Layout layout = Layout::dense) {
    const Tensor<3> scores(values, shape, memory, DType::f32, layout);
    const Output<std::int64_t, 2> out({static_cast<std::int64_t>(k.size()), shape[0]}, memory,
                                      layout);
    top_counts({scores_view(scores), k, out.view}, exec);
    return out.values();
  }
  /// The positions of the k largest of each row's n scores, as lag_kept selects them.
  std::vector<std::int64_t> positions(std::int64_t rows, std::int64_t n,
                                      const std::vector<float>& values, std::int64_t k,
                                      Layout layout = Layout::dense) {
    return positions_on(exec(), memory(), rows, n, values, k, layout);
  }
  static std::vector<std::int64_t> positions_on(const Exec& exec, Memory memory, std::int64_t rows,
                                                std::int64_t n, const std::vector<float>& values,
                                                std::int64_t k, Layout layout = Layout::dense) {
    // One partition of n tokens is cut, and another one that stays comes behind it.
    const Tensor<2> scores(values, {rows, n}, memory, DType::f32, layout);
    const Output<std::int64_t, 2> out({rows, k + n}, memory, layout);
    lag_kept({scores_view(scores), 2 * n, 0, n, k, out.view}, exec);
    const auto kept = out.values();
    std::vector<std::int64_t> positions;
    for (std::int64_t row = 0; row < rows; ++row)
      positions.insert(positions.end(), kept.begin() + row * (k + n),
                       kept.begin() + row * (k + n) + k);
    return positions;
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
      ASSERT_EQ(got, counts(shape, values, k, Layout::swapped));
      ASSERT_EQ(got, counts(shape, values, k, Layout::strided));
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
  auto values = random.normals(600), apart = values;
  for (float& value : apart) value = std::exp(30 * value);  // of hundreds of magnitudes
  std::vector<std::int64_t> k(600);
  std::iota(k.begin(), k.end(), 1);
  for (const auto& scores : {values, apart})
    EXPECT_EQ(counts({4, 1, 150}, scores, k),
              counts_on(kReference, Memory::host, {4, 1, 150}, scores, k));
}

TEST_P(SelectionTest, PositionsMatchTheReference) {
  Random random(25);
  for (const std::int64_t n : {1, 2, 255, 256, 257, 1000, 3000})
    for (const std::int64_t k : {std::int64_t{0}, std::int64_t{1}, n / 3, n - 1, n}) {
      for (const auto& values : {random.normals(2 * n), adversarial(random, 2 * n),
                                 std::vector<float>(static_cast<std::size_t>(2 * n), -1.0f)}) {
        const auto got = positions(2, n, values, k);
        ASSERT_EQ(got, positions_on(kReference, Memory::host, 2, n, values, k)) << n << " " << k;
        ASSERT_EQ(got, positions(2, n, values, k, Layout::strided));
        for (std::int64_t i = 1; i < k; ++i) ASSERT_LT(got[i - 1], got[i]);
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

TEST_P(SelectionTest, ThreadsDoNotChangeAnything) {
  Random random(26);
  const auto values = adversarial(random, 7 * 3 * 500);
  expect_same_for_any_thread_count([&] { return counts({7, 3, 500}, values, {1, 100, 3000}); });
  expect_same_for_any_thread_count([&] { return positions(21, 500, values, 99); });
}

KVATLAS_EVERY_BODY(SelectionTest);

TEST(TopCountsArguments, AreChecked) {
  float values[64] = {};
  std::int64_t out[8];
  TopCounts top;
  top.scores = {values, {2, 2, 2}};
  top.k = {9};
  top.counts = {out, {1, 2}};
  EXPECT_EQ(error_of([&] { top_counts(top); }), "k is 9, expected 0 to 8");
  top.k = {3, 4};
  EXPECT_EQ(error_of([&] { top_counts(top); }), "counts has shape [1, 2], expected [2, 2]");
  top.k = {3};
  top.counts.memory = Memory::device;
  EXPECT_EQ(error_of([&] { top_counts(top); }), "counts lies in device memory, the inputs do not");
  top.counts = {nullptr, {1, 2}};
  EXPECT_EQ(error_of([&] { top_counts(top); }), "counts has no data");
  top.counts = {out, {1, 1}};
  top.scores = {nullptr, {1, 2, 2}};
  EXPECT_EQ(error_of([&] { top_counts(top); }), "scores has no data");
  top.scores = {values, {1, 1, std::int64_t{1} << 31}};
  EXPECT_EQ(error_of([&] { top_counts(top); }),
            "scores a layer is 2147483648, expected 0 to 2147483647");
}

}  // namespace
}  // namespace kvatlas::kernels::top_counts_tests
