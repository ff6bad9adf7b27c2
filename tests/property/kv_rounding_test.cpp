// SPDX-License-Identifier: Apache-2.0
// The runtimes' number formats, as gguf and torch convert them, and llama.cpp's rotation.
#include <cmath>
#include <fstream>

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "calibrate/simulate/cache_copies_impl.hpp"
#include "tests/property/round_row.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::calibrate {
namespace {

using Rows = std::vector<std::vector<float>>;

at::Tensor tensor_of(const Rows& rows) {
  at::Tensor out = at::empty({std::ssize(rows), std::ssize(rows.front())}, at::kFloat);
  float* to = out.mutable_data_ptr<float>();
  for (const auto& row : rows) to = std::copy(row.begin(), row.end(), to);
  return out;
}

TEST(KvRounding, IsThatOfGgufAndTorch) {
  const auto golden =
      nlohmann::json::parse(std::ifstream(testing_support::golden_path("kv_formats.json")));
  const auto rows = golden.at("rows").get<Rows>();
  for (const auto& [word, format] :
       {std::pair{"fp8", KvFormat::fp8}, {"q8_0", KvFormat::q8_0}, {"q4_0", KvFormat::q4_0}}) {
    const auto want = golden.at(word).get<Rows>();
    const at::Tensor got = tensor_of(rows);
    round_rows(got, format, KvSide::keys);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      std::vector<double> by_number(rows[r].begin(), rows[r].end());
      round_row(by_number, format);
      for (std::size_t c = 0; c < rows[r].size(); ++c) {
        const float value = got.const_data_ptr<float>()[r * rows[r].size() + c];
        EXPECT_EQ(value, want[r][c]) << word << ", row " << r << ", " << c;
        EXPECT_EQ(static_cast<float>(by_number[c]), want[r][c]) << word << ", " << r << ", " << c;
      }
    }
  }
}

/// Element (i, j) of the Walsh-Hadamard matrix: the sign is the parity of the bits in common.
double hadamard(std::size_t i, std::size_t j, std::size_t order) {
  return (__builtin_popcountll(i & j) % 2 == 0 ? 1 : -1) / std::sqrt(static_cast<double>(order));
}

std::vector<double> rotated(const std::vector<double>& row, std::size_t order) {
  std::vector<double> out(row.size());
  for (std::size_t block = 0; block < row.size(); block += order)
    for (std::size_t i = 0; i < order; ++i)
      for (std::size_t j = 0; j < order; ++j)
        out[block + i] += hadamard(i, j, order) * row[block + j];
  return out;
}

TEST(KvRounding, HeadsOf64ChannelsAreRotated) {
  testing_support::Random random(3);
  for (const std::size_t channels : {64, 128, 192, 96})
    for (const KvSide side : {KvSide::keys, KvSide::values}) {
      const std::size_t order = channels == 96                            ? 1
                                : channels == 128 && side == KvSide::keys ? 128
                                                                          : 64;
      Rows rows(5, std::vector<float>(channels));
      for (auto& row : rows)
        for (float& value : row) value = static_cast<float>(random.uniform() - 0.5);
      rows[0][3] = 40;  // one channel that is much larger
      const at::Tensor got = tensor_of(rows);
      round_rows(got, KvFormat::q8_0, side);
      for (std::size_t r = 0; r < rows.size(); ++r) {
        std::vector<double> want(rows[r].begin(), rows[r].end());
        want = rotated(want, order);
        round_row(want, KvFormat::q8_0);
        want = rotated(want, order);
        std::size_t others = 0;  // a number in the middle of two codes
        for (std::size_t c = 0; c < channels; ++c)
          others += std::abs(got.const_data_ptr<float>()[r * channels + c] - want[c]) > 1e-4;
        EXPECT_LE(others, channels / 16) << channels << " channels, row " << r;
      }
    }
}

}  // namespace
}  // namespace kvatlas::calibrate
