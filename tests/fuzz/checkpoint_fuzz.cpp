// SPDX-License-Identifier: Apache-2.0
// A Hugging Face checkpoint: config.json and, after a zero byte, a safetensors file. Its weights
// are found and decoded, whatever they are packed in (FP8, MXFP4, GPTQ, AWQ, compressed-tensors).
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "analyzer/checkpoint/safetensors.hpp"
#include "analyzer/model/weights.hpp"
#include "base/error.hpp"
#include "tests/fuzz/two_parts.hpp"

using namespace kvatlas;
using namespace kvatlas::model;

namespace {

void read_whole(const Weight& weight, std::vector<float>& values) {
  if (!weight) return;
  values.resize(static_cast<std::size_t>(weight.rows() * weight.columns()));
  read_rows(weight, 0, weight.rows(), values.data());
}

void read_layer(const LayerWeights& layer, std::vector<float>& values) {
  for (const Weight* weight :
       {&layer.attention_norm, &layer.qkv, &layer.qkv_bias, &layer.output, &layer.sinks,
        &layer.gate_up, &layer.down, &layer.query_up, &layer.latent_down, &layer.latent_up,
        &layer.router, &layer.expert_gate_up, &layer.expert_gate_up_bias, &layer.expert_down,
        &layer.expert_down_bias, &layer.shared_gate_up, &layer.shared_down, &layer.state_in,
        &layer.conv})
    read_whole(*weight, values);
  for (const auto* others : {&layer.before, &layer.after})
    for (const LayerWeights& other : *others) read_layer(other, values);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto [text, file] = two_parts(data, size);
  try {
    const HfConfig config = parse_hf_config(text, "", "fuzz");
    const auto tensors = parse_safetensors(std::as_bytes(std::span(file)));
    std::map<std::string_view, const StoredTensor*> by_name;
    for (const StoredTensor& tensor : tensors)
      if (tensor.foreign_type.empty()) by_name[tensor.name] = &tensor;
    const TensorFinder finder([&](std::string_view name) -> const StoredTensor* {
      const auto found = by_name.find(name);
      return found == by_name.end() ? nullptr : found->second;
    });
    const ModelWeights weights = hf_weights(config, finder);
    std::vector<float> values;
    for (const LayerWeights& layer : weights.layers) read_layer(layer, values);
    for (const Weight* weight : {&weights.embedding, &weights.final_norm, &weights.head})
      read_whole(*weight, values);
  } catch (const Error&) {
  }
  return 0;
}
