// SPDX-License-Identifier: Apache-2.0
// The shared vector code (loads, log2, exp2) under every instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/unit/kernels/simd_test.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/load-inl.hpp"
#include "kernels/math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {

void LoadAll(const void* from, DType type, std::int64_t stride, std::int64_t count, float* to) {
  copy_as_float(from, type, 0, stride, count, to);
}

template <class Fn>
void map_in_place(float* values, std::int64_t count, Fn fn) {
  const hn::ScalableTag<float> d;
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto left = static_cast<std::size_t>(count - i);
    const std::size_t taken = left < hn::Lanes(d) ? left : hn::Lanes(d);
    HWY_ALIGN float out[hn::MaxLanes(d)];
    hn::Store(fn(d, load_n(d, values + i, taken)), d, out);
    std::memcpy(values + i, out, taken * sizeof(float));
  }
}

void Log2(float* values, std::int64_t count) {
  map_in_place(values, count, [](auto d, auto x) HWY_ATTR { return log2(d, x); });
}
void Exp2(float* values, std::int64_t count) {
  map_in_place(values, count, [](auto d, auto x) HWY_ATTR { return exp2(d, x); });
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>
#include <limits>

#include "tests/support/kernel_test.hpp"

namespace kvatlas::kernels {
HWY_EXPORT(LoadAll);
HWY_EXPORT(Log2);
HWY_EXPORT(Exp2);
namespace {

using testing_support::KernelTest;

class Simd : public KernelTest {};

TEST_P(Simd, LoadsEveryHalfExactly) {
  std::vector<std::uint16_t> bits(65536 * 3);
  for (std::uint32_t i = 0; i < 65536; ++i) bits[3 * i] = static_cast<std::uint16_t>(i);
  std::vector<std::uint16_t> dense(65533);
  for (std::uint32_t i = 0; i < 65533; ++i) dense[i] = static_cast<std::uint16_t>(i + 3);
  std::vector<float> strided(65536), packed(65533);
  for (DType type : {DType::f16, DType::bf16}) {
    HWY_DYNAMIC_DISPATCH(LoadAll)(bits.data(), type, 3, 65536, strided.data());
    HWY_DYNAMIC_DISPATCH(LoadAll)(dense.data(), type, 1, 65533, packed.data());
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const auto half = static_cast<std::uint16_t>(i);
      const float expected = type == DType::f16 ? f16_to_float(half) : bf16_to_float(half);
      const bool nan = std::isnan(expected);
      ASSERT_TRUE(nan ? std::isnan(strided[i]) : strided[i] == expected) << i << " " << strided[i];
      if (i >= 3) {
        ASSERT_TRUE(nan ? std::isnan(packed[i - 3]) : packed[i - 3] == expected) << i;
      }
    }
  }
}

TEST_P(Simd, Log2KeepsItsBound) {
  testing_support::Random random(1);
  std::vector<float> in;
  for (int i = 0; i < 200000; ++i) in.push_back(std::exp2(random.uniform(-125.5f, 100)));
  for (int i = 0; i < 200000; ++i) in.push_back(random.uniform(0.5f, 2));
  for (int e = -126; e < 128; ++e) in.push_back(std::ldexp(1.0f, e));
  auto out = in;
  HWY_DYNAMIC_DISPATCH(Log2)(out.data(), static_cast<std::int64_t>(out.size()));
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double exact = std::log2(static_cast<double>(in[i]));
    ASSERT_LE(std::abs(out[i] - exact), 4.5e-7 + 0x1p-24 * std::abs(exact)) << in[i];
    if (std::abs(exact - std::round(exact)) == 0) {
      ASSERT_EQ(out[i], exact) << in[i];
    }
  }
}

TEST_P(Simd, Log2OfSpecialValues) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<float> in = {0, 1e-40f, inf, nan};
  auto out = in;
  HWY_DYNAMIC_DISPATCH(Log2)(out.data(), 4);
  EXPECT_EQ(in[0] * out[0], 0);
  EXPECT_LT(std::abs(in[1] * out[1] - 1e-40 * std::log2(1e-40)), 3e-37);
  EXPECT_EQ(in[2] * out[2], inf);
  EXPECT_TRUE(std::isnan(in[3] * out[3]));
}

TEST_P(Simd, Exp2KeepsItsBound) {
  testing_support::Random random(2);
  std::vector<float> in;
  for (int i = 0; i < 200000; ++i) in.push_back(random.uniform(-126, 127));
  for (int i = 0; i < 100000; ++i) in.push_back(random.uniform(-1, 1));
  for (int e = -126; e < 128; ++e) in.push_back(static_cast<float>(e));
  auto out = in;
  HWY_DYNAMIC_DISPATCH(Exp2)(out.data(), static_cast<std::int64_t>(out.size()));
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double exact = std::exp2(static_cast<double>(in[i]));
    ASSERT_LE(std::abs(out[i] - exact), 1e-7 * exact) << in[i];
  }
}

TEST_P(Simd, Exp2OfSpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> values = {
      -inf, -1e30f, -127, -126.5f, 0, std::nanf(""), -std::numeric_limits<float>::max()};
  HWY_DYNAMIC_DISPATCH(Exp2)(values.data(), 7);
  EXPECT_EQ(values[0], 0);
  EXPECT_EQ(values[1], 0);
  EXPECT_EQ(values[2], 0);
  EXPECT_EQ(values[3], 0);
  EXPECT_EQ(values[4], 1);
  EXPECT_TRUE(std::isnan(values[5]));
  EXPECT_EQ(values[6], 0);
}

INSTANTIATE_TEST_SUITE_P(Host, Simd, testing::ValuesIn(testing_support::cpu_bodies()),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace kvatlas::kernels
#endif
