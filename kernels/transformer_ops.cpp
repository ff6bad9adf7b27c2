// SPDX-License-Identifier: Apache-2.0
#include "kernels/transformer_ops.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "kernels/dispatch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/transformer_ops.cpp"
#include <hwy/foreach_target.h>

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Lanes = hn::ScalableTag<float>;

/// Squares are summed in double: a norm's rounding error goes into everything after it.
double sum_of_squares(const float* row, std::int64_t width) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto even = hn::Zero(d), odd = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 2 * lanes <= width; i += 2 * lanes) {
    const auto x = hn::PromoteTo(d, hn::LoadU(half, row + i));
    const auto y = hn::PromoteTo(d, hn::LoadU(half, row + i + lanes));
    even = hn::MulAdd(x, x, even);
    odd = hn::MulAdd(y, y, odd);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  for (; i < width; ++i) sum += static_cast<double>(row[i]) * row[i];
  return sum;
}

void rms_norm_row(const float* row, const float* weight, float eps, float offset,
                  std::int64_t width, float* out) {
  const Lanes d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const double squares = sum_of_squares(row, width);
  const auto factor =
      static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(width) + eps));
  const auto scale = hn::Set(d, factor);
  const auto shift = hn::Set(d, offset);
  std::int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    const auto gain = hn::Add(hn::LoadU(d, weight + i), shift);
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, row + i), scale), gain), d, out + i);
  }
  for (; i < width; ++i) out[i] = row[i] * factor * (weight[i] + offset);
}

void rotate_head(float* head, const float* cosine, const float* sine, std::int64_t half) {
  const Lanes d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= half; i += lanes) {
    const auto a = hn::LoadU(d, head + i), b = hn::LoadU(d, head + half + i);
    const auto c = hn::LoadU(d, cosine + i), s = hn::LoadU(d, sine + i);
    hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, head + i);
    hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, head + half + i);
  }
  for (; i < half; ++i) {
    const float a = head[i], b = head[half + i];
    head[i] = a * cosine[i] - b * sine[i];
    head[half + i] = b * cosine[i] + a * sine[i];
  }
}

/// silu(x) = x / (1 + exp(-x)); tanh-approximated GELU is x / (1 + exp(-2 u(x))).
template <class D, class V = hn::Vec<D>>
V activate(D d, V x, bool gelu) {
  V u = x;
  if (gelu) {
    const V cubic = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.044715f), hn::Set(d, 1.0f));
    u = hn::Mul(hn::Mul(x, cubic), hn::Set(d, 1.5957691216057308f));  // 2 sqrt(2 / pi)
  }
  // Past 88 the exponential overflows; there the quotient is zero to float precision anyway.
  const V power = hn::Exp(d, hn::Min(hn::Neg(u), hn::Set(d, 88.0f)));
  return hn::Div(x, hn::Add(power, hn::Set(d, 1.0f)));
}

void gated_row(const float* gate, const float* up, bool gelu, std::int64_t width, float* out) {
  const Lanes d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    const auto y = hn::Mul(activate(d, hn::LoadU(d, gate + i), gelu), hn::LoadU(d, up + i));
    hn::StoreU(y, d, out + i);
  }
  const hn::CappedTag<float, 1> one;
  for (; i < width; ++i) {
    const auto y = hn::Mul(activate(one, hn::LoadU(one, gate + i), gelu), hn::LoadU(one, up + i));
    hn::StoreU(y, one, out + i);
  }
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvatlas::kernels {
namespace {

HWY_EXPORT(rms_norm_row);
HWY_EXPORT(rotate_head);
HWY_EXPORT(gated_row);

constexpr std::int64_t kRowsPerTask = 16;

template <class Fn>
void for_rows(std::int64_t n, const Fn& fn) {
  parallel_for((n + kRowsPerTask - 1) / kRowsPerTask, [&](std::int64_t task, int) {
    const std::int64_t end = std::min(n, (task + 1) * kRowsPerTask);
    for (std::int64_t row = task * kRowsPerTask; row < end; ++row) fn(row);
  });
}

void require(bool holds, const char* what) {
  if (!holds) fail(ErrorCode::internal, what);
}

}  // namespace

void rms_norm(const RmsNorm& io) {
  obey_cpu_environment();
  require(io.rows.sizes == io.out.sizes && io.rows.strides[1] == 1 && io.out.strides[1] == 1,
          "rms_norm: rows and out must have one shape and dense rows");
  const auto body = HWY_DYNAMIC_DISPATCH(rms_norm_row);
  for_rows(io.rows.sizes[0], [&](std::int64_t row) {
    body(io.rows.at(row), io.weight, io.eps, io.offset, io.rows.sizes[1], io.out.at(row));
  });
}

void rotate(const Rotate& io) {
  obey_cpu_environment();
  const std::int64_t half = io.cosine.sizes[1];
  require(io.cosine.sizes == io.sine.sizes && io.cosine.sizes[0] == io.heads.sizes[0] &&
              2 * half <= io.heads.sizes[2] && io.heads.strides[2] == 1 &&
              io.cosine.strides[1] == 1 && io.sine.strides[1] == 1,
          "rotate: the tables do not fit the heads");
  const auto body = HWY_DYNAMIC_DISPATCH(rotate_head);
  for_rows(io.heads.sizes[0], [&](std::int64_t row) {
    for (std::int64_t head = 0; head < io.heads.sizes[1]; ++head)
      body(io.heads.at(row, head), io.cosine.at(row), io.sine.at(row), half);
  });
}

void gated_activation(const GatedActivation& io) {
  obey_cpu_environment();
  const std::int64_t width = io.out.sizes[1];
  require(io.gate_up.sizes[0] == io.out.sizes[0] && io.gate_up.sizes[1] == 2 * width &&
              io.gate_up.strides[1] == 1 && io.out.strides[1] == 1,
          "gated_activation: gate_up must be twice as wide as out, rows dense");
  const auto body = HWY_DYNAMIC_DISPATCH(gated_row);
  for_rows(io.out.sizes[0], [&](std::int64_t row) {
    body(io.gate_up.at(row), io.gate_up.at(row) + width, io.gelu, width, io.out.at(row));
  });
}

}  // namespace kvatlas::kernels
#endif  // HWY_ONCE
