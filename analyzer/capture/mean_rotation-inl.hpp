// SPDX-License-Identifier: Apache-2.0
// What positions make of queries, in the mean.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "analyzer/config/config.hpp"

namespace kvatlas::capture {

/// The mean over the positions first .. first + n - 1 of what a layer does to a query at its
/// position (RoPE), as a matrix [head_dim, head_dim] in float32 that a row before RoPE is
/// multiplied by. Layers that also norm what is rotated do no such thing.
at::Tensor mean_rotation(const model::Config& config, std::int64_t layer, std::int64_t first,
                         std::int64_t n, const at::Device& device);

}  // namespace kvatlas::capture
