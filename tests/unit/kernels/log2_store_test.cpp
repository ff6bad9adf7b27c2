// SPDX-License-Identifier: Apache-2.0
#include "kernels/log2_store.hpp"

#include <bit>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/half.hpp"
#include "base/share_code.hpp"
#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels::log2_store_tests {
namespace {

using testing_support::Guarded;
using testing_support::kInf;
using testing_support::Random;

/// It has no reference body; the tests take the logarithms themselves.
class Log2Storing : public testing_support::KernelTest {
 protected:
  /// The stored values of `in`, in the member of Log2Store that is given.
  template <class T>
  std::vector<T> stored(const std::vector<float>& in, T* Log2Store::*output,
                        float least = 0x1p-126f) {
    const auto count = static_cast<std::int64_t>(in.size());
    const Guarded<float> from(in, memory());
    const Guarded<T> to(count, T{0}, memory());
    Log2Store io{.shares = from.data(), .count = count, .least = least, .memory = memory()};
    io.*output = to.data();
    log2_store(io, exec());
    EXPECT_TRUE(to.intact());
    return to.values();
  }
};

std::vector<float> shares(std::int64_t count) {
  Random random(3);
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(std::exp2(-140 * random.uniform()));
  for (std::size_t i = 0; i < values.size(); i += 5) values[i] = 0;
  return values;
}

TEST_P(Log2Storing, IsTheLogarithmInEveryType) {
  for (const std::int64_t count : {0, 1, 3, 16, 17, 1000, 70001}) {
    const auto in = shares(count);
    const auto got = stored(in, &Log2Store::as_float);
    const auto bits = stored(in, &Log2Store::as_half);
    const auto bytes = stored(in, &Log2Store::as_code);
    for (std::size_t i = 0; i < in.size(); ++i) {
      ASSERT_EQ(bits[i], float_to_f16(got[i])) << in[i];
      // No share is off by more than half a step, and what has no code is less than half of one
      // below the least that has.
      if (bytes[i] > 0)
        ASSERT_NEAR(std::log2(share_code::share_of(bytes[i])), got[i], 0.0625 + 1e-5) << in[i];
      else
        ASSERT_LT(got[i], -31.6875 + 1e-5) << in[i];
      if (in[i] < 0x1p-126f) {
        ASSERT_EQ(got[i], -kInf) << in[i];
      } else {
        const double want = std::log2(static_cast<double>(in[i]));
        ASSERT_NEAR(got[i], want, 5e-7 + std::abs(want) * 0x1p-24) << in[i];
      }
    }
  }
}

TEST_P(Log2Storing, KeepsWhatIsSpecial) {
  const std::vector<float> in = {0, 1, 0.5f, std::nanf(""), 0x1p-126f, 1e-45f};
  const auto out = stored(in, &Log2Store::as_float);
  EXPECT_EQ(out[0], -kInf);
  EXPECT_EQ(out[1], 0);
  EXPECT_EQ(out[2], -1);
  EXPECT_TRUE(std::isnan(out[3]));
  EXPECT_EQ(out[4], -126);
  EXPECT_EQ(out[5], -kInf);
}

TEST_P(Log2Storing, CodesOfWhatIsSpecial) {
  const std::vector<float> in = {0, 1, 0.5f, std::nanf(""), 0x1p-31f, 0x1p-32f, 1e-45f, 1.00001f};
  const auto out = stored(in, &Log2Store::as_code);
  EXPECT_EQ(out, (std::vector<std::uint8_t>{0, 254, 246, 255, 6, 0, 0, 254}));
  EXPECT_EQ(stored(in, &Log2Store::as_code, 0x1p-24f),
            (std::vector<std::uint8_t>{0, 254, 246, 255, 0, 0, 0, 254}));
  EXPECT_EQ(share_code::share_of(0), 0);
  EXPECT_EQ(share_code::share_of(254), 1);
  EXPECT_EQ(share_code::share_of(246), 0.5f);
  EXPECT_EQ(share_code::share_of(6), 0x1p-31f);
  EXPECT_TRUE(std::isnan(share_code::share_of(share_code::kUnknown)));
  for (int code = 0; code < 256; ++code) {
    const auto byte = static_cast<std::uint8_t>(code);
    EXPECT_EQ(share_code::code_of(share_code::share_of(byte)), byte);
  }
  for (std::size_t i = 0; i < in.size(); ++i)
    EXPECT_EQ(share_code::code_of(in[i]), out[i]) << in[i];
}

TEST_P(Log2Storing, WantsOneOutput) {
  const float in = 1;
  float out = 0;
  std::uint16_t half = 0;
  EXPECT_THROW(log2_store({.shares = &in, .count = 1}), Error);
  EXPECT_THROW(log2_store({&in, 1, 1, &out, &half}), Error);
  std::uint8_t code = 0;
  EXPECT_THROW(log2_store({.shares = &in, .count = 1, .least = 0, .as_code = &code}), Error);
  EXPECT_THROW(log2_store({&in, 1, 1, &out, nullptr, &code}), Error);
}

INSTANTIATE_TEST_SUITE_P(Host, Log2Storing, testing::ValuesIn(testing_support::cpu_bodies()),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Gpu, Log2Storing,
                         testing::Values(testing_support::Body{Backend::cuda, ""}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace kvatlas::kernels::log2_store_tests
