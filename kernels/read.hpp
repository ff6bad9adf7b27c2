// SPDX-License-Identifier: Apache-2.0
// Host arrays of any type as float64, for the references.
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstdint>

#include "base/half.hpp"
#include "base/view.hpp"

namespace kvatlas::kernels {

/// The element of a host array at `index`, whatever its type, exactly.
template <std::size_t N, class... Index>
double read(const AnyView<N>& view, Index... index) {
  static_assert(sizeof...(Index) == N);
  std::int64_t offset = 0;
  std::size_t axis = 0;
  ((offset += static_cast<std::int64_t>(index) * view.strides[axis++]), ...);
  if (view.type == DType::f32) return static_cast<const float*>(view.data)[offset];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(view.data)[offset];
  return view.type == DType::f16 ? f16_to_float(bits) : bf16_to_float(bits);
}

/// The matrix of the last two axes at the leading indices.
template <std::size_t N, class... Index>
Eigen::MatrixXd read_matrix(const AnyView<N>& view, Index... leading) {
  static_assert(sizeof...(Index) + 2 == N);
  return Eigen::MatrixXd::NullaryExpr(
      view.sizes[N - 2], view.sizes[N - 1],
      [&](Eigen::Index row, Eigen::Index column) { return read(view, leading..., row, column); });
}

/// exp of each element by the standard library: Eigen's own gives no denormal numbers and no 0.
inline Eigen::ArrayXd exact_exp(const Eigen::ArrayXd& values) {
  return values.unaryExpr([](double value) { return std::exp(value); });
}

/// The scores of one query on the rows of `keys`, as attention takes them.
inline Eigen::ArrayXd attention_scores(const Eigen::Ref<const Eigen::MatrixXd>& keys,
                                       const Eigen::Ref<const Eigen::RowVectorXd>& query,
                                       double scale, double soft_cap) {
  Eigen::ArrayXd scores = (keys * query.transpose()).array() * scale;
  if (!(soft_cap > 0)) return scores;
  return soft_cap * (scores / soft_cap).tanh();
}

}  // namespace kvatlas::kernels
