// SPDX-License-Identifier: Apache-2.0
// The kernels on the rows that a real model's attention has. Rows alone are stored, not the queries
// behind them: a query of 1 on keys log p gives the row p back, and so puts the whole kernel to the
// test.
#include "kernels/kernels.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/golden.hpp"

namespace kvatlas::kernels {
namespace {

class GoldenKernels : public testing::TestWithParam<const char*> {
 protected:
  testing_support::GoldenArray read(const std::string& name) const {
    return testing_support::read_golden(testing_support::golden_path("smollm2.h5"),
                                        std::string(GetParam()) + "/" + name);
  }
};

TEST_P(GoldenKernels, RowsAndProximalMasses) {
  const auto stored = read("rows_last2");  // [n_layers, n_heads, 2, n_tokens]
  const std::int64_t n_tokens = stored.shape[3], all_heads = stored.shape[0] * stored.shape[1];
  const auto rows = stored.floats();
  const std::vector<Proximity> grid = {{4, 64}, {4, 256}, {16, 240}};
  const char* names[] = {"proximal_mass_4_64", "proximal_mass_4_256", "proximal_mass_16_240"};
  for (std::int64_t which : {0, 1}) {
    const std::int64_t seen = n_tokens - 1 + which;  // the last row but one sees a token less
    std::vector<float> keys, expected;
    for (std::int64_t head = 0; head < all_heads; ++head)
      for (std::int64_t j = 0; j < seen; ++j) {
        expected.push_back(rows[static_cast<std::size_t>((2 * head + which) * n_tokens + j)]);
        keys.push_back(std::log(expected.back()));
      }
    const std::vector<float> ones(static_cast<std::size_t>(all_heads), 1);
    std::vector<float> probs(keys.size()), mass(grid.size() * ones.size());
    LastRows io;
    io.queries = View<const float, 3>(ones.data(), {all_heads, 1, 1});
    io.keys = View<const float, 3>(keys.data(), {all_heads, seen, 1});
    io.probs = {probs.data(), {all_heads, 1, seen}};
    io.grid = grid;
    io.mass = {mass.data(), {3, all_heads, 1}};
    last_rows(io);
    for (std::size_t i = 0; i < probs.size(); ++i) ASSERT_NEAR(probs[i], expected[i], 1e-5) << i;
    for (std::size_t entry = 0; entry < grid.size(); ++entry) {
      const auto masses = read(names[entry]).values;  // [n_layers, n_heads, 32]
      for (std::size_t head = 0; head < ones.size(); ++head)
        ASSERT_NEAR(mass[entry * ones.size() + head],
                    masses[head * 32 + 30 + static_cast<std::size_t>(which)], 1e-5)
            << names[entry] << ", layer and head " << head;
    }
  }
}

TEST_P(GoldenKernels, JsDivergenceOfRealRows) {
  const auto stored = read("rows_last2");
  const auto rows = stored.floats();
  const std::int64_t n_layers = stored.shape[0], n_heads = stored.shape[1];
  const auto run = [&](Backend backend) {
    std::vector<float> mean(static_cast<std::size_t>(n_heads * n_layers * n_layers));
    JsDivergence io;
    io.probs = View<const float, 4>(rows.data(), {n_layers, n_heads, 2, stored.shape[3]});
    io.mean = {mean.data(), {n_heads, n_layers, n_layers}};
    js_divergence(io, {.backend = backend});
    return mean;
  };
  const auto got = run(Backend::cpu), expected = run(Backend::reference);
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-5) << i;
}

TEST_P(GoldenKernels, LagKvLengths) {
  const std::int64_t n_tokens = read("tokens").shape[0];
  for (const char* layer : {"lagkv_layer0", "lagkv_layer10", "lagkv_layer29"}) {
    EXPECT_EQ(read(std::string(layer) + "/kept_S16_L64_r0.5_lag").shape[1],
              lag_length(n_tokens, 16, 64, 32));
    EXPECT_EQ(read(std::string(layer) + "/kept_S16_L128_r0.25_lag").shape[1],
              lag_length(n_tokens, 16, 128, 32));
    EXPECT_EQ(read(std::string(layer) + "/kept_S16_L128_r0.125_lag").shape[1],
              lag_length(n_tokens, 16, 128, 16));
    EXPECT_EQ(read(std::string(layer) + "/kept_S16_L256_r0.5_lag").shape[1],
              lag_length(n_tokens, 16, 256, 128));
  }
}

INSTANTIATE_TEST_SUITE_P(SmolLM2, GoldenKernels, testing::Values("prose", "code"),
                         [](const auto& prompt) { return std::string(prompt.param); });

}  // namespace
}  // namespace kvatlas::kernels
