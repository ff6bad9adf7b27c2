// SPDX-License-Identifier: Apache-2.0
// Element by element reading, for the references.
#pragma once

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

}  // namespace kvatlas::kernels
