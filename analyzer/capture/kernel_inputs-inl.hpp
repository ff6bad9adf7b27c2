// SPDX-License-Identifier: Apache-2.0
// What the model hands over of a layer's attention, as the kernels' arguments.
#pragma once

#include <cstdint>
#include <functional>

#include <ATen/core/Tensor.h>

#include "analyzer/capture/engine.hpp"
#include "analyzer/capture/tensors-inl.hpp"
#include "kernels/attention_maps.hpp"
#include "kernels/last_rows.hpp"

namespace kvatlas::capture {

/// Float32 where the data lies.
at::TensorOptions float_on(const AnyView<3>& data);

/// The layer's queries and keys: all rows that were run, or the last `rows` of them.
kernels::LastRows rows_of(const AttentionInputs& in);
kernels::LastRows last_rows_of(const AttentionInputs& in, std::int64_t rows);

/// A prompt's scores with their rows' log-sum-exps: those that the forward pass has left, else
/// computed into lse_room(), [n_heads, n_tokens] float32, which the caller keeps.
kernels::AttentionMaps maps_of(const AttentionInputs& in,
                               const std::function<at::Tensor()>& lse_room);

}  // namespace kvatlas::capture
