// SPDX-License-Identifier: Apache-2.0
#include "kernels/transformer_ops.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "kernels/dispatch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/transformer_ops.cpp"
#include <hwy/foreach_target.h>

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "kernels/load-inl.hpp"

#ifndef KVATLAS_KERNELS_ROW_BODIES
#define KVATLAS_KERNELS_ROW_BODIES
namespace kvatlas::kernels {
/// What is done to one row, by one instruction set.
template <class T>
struct RowBodies {
  void (*rms_norm)(const T* row, const T* weight, float eps, float offset, std::int64_t width,
                   T* out);
  void (*rotate)(T* head, const float* cosine, const float* sine, std::int64_t half);
  void (*gate)(const T* gate, const T* up, bool gelu, std::int64_t width, T* out);
};
}  // namespace kvatlas::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Lanes = hn::ScalableTag<float>;

/// Calls step(tag, i) for lanes of a row, the last ones one at a time.
template <class Step>
void for_lanes(std::int64_t width, const Step& step) {
  const Lanes d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= width; i += lanes) step(d, i);
  const hn::CappedTag<float, 1> one;
  for (; i < width; ++i) step(one, i);
}

/// Squares are summed in double: a norm's rounding error goes into everything after it.
template <class T>
double sum_of_squares(const T* row, std::int64_t width) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto even = hn::Zero(d), odd = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 2 * lanes <= width; i += 2 * lanes) {
    const auto x = hn::PromoteTo(d, load(half, row + i));
    const auto y = hn::PromoteTo(d, load(half, row + i + lanes));
    even = hn::MulAdd(x, x, even);
    odd = hn::MulAdd(y, y, odd);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  const hn::CappedTag<float, 1> one;
  for (; i < width; ++i) {
    const auto x = static_cast<double>(hn::GetLane(load(one, row + i)));
    sum += x * x;
  }
  return sum;
}

template <class T>
void rms_norm_row(const T* row, const T* weight, float eps, float offset, std::int64_t width,
                  T* out) {
  const double squares = sum_of_squares(row, width);
  const auto factor =
      static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(width) + eps));
  for_lanes(width, [&](auto d, std::int64_t i) {
    const auto gain = hn::Add(load(d, weight + i), hn::Set(d, offset));
    store(hn::Mul(hn::Mul(load(d, row + i), hn::Set(d, factor)), gain), d, out + i);
  });
}

template <class T>
void rotate_head(T* head, const float* cosine, const float* sine, std::int64_t half) {
  for_lanes(half, [&](auto d, std::int64_t i) {
    const auto a = load(d, head + i), b = load(d, head + half + i);
    const auto c = load(d, cosine + i), s = load(d, sine + i);
    store(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, head + i);
    store(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, head + half + i);
  });
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

template <class T>
void gated_row(const T* gate, const T* up, bool gelu, std::int64_t width, T* out) {
  for_lanes(width, [&](auto d, std::int64_t i) {
    store(hn::Mul(activate(d, load(d, gate + i), gelu), load(d, up + i)), d, out + i);
  });
}

template <class T>
constexpr RowBodies<T> kBodies = {rms_norm_row<T>, rotate_head<T>, gated_row<T>};
RowBodies<float> float_bodies() { return kBodies<float>; }
RowBodies<Bf16> bf16_bodies() { return kBodies<Bf16>; }

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvatlas::kernels {
namespace {

HWY_EXPORT(float_bodies);
HWY_EXPORT(bf16_bodies);

template <class T>
RowBodies<T> bodies() {
  obey_cpu_environment();
  if constexpr (std::is_same_v<T, float>)
    return HWY_DYNAMIC_DISPATCH(float_bodies)();
  else
    return HWY_DYNAMIC_DISPATCH(bf16_bodies)();
}

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

template <class T>
void rms_norm(const RmsNorm<T>& io) {
  require(io.rows.sizes == io.out.sizes && io.rows.strides[1] == 1 && io.out.strides[1] == 1,
          "rms_norm: rows and out must have one shape and dense rows");
  const auto body = bodies<T>().rms_norm;
  for_rows(io.rows.sizes[0], [&](std::int64_t row) {
    body(io.rows.at(row), io.weight, io.eps, io.offset, io.rows.sizes[1], io.out.at(row));
  });
}

template <class T>
void rotate(const Rotate<T>& io) {
  const std::int64_t half = io.cosine.sizes[1];
  require(io.cosine.sizes == io.sine.sizes && io.cosine.sizes[0] == io.heads.sizes[0] &&
              2 * half <= io.heads.sizes[2] && io.heads.strides[2] == 1 &&
              io.cosine.strides[1] == 1 && io.sine.strides[1] == 1,
          "rotate: the tables do not fit the heads");
  const auto body = bodies<T>().rotate;
  for_rows(io.heads.sizes[0], [&](std::int64_t row) {
    for (std::int64_t head = 0; head < io.heads.sizes[1]; ++head)
      body(io.heads.at(row, head), io.cosine.at(row), io.sine.at(row), half);
  });
}

template <class T>
void gated_activation(const GatedActivation<T>& io) {
  const std::int64_t width = io.out.sizes[1];
  require(io.gate_up.sizes[0] == io.out.sizes[0] && io.gate_up.sizes[1] == 2 * width &&
              io.gate_up.strides[1] == 1 && io.out.strides[1] == 1,
          "gated_activation: gate_up must be twice as wide as out, rows dense");
  const auto body = bodies<T>().gate;
  for_rows(io.out.sizes[0], [&](std::int64_t row) {
    body(io.gate_up.at(row), io.gate_up.at(row) + width, io.gelu, width, io.out.at(row));
  });
}

template void rms_norm(const RmsNorm<float>&);
template void rms_norm(const RmsNorm<Bf16>&);
template void rotate(const Rotate<float>&);
template void rotate(const Rotate<Bf16>&);
template void gated_activation(const GatedActivation<float>&);
template void gated_activation(const GatedActivation<Bf16>&);

}  // namespace kvatlas::kernels
#endif  // HWY_ONCE
