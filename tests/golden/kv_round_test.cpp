// SPDX-License-Identifier: Apache-2.0
// Number formats of the cache, as vLLM's and ggml's own code reads them back.
#include "kernels/kv_round.hpp"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/golden.hpp"
#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels {
namespace {

using namespace testing_support;

GoldenArray stored(const std::string& name) {
  return read_golden(golden_path("kv_round.h5"), name);
}

/// vLLM multiplies by a matrix where the kernel adds and subtracts, so the last digits differ.
bool is_close_alone(RowFormat format) {
  return format == RowFormat::lloyd4_row || format == RowFormat::lloyd3_row;
}

class GoldenKvRound : public KernelTest {
 protected:
  /// Rows of [token, head, channel], as they are read back.
  std::vector<float> run(RowFormat format, const GoldenArray& rows, float scale) {
    const std::array<std::int64_t, 3> sizes{rows.shape[0], rows.shape[1], rows.shape[2]};
    const Tensor<3> from(rows.floats(), sizes, memory());
    const Output<float, 3> to(sizes, memory());
    kv_round({format, from.view, to.view, scale}, exec());
    return to.values();
  }
};
KVATLAS_EVERY_BODY(GoldenKvRound);

TEST_P(GoldenKvRound, RowsAreReadBackAsTheEnginesReadThem) {
  for (const RowFormatName& row : kRowFormats) {
    const std::string word(row.word);
    for (const std::string dim : {"d64", "d128"}) {
      const std::string folder = word + "/" + dim;
      std::size_t cases = 0;
      for (const auto& name : golden_members(golden_path("kv_round.h5"), folder)) {
        if (name.size() > 1) continue;  // the scale of the side beside it
        ++cases;
        const auto want = stored(folder + "/" + name);
        const auto scale = static_cast<float>(stored(folder + "/" + name + "_scale").values.at(0));
        const auto got = run(row.format, stored("rows/" + dim + "/" + name), scale);
        ASSERT_EQ(got.size(), want.values.size());
        double largest = 0;
        for (const double x : want.values) largest = std::max(largest, std::abs(x));
        const double bound = is_close_alone(row.format) ? 3e-7 * largest : 0;
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], want.values[i], bound) << folder << ", " << name << ", number " << i;
      }
      EXPECT_GT(cases, 0U) << word << " has no reference data";
    }
  }
}

/// What is read back of a key lies along its levels, which say the codes: turned once more, each
/// number is its level times one length.
TEST_P(GoldenKvRound, CodesOfRotatedKeysAreThoseOfVllm) {
  for (const RowFormat format : {RowFormat::lloyd4_row, RowFormat::lloyd3_row})
    for (const std::int64_t dim : {64, 128}) {
      const std::string of_dim = "d" + std::to_string(dim);
      const auto levels = lloyd_levels(dim, format == RowFormat::lloyd4_row ? 4 : 3);
      const auto codes = stored("codes/" + std::string(word_of(format)) + "/" + of_dim).integers();
      const auto got = run(format, stored("rows/" + of_dim + "/k"), 1);
      for (std::size_t row = 0; row < got.size(); row += static_cast<std::size_t>(dim)) {
        std::vector<double> turned(static_cast<std::size_t>(dim));
        double length = 0, of_levels = 0;
        for (std::size_t i = 0; i < turned.size(); ++i) {
          for (std::size_t j = 0; j < turned.size(); ++j)
            turned[i] += (__builtin_popcountll(i & j) % 2 == 0 ? 1 : -1) *
                         static_cast<double>(got[row + j]) / std::sqrt(static_cast<double>(dim));
          length += turned[i] * turned[i];
          const auto level = static_cast<double>(levels[static_cast<std::size_t>(codes[row + i])]);
          of_levels += level * level;
        }
        if (length == 0) continue;
        for (std::size_t i = 0; i < turned.size(); ++i) {
          const double level = turned[i] * std::sqrt(of_levels / length);
          ASSERT_NEAR(level, levels[static_cast<std::size_t>(codes[row + i])], 1e-6) << of_dim;
        }
      }
    }
}

TEST(GoldenKvRoundLevels, AreThoseOfVllm) {
  for (const std::int64_t dim : {32, 64, 128, 256})
    for (const int bits : {3, 4}) {
      const auto want =
          stored("levels/d" + std::to_string(dim) + "/" + std::to_string(bits)).floats();
      const auto got = lloyd_levels(dim, bits);
      ASSERT_EQ(want.size(), std::size_t{1} << bits);
      for (std::size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i], want[i]) << dim << ", " << i;
    }
}

}  // namespace
}  // namespace kvatlas::kernels
