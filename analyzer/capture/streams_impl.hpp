// SPDX-License-Identifier: Apache-2.0
// What goes through the layers for the tokens of one step: hidden states, and beside them what some
// families carry along.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "analyzer/capture/weights_impl.hpp"
#include "analyzer/config/config.hpp"

namespace kvatlas::capture {

struct Carried {
  at::Tensor hidden;        // [n, D] what the blocks of a layer read and change, in place
  at::Tensor layer_inputs;  // [n, layers, P], or undefined: as WeightStore gives them
  at::Tensor streams;       // [A, n, D] (model::Streams), or undefined

  /// Makes row i what row index[i] is.
  void choose(const at::Tensor& index);
};

/// What goes into the first layer.
Carried carried_into(WeightStore& weights, const model::Config& config,
                     const std::vector<std::int64_t>& tokens);

/// Before a layer of a model with streams: predicts all of them, and makes the active one hidden.
void predict_streams(const LayerTensors& weights, const model::Config& config, Carried& carried);

/// Adds what attention gave, after its norm, to the hidden states.
void add_attention(const LayerTensors& weights, const model::Config& config, const at::Tensor& out,
                   const at::Tensor& hidden);

/// After the blocks of a layer: adds what it makes of its own inputs, and corrects the streams.
void end_layer(const LayerTensors& weights, const model::Config& config, std::int64_t layer,
               Carried& carried);

/// After the last layer: the hidden states become the mean of the streams.
void join_streams(WeightStore& weights, const model::Config& config, Carried& carried);

}  // namespace kvatlas::capture
