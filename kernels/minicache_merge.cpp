// SPDX-License-Identifier: Apache-2.0
// Ladder: a token at a time, its two rows in L1; squares and dot product in one pass in float64,
// which neither overflows nor loses nearly opposite directions, then the weighted sum.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/minicache_merge.cpp"
#include <algorithm>
#include <cmath>
#include <limits>

#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "kernels/aligned_impl.hpp"
#include "kernels/check.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/load-inl.hpp"
#include "kernels/minicache_merge_impl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using MergeTag = hn::ScalableTag<double>;
constexpr std::int64_t kMergeLanes = hn::MaxLanes(MergeTag());
constexpr std::int64_t kMergeTokens = 64;

/// Two rows as float32, padded with zeros.
class TokenPair {
 public:
  explicit TokenPair(const MinicacheMerge& io)
      : io_(io),
        width_((io.lower.sizes[2] + kMergeLanes - 1) / kMergeLanes * kMergeLanes),
        rows_(aligned<float>(2 * width_)) {}

  void run(std::int64_t h, std::int64_t i) {
    const MergeTag d;
    const hn::Rebind<float, MergeTag> df;
    float* lower = rows_.get();
    float* upper = rows_.get() + width_;
    read(io_.lower, h, i, lower);
    read(io_.upper, h, i, upper);
    auto lower_square = hn::Zero(d), upper_square = hn::Zero(d), dot = hn::Zero(d);
    for (std::int64_t c = 0; c < width_; c += kMergeLanes) {
      const auto a = hn::PromoteTo(d, hn::Load(df, lower + c));
      const auto b = hn::PromoteTo(d, hn::Load(df, upper + c));
      lower_square = hn::MulAdd(a, a, lower_square);
      upper_square = hn::MulAdd(b, b, upper_square);
      dot = hn::MulAdd(a, b, dot);
    }
    const double lower_total = hn::GetLane(hn::SumOfLanes(d, lower_square));
    const double upper_total = hn::GetLane(hn::SumOfLanes(d, upper_square));
    SlerpWeights weights =
        slerp_weights(lower_total, upper_total, hn::GetLane(hn::SumOfLanes(d, dot)), io_.t);
    if (!std::isfinite(lower_total) || !std::isfinite(upper_total))
      weights.lower = std::numeric_limits<double>::quiet_NaN();
    const double lower_norm = std::sqrt(lower_total), upper_norm = std::sqrt(upper_total);
    const auto from_lower = hn::Set(d, weights.lower), from_upper = hn::Set(d, weights.upper);
    for (std::int64_t c = 0; c < width_; c += kMergeLanes) {
      const auto a = hn::PromoteTo(d, hn::Load(df, lower + c));
      const auto b = hn::PromoteTo(d, hn::Load(df, upper + c));
      const auto e = hn::MulAdd(from_lower, a, hn::Mul(from_upper, b));
      hn::Store(hn::DemoteTo(df, hn::Mul(e, hn::Set(d, lower_norm))), df, lower + c);
      hn::Store(hn::DemoteTo(df, hn::Mul(e, hn::Set(d, upper_norm))), df, upper + c);
    }
    write(io_.merged_lower, h, i, lower);
    write(io_.merged_upper, h, i, upper);
  }

 private:
  void read(const AnyView<3>& from, std::int64_t h, std::int64_t i, float* to) const {
    copy_as_float(from.data, from.type, h * from.strides[0] + i * from.strides[1], from.strides[2],
                  from.sizes[2], to);
    std::fill(to + from.sizes[2], to + width_, 0.0f);
  }
  static void write(const View<float, 3>& to, std::int64_t h, std::int64_t i, const float* from) {
    float* row = to.at(h, i, 0);
    for (std::int64_t c = 0; c < to.sizes[2]; ++c) row[c * to.strides[2]] = from[c];
  }

  const MinicacheMerge& io_;
  std::int64_t width_;
  hwy::AlignedFreeUniquePtr<float[]> rows_;
};

void minicache_merge_body(const MinicacheMerge& io) {
  const std::int64_t tokens = io.lower.sizes[1], tiles = (tokens + kMergeTokens - 1) / kMergeTokens;
  parallel_for(io.lower.sizes[0] * tiles, [&](std::int64_t task, int) {
    TokenPair pair(io);
    const std::int64_t first = task % tiles * kMergeTokens;
    for (std::int64_t i = first; i < std::min(tokens, first + kMergeTokens); ++i)
      pair.run(task / tiles, i);
  });
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvatlas::kernels {
HWY_EXPORT(minicache_merge_body);

void minicache_merge(const MinicacheMerge& io, const Exec& exec) {
  const auto& sizes = io.lower.sizes;
  require_array("lower", io.lower);
  require_array("upper", io.upper);
  require_shape("upper", io.upper.sizes, sizes);
  require_same_memory("upper", io.upper.memory, io.lower.memory);
  for (const auto* out : {&io.merged_lower, &io.merged_upper}) {
    require_array("an output", *out);
    require_shape("an output", out->sizes, sizes);
    require_same_memory("an output", out->memory, io.lower.memory);
  }
  if (!(io.t >= 0 && io.t <= 1)) fail(ErrorCode::usage, "t is ", io.t, ", expected 0 to 1");
  const Backend backend = choose(exec, io.lower.memory);
  if (sizes[0] == 0 || sizes[1] == 0 || sizes[2] == 0) return;
  run_body(backend, exec, io, reference::minicache_merge,
           HWY_DYNAMIC_DISPATCH(minicache_merge_body), KVATLAS_CUDA_BODY(minicache_merge));
}

}  // namespace kvatlas::kernels
#endif
