// SPDX-License-Identifier: Apache-2.0
// Layers without attention: a gated delta rule, a short convolution, or a selective state space.
// They keep nothing of single tokens, but a state of fixed size a sequence.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "analyzer/capture/weights_impl.hpp"
#include "analyzer/config/config.hpp"

namespace kvatlas::capture {

/// The state of one layer and sequence. Its tensors are never written again, so that copies of it
/// may share them. Undefined ones: nothing has been read yet.
struct LayerState {
  at::Tensor conv;    // [kernel - 1, channels] float32, the last inputs of the convolution
  at::Tensor memory;  // of each value head its keys and values, float32, on the CPU
};

/// Runs the layer over hidden states [n, D], in place. One state: the rows are tokens of one
/// sequence, in order. Else each row is the next token of the sequence whose state it is.
void run_state_layer(const model::Config& config, const LayerTensors& weights,
                     const at::Tensor& hidden, std::span<LayerState* const> states);

}  // namespace kvatlas::capture
