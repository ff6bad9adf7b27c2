// SPDX-License-Identifier: Apache-2.0
// Loads of float32, float16 and bfloat16 as vectors of float32; included once per instruction set.
#if defined(KVATLAS_KERNELS_LOAD_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVATLAS_KERNELS_LOAD_INL_HPP_
#undef KVATLAS_KERNELS_LOAD_INL_HPP_
#else
#define KVATLAS_KERNELS_LOAD_INL_HPP_
#endif

#include <cstddef>
#include <cstring>

#include <hwy/highway.h>

#include "base/half.hpp"
#include "base/view.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Lanes(d) elements at `p`, any alignment. All conversions are exact, subnormals, infinities and
/// NaN included.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* HWY_RESTRICT p) {
  return hn::LoadU(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const Bf16* HWY_RESTRICT p) {
  const hn::Rebind<std::uint32_t, D> du32;
  const hn::Rebind<std::uint16_t, D> du16;
  const auto bits = hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du32, bits)));
}

template <class D>
HWY_INLINE void store(hn::Vec<D> values, D d, float* HWY_RESTRICT p) {
  hn::StoreU(values, d, p);
}

/// Lanes(d) elements as bfloat16, each the nearest one, ties to even; NaN stays NaN.
template <class D>
HWY_INLINE void store(hn::Vec<D> values, D, Bf16* HWY_RESTRICT p) {
  const hn::Rebind<std::uint32_t, D> du32;
  const hn::Rebind<std::int32_t, D> di32;
  const hn::Rebind<std::uint16_t, D> du16;
  const auto bits = hn::BitCast(du32, values);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du32, 0x7fff)));
  const auto quiet = hn::Or(bits, hn::Set(du32, 0x400000));
  const auto kept = hn::IfThenElse(hn::RebindMask(du32, hn::IsNaN(values)), quiet, rounded);
  const auto upper = hn::DemoteTo(du16, hn::BitCast(di32, hn::ShiftRight<16>(kept)));
  hn::StoreU(upper, du16, reinterpret_cast<std::uint16_t*>(p));
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hwy::float16_t* HWY_RESTRICT p) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), p));
#else
  // Highway's own conversion without F16C does not keep infinities and NaN.
  const hn::Rebind<std::int32_t, D> di32;
  const hn::Rebind<std::uint32_t, D> du32;
  const hn::Rebind<std::uint16_t, D> du16;
  const auto half = hn::PromoteTo(du32, hn::LoadU(du16, reinterpret_cast<const std::uint16_t*>(p)));
  const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du32, 0x8000u)));
  const auto magnitude = hn::BitCast(di32, hn::And(half, hn::Set(du32, 0x7fffu)));
  const auto rebias = hn::Set(di32, 112 << 23);
  auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), rebias);
  normal =
      hn::IfThenElse(hn::Gt(magnitude, hn::Set(di32, 0x7bff)), hn::Add(normal, rebias), normal);
  const auto tiny = hn::BitCast(di32, hn::Mul(hn::ConvertTo(d, magnitude), hn::Set(d, 0x1p-24f)));
  const auto value = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di32, 0x400)), tiny, normal);
  return hn::BitCast(d, hn::Or(hn::BitCast(du32, value), sign));
#endif
}

/// The first `count` <= Lanes(d) elements at `p`, zeros behind; reads nothing further.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_n(D d, const T* HWY_RESTRICT p, std::size_t count) {
  HWY_ALIGN T padded[hn::MaxLanes(d)] = {};
  std::memcpy(static_cast<void*>(padded), p, count * sizeof(T));
  return load(d, padded);
}

/// Writes `count` elements at `from`, `stride` apart, as contiguous float32.
template <class T>
HWY_INLINE void copy_as_float(const T* HWY_RESTRICT from, std::int64_t stride, std::int64_t count,
                              float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  if (stride == 1)
    for (; i + lanes <= count; i += lanes) hn::StoreU(load(d, from + i), d, to + i);
  for (; i < count; ++i) hn::StoreU(load_n(d1, from + i * stride, 1), d1, to + i);
}

/// The same from data of a type known at run time; `from` is the address of element `offset` = 0.
HWY_INLINE void copy_as_float(const void* from, DType type, std::int64_t offset,
                              std::int64_t stride, std::int64_t count, float* HWY_RESTRICT to) {
  switch (type) {
    case DType::f32:
      return copy_as_float(static_cast<const float*>(from) + offset, stride, count, to);
    case DType::f16:
      return copy_as_float(static_cast<const hwy::float16_t*>(from) + offset, stride, count, to);
    case DType::bf16:
      return copy_as_float(static_cast<const Bf16*>(from) + offset, stride, count, to);
  }
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
