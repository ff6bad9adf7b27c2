// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "analyzer/capture/weights_impl.hpp"
#include "analyzer/config/config.hpp"

namespace kvatlas::capture {

/// Adds the feed-forward block of a layer to the hidden states [n, D]: the dense one, or that of
/// the experts which the router chooses for each token. `least_gate` is that of
/// model::Config::sparse_gates.
void feed_forward(const model::Config& config, const LayerTensors& weights,
                  const at::Tensor& hidden, std::optional<double> least_gate = {});

/// Values that the block's intermediate results take at most.
std::int64_t feed_forward_values(const model::Config& config, std::int64_t tokens);

}  // namespace kvatlas::capture
