// SPDX-License-Identifier: Apache-2.0
// What a sequence holds.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "analyzer/capture/engine.hpp"
#include "analyzer/capture/state_layers_impl.hpp"

namespace kvatlas::capture {

struct LayerStates::State {
  std::vector<LayerState> layers;  // in the order of the model
};

struct Sequence::State {
  bool keep_cache = true;
  LayerStates now, before;  // the latter as it was when the last run began
  std::int64_t before_length = 0;
  std::int64_t length = 0;
  std::vector<float> logits;
  struct Layer {
    at::Tensor key, value;  // [n_kv_heads, capacity, head_dim]
  };
  std::vector<Layer> layers;  // those that read the keys of another hold the same tensors

  /// The first layer with the same keys and values.
  std::size_t owner(std::size_t layer) const;
  void save(const WriteBytes& write) const;
  void load(const ReadBytes& read, const at::Device& device);
};

}  // namespace kvatlas::capture
