// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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
  mxfp4,
  // Of safetensors alone: numbers that scales in other tensors go with.
  f8_e4m3,
  i8,
  u8,
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
  /// The file's name of a type that kvatlas cannot decode ("IQ2_XXS", "F8_E4M3"), `type` then says
  /// nothing; empty for all types above. GgufFile and SafetensorsFolder refuse to hand out such a
  /// tensor by name, so that only lists of tensors show it.
  std::string foreign_type;
  std::vector<std::int64_t> shape;  // row-major, outermost first: [rows, columns]
  std::span<const std::byte> bytes;
};

/// The name of the tensor's type as the file has it.
inline std::string type_name(const StoredTensor& tensor) {
  return tensor.foreign_type.empty() ? tensor_type_name(tensor.type) : tensor.foreign_type;
}

/// Throws Error(unsupported), naming tensor and type, if the type is foreign.
void require_decodable(const StoredTensor& tensor);

/// Number of values in a tensor of this shape; nullopt if a size is negative or the product
/// overflows.
std::optional<std::int64_t> value_count(const std::vector<std::int64_t>& shape);

/// Decodes `count` values that start at `bytes`; count is a multiple of the type's block. Needs no
/// alignment. Thread-safe; the caller splits rows over threads.
void dequantize(TensorType type, const std::byte* bytes, std::int64_t count, float* out);

}  // namespace kvatlas::model
