// SPDX-License-Identifier: Apache-2.0
#include "analyzer/checkpoint/tensor.hpp"

#include <array>

#include "base/error.hpp"

namespace kvatlas::model {
namespace {

struct TypeFacts {
  const char* name;
  BlockShape block;
};

// They stand in the order of TensorType.
constexpr std::array<TypeFacts, 29> kTypes{{
    {"F32", {1, 4}},        {"F16", {1, 2}},       {"BF16", {1, 2}},       {"Q4_0", {32, 18}},
    {"Q4_1", {32, 20}},     {"Q5_0", {32, 22}},    {"Q5_1", {32, 24}},     {"Q8_0", {32, 34}},
    {"Q2_K", {256, 84}},    {"Q3_K", {256, 110}},  {"Q4_K", {256, 144}},   {"Q5_K", {256, 176}},
    {"Q6_K", {256, 210}},   {"IQ4_NL", {32, 18}},  {"IQ4_XS", {256, 136}}, {"MXFP4", {32, 17}},
    {"IQ2_XXS", {256, 66}}, {"IQ2_XS", {256, 74}}, {"IQ2_S", {256, 82}},   {"IQ3_XXS", {256, 98}},
    {"IQ3_S", {256, 110}},  {"IQ1_S", {256, 50}},  {"IQ1_M", {256, 56}},   {"TQ1_0", {256, 54}},
    {"TQ2_0", {256, 66}},   {"F8_E4M3", {1, 1}},   {"I8", {1, 1}},         {"U8", {1, 1}},
    {"I32", {1, 4}},
}};
static_assert(kTypes.size() == static_cast<std::size_t>(TensorType::i32) + 1);

}  // namespace

BlockShape block_shape(TensorType type) { return kTypes[static_cast<std::size_t>(type)].block; }

const char* tensor_type_name(TensorType type) {
  return kTypes[static_cast<std::size_t>(type)].name;
}

void require_decodable(const StoredTensor& tensor) {
  if (!tensor.foreign_type.empty())
    fail(ErrorCode::unsupported, "tensor ", quoted(tensor.name), " has the type ",
         printable(tensor.foreign_type), ", which is not supported");
}

std::optional<std::int64_t> value_count(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (std::int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) return std::nullopt;
  return count;
}

}  // namespace kvatlas::model
