// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvatlas::model {

/// How the numbers of a stored tensor are encoded. The quantised ones are GGUF's block formats.
enum class TensorType : std::uint8_t {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
};

/// Values in one block and bytes that the block takes ({1, 4} for f32, {32, 18} for q4_0, …).
struct BlockShape {
  std::int64_t values;
  std::int64_t bytes;
};
BlockShape block_shape(TensorType type);
const char* tensor_type_name(TensorType type);  // "F32", "Q4_K", …

/// One tensor of a model file: a name and bytes that lie in the mapped file, checked to lie inside
/// it.
struct StoredTensor {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape;  // row-major, outermost first: [rows, columns]
  std::span<const std::byte> bytes;
};

/// Decodes `count` values that start at `bytes`; count is a multiple of the type's block. Needs no
/// alignment. Thread-safe; the caller splits rows over threads.
void dequantize(TensorType type, const std::byte* bytes, std::int64_t count, float* out);

}  // namespace kvatlas::model
