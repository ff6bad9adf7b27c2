// SPDX-License-Identifier: Apache-2.0
// A GGUF file: header, configuration, names and shapes of the weights, and the decoding of tensors.
#include <cstdint>
#include <span>
#include <vector>

#include "analyzer/checkpoint/gguf.hpp"
#include "analyzer/model/weights.hpp"
#include "base/error.hpp"

using namespace kvatlas;
using namespace kvatlas::model;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const GgufFile file = GgufFile::parse(std::as_bytes(std::span(data, size)));
    std::vector<float> values;
    for (const StoredTensor& tensor : file.tensors()) {
      if (!tensor.foreign_type.empty()) continue;
      values.resize(static_cast<std::size_t>(*value_count(tensor.shape)));
      dequantize(tensor.type, tensor.bytes.data(), static_cast<std::int64_t>(values.size()),
                 values.data());
    }
    const Config config = gguf_config(file, "fuzz");
    const TensorFinder finder([&](std::string_view name) { return file.find(name); });
    const ModelWeights weights = gguf_weights(config, finder);
    for (const LayerWeights& layer : weights.layers)
      for (const Weight* weight : {&layer.qkv, &layer.latent_up}) {
        values.resize(static_cast<std::size_t>(weight->rows() * weight->columns()));
        read_rows(*weight, 0, weight->rows(), values.data());
      }
  } catch (const Error&) {
  }
  return 0;
}
