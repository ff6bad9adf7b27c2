// SPDX-License-Identifier: Apache-2.0
// One element of a view of run-time type, for the references.
#pragma once

#include <cstdint>

#include "kernels/base/half.hpp"
#include "kernels/base/view.hpp"

namespace kvatlas::kernels {

/// The element at `index`, exactly.
template <std::size_t N, class... Index>
double element(const AnyView<N>& view, Index... index) {
  static_assert(sizeof...(Index) == N);
  std::int64_t offset = 0;
  std::size_t axis = 0;
  ((offset += static_cast<std::int64_t>(index) * view.strides[axis++]), ...);
  if (view.type == DType::f32) return static_cast<const float*>(view.data)[offset];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(view.data)[offset];
  return static_cast<double>(view.type == DType::f16 ? f16_to_float(bits) : bf16_to_float(bits));
}

}  // namespace kvatlas::kernels
