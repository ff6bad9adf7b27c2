// SPDX-License-Identifier: Apache-2.0
// What a layer's attention works on, made of its hidden states: queries, keys and values of the
// ordinary kind, or of vectors of low rank (latent attention).
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

#include "analyzer/capture/ops_impl.hpp"
#include "analyzer/capture/weights_impl.hpp"
#include "analyzer/config/config.hpp"

namespace kvatlas::capture {

/// Of global layers, and of those with a window where they have a table of their own.
struct Rotations {
  RopeTable global, local;
  at::Tensor temperature;  // [n, 1, 1] that queries of layers without RoPE are multiplied by
};
/// Of positions first .. first + n - 1.
Rotations rotations(const model::Config& config, std::int64_t first, std::int64_t n,
                    const at::Device& device);

/// A layer's queries, keys and values after RoPE: [n, heads, head_dim], in the model's largest
/// sizes (model::LayerShape). A layer that reads the keys of another has none.
struct Projected {
  at::Tensor query, key, value;
  at::Tensor gate;  // [n, n_heads * head_dim] of what attention gives; undefined: none
};
/// Sees queries and keys before RoPE, in the layer's own sizes.
using BeforeRope = std::function<void(const Projected&)>;
Projected project(const model::Config& config, std::int64_t layer, const LayerTensors& weights,
                  const at::Tensor& hidden, const Rotations& rotations,
                  const BeforeRope& before_rope = {});

/// RoPE, and what the layer does to queries and keys after it.
void turn(const model::Config& config, std::int64_t layer, const LayerTensors& weights,
          const Rotations& rotations, Projected& heads);

/// The same heads [n, heads, size] in a larger size: filled up with zeros.
at::Tensor filled_up(const at::Tensor& heads, std::int64_t size);

/// How far back a layer's KV heads attend, [n_kv_heads] float32 between 0 and 1, by the mean query
/// and the mean key of a prompt: docs/profiling.md.
at::Tensor head_reach(const model::Config& config, std::int64_t layer, const LayerTensors& weights,
                      const Projected& before_rope);

/// What the output projection makes of each value of [n_kv_heads, n, head_dim]: the sum of the
/// magnitudes, in the mean over the query heads of its KV head, [n_kv_heads, n] float32.
at::Tensor value_outputs(const model::Config& config, std::int64_t layer,
                         const LayerTensors& weights, const at::Tensor& value);

/// What attention gave, [n, n_heads * head_dim], through the gates and the output projection:
/// [n, D].
at::Tensor project_back(const model::Config& config, std::int64_t layer,
                        const LayerTensors& weights, const at::Tensor& attended,
                        const at::Tensor& gate);

}  // namespace kvatlas::capture
