// SPDX-License-Identifier: Apache-2.0
// What the decoders of GGUF's block formats share.
#pragma once

#include <cstdint>
#include <cstring>

#include "analyzer/checkpoint/tensor.hpp"
#include "base/half.hpp"

namespace kvatlas::model {

using Byte = std::uint8_t;

inline std::uint16_t load_u16(const Byte* bytes) {
  return static_cast<std::uint16_t>(bytes[0] | (bytes[1] << 8));
}

inline std::uint32_t load_u32(const Byte* bytes) {
  std::uint32_t value;
  std::memcpy(&value, bytes, 4);
  return value;
}

inline float load_f16(const Byte* bytes) { return f16_to_float(load_u16(bytes)); }

template <int kValues, int kBytes, auto kDecode>
void decode_blocks(const Byte* in, std::int64_t count, float* out) {
  for (std::int64_t block = 0; block < count / kValues; ++block)
    kDecode(in + block * kBytes, out + block * kValues);
}

/// Of a type whose values are words of a code book, or ternary numbers.
void dequantize_codes(TensorType type, const Byte* in, std::int64_t count, float* out);

}  // namespace kvatlas::model
