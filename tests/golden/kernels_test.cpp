// SPDX-License-Identifier: Apache-2.0
// The kernels on the rows that a real model's attention has. Rows alone are stored, not the queries
// behind them: a query of 1 on keys log p gives the row p back, and so puts the whole kernel to the
// test.
#include "kernels/kernels.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/golden.hpp"
#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels {
namespace {

using namespace testing_support;

constexpr const char* kPrompts[] = {"prose", "code"};

GoldenArray read(const std::string& prompt, const std::string& name) {
  return read_golden(golden_path("smollm2.h5"), prompt + "/" + name);
}

class GoldenKernels : public KernelTest {};
KVATLAS_EVERY_BODY(GoldenKernels);

TEST_P(GoldenKernels, RowsAndProximalMasses) {
  const std::vector<Proximity> grid = {{4, 64}, {4, 256}, {16, 240}};
  const char* names[] = {"proximal_mass_4_64", "proximal_mass_4_256", "proximal_mass_16_240"};
  for (const std::string prompt : kPrompts) {
    const auto stored = read(prompt, "rows_last2");  // [n_layers, n_heads, 2, n_tokens]
    const std::int64_t n_tokens = stored.shape[3], all_heads = stored.shape[0] * stored.shape[1];
    const auto rows = stored.floats();
    for (std::int64_t which : {0, 1}) {
      const std::int64_t seen = n_tokens - 1 + which;  // the last row but one sees a token less
      std::vector<float> log_rows, expected;
      for (std::int64_t head = 0; head < all_heads; ++head)
        for (std::int64_t j = 0; j < seen; ++j) {
          expected.push_back(rows[(2 * head + which) * n_tokens + j]);
          log_rows.push_back(std::log(expected.back()));
        }
      const std::vector<float> ones(static_cast<std::size_t>(all_heads), 1);
      const Tensor<3> queries(ones, {all_heads, 1, 1}, memory()),
          keys(log_rows, {all_heads, seen, 1}, memory());
      const Output<float, 3> probs({all_heads, 1, seen}, memory()),
          mass({3, all_heads, 1}, memory());
      LastRows io;
      io.queries = queries.view;
      io.keys = keys.view;
      io.probs = probs.view;
      io.grid = grid;
      io.mass = mass.view;
      last_rows(io, exec());
      const auto got = probs.values(), masses = mass.values();
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-5) << i;
      for (std::size_t entry = 0; entry < grid.size(); ++entry) {
        const auto right = read(prompt, names[entry]).values;  // [n_layers, n_heads, 32]
        for (std::size_t head = 0; head < ones.size(); ++head)
          ASSERT_NEAR(masses[entry * ones.size() + head],
                      right[head * 32 + 30 + static_cast<std::size_t>(which)], 1e-5)
              << prompt << ", " << names[entry] << ", layer and head " << head;
      }
    }
  }
}

TEST_P(GoldenKernels, JsDivergenceOfRealRows) {
  for (const std::string prompt : kPrompts) {
    const auto stored = read(prompt, "rows_last2");
    const std::int64_t n_layers = stored.shape[0], n_heads = stored.shape[1];
    const Tensor<4> rows(stored.floats(), {n_layers, n_heads, 2, stored.shape[3]}, memory());
    const auto run = [&](const AnyView<4>& probs, const Exec& on, Memory where) {
      const Output<float, 3> mean({n_heads, n_layers, n_layers}, where);
      JsDivergence io;
      io.probs = probs;
      io.mean = mean.view;
      js_divergence(io, on);
      return mean.values();
    };
    const auto got = run(rows.view, exec(), memory()),
               expected = run(rows.host, kReference, Memory::host);
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], 1e-5) << prompt << ' ' << i;
  }
}

TEST(GoldenLagKv, Lengths) {
  for (const std::string prompt : kPrompts) {
    const std::int64_t n_tokens = read(prompt, "tokens").shape[0];
    for (const char* layer : {"lagkv_layer0", "lagkv_layer10", "lagkv_layer29"}) {
      const auto kept = [&](const char* setting) {
        return read(prompt, std::string(layer) + "/kept_" + setting + "_lag").shape[1];
      };
      EXPECT_EQ(kept("S16_L64_r0.5"), lag_length(n_tokens, 16, 64, 32));
      EXPECT_EQ(kept("S16_L128_r0.25"), lag_length(n_tokens, 16, 128, 32));
      EXPECT_EQ(kept("S16_L128_r0.125"), lag_length(n_tokens, 16, 128, 16));
      EXPECT_EQ(kept("S16_L256_r0.5"), lag_length(n_tokens, 16, 256, 128));
    }
  }
}

}  // namespace
}  // namespace kvatlas::kernels
