// SPDX-License-Identifier: Apache-2.0
// A safetensors file: header, and the decoding of its tensors.
#include <cstdint>
#include <span>
#include <vector>

#include "analyzer/checkpoint/safetensors.hpp"
#include "base/error.hpp"

using namespace kvatlas;
using namespace kvatlas::model;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    for (const StoredTensor& tensor : parse_safetensors(std::as_bytes(std::span(data, size)))) {
      if (!tensor.foreign_type.empty()) continue;
      std::vector<float> values(static_cast<std::size_t>(*value_count(tensor.shape)));
      dequantize(tensor.type, tensor.bytes.data(), static_cast<std::int64_t>(values.size()),
                 values.data());
    }
  } catch (const Error&) {
  }
  return 0;
}
