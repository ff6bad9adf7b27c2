// SPDX-License-Identifier: Apache-2.0
#include "analyzer/profile/chunks_impl.hpp"
#include "analyzer/profile/profile.hpp"

namespace kvatlas::profile {

namespace {

// They stand in the order of Type.
constexpr struct {
  const char* name;
  std::int64_t bytes;
} kTypeFacts[] = {{"float32", 4}, {"float16", 2}, {"int32", 4}, {"int64", 8}, {"uint8", 1}};

}  // namespace

std::int64_t type_bytes(Type type) { return kTypeFacts[static_cast<std::size_t>(type)].bytes; }

const char* type_name(Type type) { return kTypeFacts[static_cast<std::size_t>(type)].name; }

Array::Array(Type element, std::vector<std::int64_t> sizes)
    : type(element),
      shape(std::move(sizes)),
      bytes(static_cast<std::size_t>(byte_count(element, shape))) {}

}  // namespace kvatlas::profile
