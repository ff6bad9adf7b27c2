// SPDX-License-Identifier: Apache-2.0
// What the bodies of kv_quant share.
#pragma once

#include <cmath>

#include "base/half.hpp"
#include "kernels/kv_quant.hpp"

namespace kvatlas::kernels {

/// How the elements of one group become codes.
struct QuantScale {
  std::uint16_t scale = 0, minimum = 0;  // float16 bits
  float inverse = 0, low = 0;            // code = nearest((x - low) * inverse)
};

/// From the smallest and the largest element; `finite` says that all are.
inline QuantScale quant_scale(float low, float high, bool finite, int bits) {
  QuantScale out;
  out.minimum = float_to_f16(low + 0.0f);  // -0 and 0 become the same bits
  out.scale = float_to_f16((high - low) / static_cast<float>((1 << bits) - 1));
  const float scale = f16_to_float(out.scale);
  out.low = f16_to_float(out.minimum);
  if (!finite || !std::isfinite(scale) || !std::isfinite(out.low))
    return {.scale = 0x7e00, .minimum = 0, .inverse = 0, .low = 0};
  out.inverse = scale > 0 ? 1 / scale : 0;
  return out;
}

namespace reference {
void kv_quantise(const KvQuantise& io);
void kv_dequantise(const KvDequantise& io);
}  // namespace reference
namespace cuda {
void kv_quantise(const KvQuantise& io, void* stream);
void kv_dequantise(const KvDequantise& io, void* stream);
}  // namespace cuda

}  // namespace kvatlas::kernels
