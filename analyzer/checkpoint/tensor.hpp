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
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s,
  iq1_s,
  iq1_m,
  tq1_0,
  tq2_0,
  // Of safetensors alone: numbers that scales in other tensors go with.
  f8_e4m3,
  i8,
  u8,
  i32,
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
  /// The file's name of a type that kvatlas cannot decode ("Q8_1", "F8_E5M2"), `type` then says
  /// nothing; empty for all types above. GgufFile and SafetensorsFolder refuse to hand out such a
  /// tensor by name, so that only lists of tensors show it.
  std::string foreign_type;
  std::vector<std::int64_t> shape;  // row-major, outermost first: [rows, columns]
  std::span<const std::byte> bytes;
};

/// How a matrix of whole numbers of a few bits lies in words of 32, without gaps between them. A
/// weight is (number - zero) * scale; scale and zero are those of its row and its group of columns.
struct PackedBits {
  enum class Layout : std::uint8_t {
    gptq,       // neighbours in a word are of a column, those of the zeros of a row
    awq,        // both are of a column's row, in the order 0 2 4 6 1 3 5 7
    compressed  // compressed-tensors: the numbers' are of a row, the zeros' of a column
  };
  Layout layout = Layout::compressed;
  int bits = 4;
  int zero_shift = 0;                    // added to every stored zero
  std::int64_t group_size = 0;           // columns; 0: as many as the scales' shape leaves each
  const StoredTensor* zeros = nullptr;   // none: half of what the bits can hold
  const StoredTensor* groups = nullptr;  // [columns] the group of each; none: in order
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
