// SPDX-License-Identifier: Apache-2.0
#include "analyzer/profile/chunks_impl.hpp"
#include "analyzer/profile/profile.hpp"

namespace kvatlas::profile {

std::int64_t type_bytes(Type type) {
  switch (type) {
    case Type::f16:
      return 2;
    case Type::i64:
      return 8;
    case Type::u8:
      return 1;
    default:
      return 4;
  }
}

const char* type_name(Type type) {
  switch (type) {
    case Type::f32:
      return "float32";
    case Type::f16:
      return "float16";
    case Type::i32:
      return "int32";
    case Type::i64:
      return "int64";
    default:
      return "uint8";
  }
}

Array::Array(Type element, std::vector<std::int64_t> sizes)
    : type(element),
      shape(std::move(sizes)),
      bytes(static_cast<std::size_t>(byte_count(element, shape))) {}

}  // namespace kvatlas::profile
