// SPDX-License-Identifier: Apache-2.0
// Short float32 logarithm and exponential, base 2; included once per instruction set. The
// polynomials are minimax fits; exp and log of another base are a multiplication away.
#if defined(KVATLAS_KERNELS_MATH_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVATLAS_KERNELS_MATH_INL_HPP_
#undef KVATLAS_KERNELS_MATH_INL_HPP_
#else
#define KVATLAS_KERNELS_MATH_INL_HPP_
#endif

#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// log2(x) for normal x > 0: |error| <= 4.5e-7 + 2^-24 |log2 x|, exact at powers of two. For 0,
/// denormal numbers, infinity and NaN the result is not the logarithm. It is finite for every
/// finite x >= 0, so that 0 * log2(0) = 0; x * log2(x) is infinite for x = inf, NaN for NaN, and
/// off by less than 3e-37 for denormal x.
template <class D>
HWY_INLINE hn::Vec<D> log2(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  // x = m * 2^e with m in [sqrt(1/2), sqrt(2)).
  const auto sqrt_half = hn::Set(di, 0x3f3504f3);
  const auto shifted = hn::Sub(hn::BitCast(di, x), sqrt_half);
  const auto e = hn::ConvertTo(d, hn::ShiftRight<23>(shifted));
  const auto m = hn::BitCast(d, hn::Add(hn::And(shifted, hn::Set(di, 0x007fffff)), sqrt_half));
  const auto y = hn::Sub(m, hn::Set(d, 1.0f));
  auto p = hn::Set(d, 0.17063449323177338f);
  p = hn::MulAdd(p, y, hn::Set(d, -0.27269795536994934f));
  p = hn::MulAdd(p, y, hn::Set(d, 0.29726260900497437f));
  p = hn::MulAdd(p, y, hn::Set(d, -0.3589618504047394f));
  p = hn::MulAdd(p, y, hn::Set(d, 0.48046502470970154f));
  p = hn::MulAdd(p, y, hn::Set(d, -0.7213758826255798f));
  p = hn::MulAdd(p, y, hn::Set(d, 1.442699670791626f));
  return hn::MulAdd(p, y, e);
}

/// 2^x for x <= 127: relative error <= 1e-7 (for |x| < 2^22); 0 for x < -126, -inf included; NaN
/// for NaN. For larger x, +inf included, the value is meaningless.
template <class D>
HWY_INLINE hn::Vec<D> exp2(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  // Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits.
  const auto magic = hn::Set(d, 12582912.0f);
  const auto rounded = hn::Add(x, magic);
  const auto r = hn::Sub(x, hn::Sub(rounded, magic));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, rounded));
  auto p = hn::Set(d, 0.00015353361959569156f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.0013398873852565885f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.00961843691766262f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.055503323674201965f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.24022647738456726f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.6931471824645996f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  // A NaN x makes p NaN. Adding to its exponent bits could make it a number again, so multiply.
  const auto scale = hn::BitCast(d, hn::Add(exponent, hn::Set(di, 0x3f800000)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::Mul(p, scale));
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
