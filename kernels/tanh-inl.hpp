// SPDX-License-Identifier: Apache-2.0
// Hyperbolic tangent, for soft-capped scores; included once per instruction set.
#if defined(KVATLAS_KERNELS_TANH_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVATLAS_KERNELS_TANH_INL_HPP_
#undef KVATLAS_KERNELS_TANH_INL_HPP_
#else
#define KVATLAS_KERNELS_TANH_INL_HPP_
#endif

#include <hwy/highway.h>

#include "kernels/math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// tanh(x), |error| <= 2e-7; -1 and 1 for infinities, NaN for NaN.
template <class D>
HWY_INLINE hn::Vec<D> tanh(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto power = exp2(d, hn::Mul(hn::Abs(x), hn::Set(d, -2.8853900817779268f)));
  return hn::CopySign(hn::Div(hn::Sub(one, power), hn::Add(one, power)), x);
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
