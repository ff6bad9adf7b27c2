// SPDX-License-Identifier: Apache-2.0
#include "kernels/log2_store.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "base/half.hpp"
#include "base/parallel.hpp"
#include "kernels/dispatch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/log2_store.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/load-inl.hpp"
#include "kernels/math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> stored_log2(D d, hn::Vec<D> share) {
  const auto nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  const auto log = hn::IfThenElse(hn::Lt(share, hn::Set(d, 0x1p-126f)), nothing, log2(d, share));
  return hn::IfThenElse(hn::IsNaN(share), share, log);
}

/// The float16 bits of Lanes(d) values.
template <class D>
HWY_INLINE void store_half(D d, hn::Vec<D> values, std::uint16_t* to) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const hn::Rebind<hwy::float16_t, D> half;
  hn::StoreU(hn::DemoteTo(half, values), half, reinterpret_cast<hwy::float16_t*>(to));
#else
  // Highway's own conversion without F16C does not keep infinities and NaN.
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(values, d, lanes);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) to[i] = float_to_f16(lanes[i]);
#endif
}

void log2_piece(const Log2Store& io, std::int64_t begin, std::int64_t end) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    const auto log = stored_log2(d, hn::LoadU(d, io.shares + i));
    if (io.as_half)
      store_half(d, log, io.as_half + i);
    else
      hn::StoreU(log, d, io.as_float + i);
  }
  if (i == end) return;
  const auto log = stored_log2(d, load_n(d, io.shares + i, static_cast<std::size_t>(end - i)));
  HWY_ALIGN float rest[hn::MaxLanes(d)];
  hn::Store(log, d, rest);
  for (std::int64_t k = 0; i + k < end; ++k) {
    if (io.as_half)
      io.as_half[i + k] = float_to_f16(rest[k]);
    else
      io.as_float[i + k] = rest[k];
  }
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvatlas::kernels {

HWY_EXPORT(log2_piece);

void log2_store(const Log2Store& io) {
  obey_cpu_environment();
  if (io.count < 0 || (io.count > 0 && (!io.shares || !io.as_float == !io.as_half)))
    fail(ErrorCode::usage, "log2_store needs shares, and one of its two outputs");
  constexpr std::int64_t kPiece = 1 << 15;
  parallel_for((io.count + kPiece - 1) / kPiece, [&](std::int64_t task, int) {
    HWY_DYNAMIC_DISPATCH(log2_piece)(io, task * kPiece, std::min(io.count, (task + 1) * kPiece));
  });
}

}  // namespace kvatlas::kernels
#endif
