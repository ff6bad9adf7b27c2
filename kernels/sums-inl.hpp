// SPDX-License-Identifier: Apache-2.0
// Sums of the lanes of four vectors at once; included once per instruction set.
#if defined(KVATLAS_KERNELS_SUMS_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVATLAS_KERNELS_SUMS_INL_HPP_
#undef KVATLAS_KERNELS_SUMS_INL_HPP_
#else
#define KVATLAS_KERNELS_SUMS_INL_HPP_
#endif

#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR
/// to[i] = the sum of the lanes i, i + 4, i + 8 ... .
template <class D>
HWY_INLINE void add_blocks(D d, hn::Vec<D> v, float* HWY_RESTRICT to) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::Store(v, d, to);
  } else {
    const hn::Half<D> half;
    add_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), to);
  }
}
#endif

/// to[i] = the sum of the lanes of vectors[i], i < 4, all added in the same order; `to` is aligned
/// to 16 bytes. A third of the work of four sums by themselves.
template <class D>
HWY_INLINE void four_sums(D d, const hn::Vec<D> (&vectors)[4], float* HWY_RESTRICT to) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 4; ++i) hn::Store(vectors[i], d, to + i);
#else
  const hn::Repartition<std::uint64_t, D> pairs;
  const auto sums01 = hn::Add(hn::InterleaveLower(d, vectors[0], vectors[1]),
                              hn::InterleaveUpper(d, vectors[0], vectors[1]));
  const auto sums23 = hn::Add(hn::InterleaveLower(d, vectors[2], vectors[3]),
                              hn::InterleaveUpper(d, vectors[2], vectors[3]));
  const auto low = hn::BitCast(pairs, sums01), high = hn::BitCast(pairs, sums23);
  // Every four lanes now are sums of four lanes of each vector.
  add_blocks(d,
             hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, low, high)),
                     hn::BitCast(d, hn::InterleaveUpper(pairs, low, high))),
             to);
#endif
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
