// SPDX-License-Identifier: Apache-2.0
// Ladder: a row at a time and three passes over it (it stays in L2): largest logits, normalisers,
// sums. Two exponentials a token and pass; keeping the shares between the last two passes would
// trade them for as many bytes.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/row_compare.cpp"
#include <algorithm>
#include <cmath>
#include <limits>

#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "kernels/check.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/load-inl.hpp"
#include "kernels/math-inl.hpp"
#include "kernels/row_compare_impl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using LogitTag = hn::ScalableTag<float>;
constexpr std::int64_t kLogitLanes = hn::MaxLanes(LogitTag());
// Tokens whose terms are added in float32, at most 32 a lane.
constexpr std::int64_t kChunk = 32 * kLogitLanes;

/// One row of logits, read kChunk at a time as float32.
struct LogitRow {
  const AnyView<2>& logits;
  std::int64_t row;
  HWY_ALIGN float buffer[kChunk];

  /// Tokens first .. first + kChunk, -inf behind the last one.
  const float* chunk(std::int64_t first) {
    const std::int64_t count = std::min(kChunk, logits.sizes[1] - first);
    const std::int64_t offset = row * logits.strides[0] + first * logits.strides[1];
    if (count == kChunk && logits.type == DType::f32 && logits.strides[1] == 1)
      return static_cast<const float*>(logits.data) + offset;
    copy_as_float(logits.data, logits.type, offset, logits.strides[1], count, buffer);
    std::fill(buffer + count, buffer + kChunk, -std::numeric_limits<float>::infinity());
    return buffer;
  }
};

struct Peak {
  float logit = -std::numeric_limits<float>::infinity();
  std::int64_t token = 0;
};

/// The largest logit and the first token that has it; meaningless with NaN in the row.
HWY_INLINE Peak peak(LogitRow& row) {
  const LogitTag d;
  Peak out;
  std::int64_t where = 0;
  for (std::int64_t first = 0; first < row.logits.sizes[1]; first += kChunk) {
    const float* logits = row.chunk(first);
    auto most = hn::LoadU(d, logits);
    for (std::int64_t t = kLogitLanes; t < kChunk; t += kLogitLanes)
      most = hn::Max(most, hn::LoadU(d, logits + t));
    const float top = hn::GetLane(hn::MaxOfLanes(d, most));
    if (top > out.logit) {
      out.logit = top;
      where = first;
    }
  }
  const float* logits = row.chunk(where);
  out.token = where + (std::find(logits, logits + kChunk, out.logit) - logits);
  return out;
}

/// exp(x).
HWY_INLINE hn::Vec<LogitTag> natural_exp(LogitTag d, hn::Vec<LogitTag> x) {
  return exp2(d, hn::Mul(x, hn::Set(d, 1.44269504f)));
}

/// Sum of exp(logit - top).
HWY_INLINE double normaliser(LogitRow& row, float top) {
  const LogitTag d;
  double total = 0;
  for (std::int64_t first = 0; first < row.logits.sizes[1]; first += kChunk) {
    const float* logits = row.chunk(first);
    auto sum = hn::Zero(d);
    for (std::int64_t t = 0; t < kChunk; t += kLogitLanes)
      sum = hn::Add(sum, natural_exp(d, hn::Sub(hn::LoadU(d, logits + t), hn::Set(d, top))));
    total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, sum)));
  }
  return total;
}

void compare_row(const RowCompare& io, std::int64_t row) {
  const LogitTag d;
  LogitRow full{io.full, row, {}}, other{io.other, row, {}};
  const Peak p_peak = peak(full), q_peak = peak(other);
  const double p_total = normaliser(full, p_peak.logit), q_total = normaliser(other, q_peak.logit);
  const auto p_scale = hn::Set(d, static_cast<float>(1 / p_total));
  const auto q_scale = hn::Set(d, static_cast<float>(1 / q_total));
  const auto log_ratio = hn::Set(d, static_cast<float>(std::log(p_total) - std::log(q_total)));
  double kl = 0, distance = 0;
  for (std::int64_t first = 0; first < io.full.sizes[1]; first += kChunk) {
    const float* p_logits = full.chunk(first);
    const float* q_logits = other.chunk(first);
    auto kl_sum = hn::Zero(d), distance_sum = hn::Zero(d);
    for (std::int64_t t = 0; t < kChunk; t += kLogitLanes) {
      const auto x = hn::Sub(hn::LoadU(d, p_logits + t), hn::Set(d, p_peak.logit));
      const auto y = hn::Sub(hn::LoadU(d, q_logits + t), hn::Set(d, q_peak.logit));
      const auto p = hn::Mul(natural_exp(d, x), p_scale), q = hn::Mul(natural_exp(d, y), q_scale);
      const auto term = hn::Mul(p, hn::Sub(hn::Sub(x, y), log_ratio));
      kl_sum = hn::Add(kl_sum, hn::IfThenZeroElse(hn::Eq(p, hn::Zero(d)), term));
      distance_sum = hn::Add(distance_sum, hn::Abs(hn::Sub(p, q)));
    }
    kl += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, kl_sum)));
    distance += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, distance_sum))) / 2;
  }
  if (io.full.sizes[1] == 0) kl = distance = std::numeric_limits<double>::quiet_NaN();
  if (io.kl.data) io.kl(row) = static_cast<float>(kl < 0 ? 0 : kl);
  if (io.total_variation.data) io.total_variation(row) = static_cast<float>(distance);
  if (io.same_top1.data)
    io.same_top1(row) = p_peak.token == q_peak.token && !std::isnan(distance) ? 1 : 0;
}

void row_compare_body(const RowCompare& io) {
  parallel_for(io.full.sizes[0], [&](std::int64_t row, int) { compare_row(io, row); });
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvatlas::kernels {
HWY_EXPORT(row_compare_body);

void row_compare(const RowCompare& io, const Exec& exec) {
  require_array("full", io.full);
  require_array("other", io.other);
  require_shape("other", io.other.sizes, io.full.sizes);
  require_same_memory("other", io.other.memory, io.full.memory);
  const auto check = [&](const char* name, const auto& out) {
    if (!out.data) return;
    require_shape(name, out.sizes, {io.full.sizes[0]});
    require_same_memory(name, out.memory, io.full.memory);
  };
  check("kl", io.kl);
  check("total_variation", io.total_variation);
  check("same_top1", io.same_top1);
  const Backend backend = choose(exec, io.full.memory);
  if (io.full.sizes[0] == 0) return;
  run_body(backend, exec, io, reference::row_compare, HWY_DYNAMIC_DISPATCH(row_compare_body),
           KVATLAS_CUDA_BODY(row_compare));
}

}  // namespace kvatlas::kernels
#endif
