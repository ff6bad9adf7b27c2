// SPDX-License-Identifier: Apache-2.0
#include "kernels/log2_store.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "base/half.hpp"
#include "base/parallel.hpp"
#include "base/share_code.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/log2_store_impl.hpp"

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
HWY_INLINE hn::Vec<D> stored_log2(D d, hn::Vec<D> share, float least) {
  const auto nothing = hn::Set(d, -std::numeric_limits<float>::infinity());
  const auto log = hn::IfThenElse(hn::Lt(share, hn::Set(d, least)), nothing, log2(d, share));
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

/// The codes of Lanes(d) logarithms.
template <class D>
HWY_INLINE void store_codes(D d, hn::Vec<D> logs, std::uint8_t* to) {
  const auto place = hn::MulAdd(logs, hn::Set(d, static_cast<float>(1 / share_code::kScale)),
                                hn::Set(d, static_cast<float>(share_code::kOne)));
  const auto code =
      hn::Min(hn::Max(place, hn::Zero(d)), hn::Set(d, static_cast<float>(share_code::kOne)));
  const auto known =
      hn::IfThenElse(hn::IsNaN(logs), hn::Set(d, static_cast<float>(share_code::kUnknown)), code);
  const hn::Rebind<std::uint8_t, D> bytes;
  hn::StoreU(hn::DemoteTo(bytes, hn::NearestInt(known)), bytes, to);
}

/// Lanes(d) logarithms to the output that is given.
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> logs, const Log2Store& io, std::int64_t at) {
  if (io.as_half)
    store_half(d, logs, io.as_half + at);
  else if (io.as_code)
    store_codes(d, logs, io.as_code + at);
  else
    hn::StoreU(logs, d, io.as_float + at);
}

void log2_piece(const Log2Store& io, std::int64_t begin, std::int64_t end) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = begin;
  for (; i + lanes <= end; i += lanes)
    store(d, stored_log2(d, hn::LoadU(d, io.shares + i), io.least), io, i);
  if (i == end) return;
  // The rest is stored with what lies behind it, then its part is copied.
  const auto rest = static_cast<std::size_t>(end - i);
  HWY_ALIGN float floats[hn::MaxLanes(d)];
  HWY_ALIGN std::uint16_t halves[hn::MaxLanes(d)];
  HWY_ALIGN std::uint8_t codes[hn::MaxLanes(d)];
  Log2Store part;
  if (io.as_half) part.as_half = halves;
  if (io.as_code) part.as_code = codes;
  part.as_float = floats;
  store(d, stored_log2(d, load_n(d, io.shares + i, rest), io.least), part, 0);
  if (io.as_half)
    std::copy_n(halves, rest, io.as_half + i);
  else if (io.as_code)
    std::copy_n(codes, rest, io.as_code + i);
  else
    std::copy_n(floats, rest, io.as_float + i);
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvatlas::kernels {

HWY_EXPORT(log2_piece);

namespace {

void on_cpu(const Log2Store& io) {
  constexpr std::int64_t kPiece = 1 << 15;
  parallel_for((io.count + kPiece - 1) / kPiece, [&](std::int64_t task, int) {
    HWY_DYNAMIC_DISPATCH(log2_piece)(io, task * kPiece, std::min(io.count, (task + 1) * kPiece));
  });
}

}  // namespace

void log2_store(const Log2Store& io, const Exec& exec) {
  const int outputs = (io.as_float != nullptr) + (io.as_half != nullptr) + (io.as_code != nullptr);
  if (io.count < 0 || !(io.least >= 0x1p-126f) || (io.count > 0 && (!io.shares || outputs != 1)))
    fail(ErrorCode::usage,
         "log2_store needs shares, a normal number as the least, and one of its three outputs");
  run_body(choose(exec, io.memory), exec, io, on_cpu, on_cpu, KVATLAS_CUDA_BODY(log2_store));
}

}  // namespace kvatlas::kernels
#endif
