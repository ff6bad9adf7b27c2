// SPDX-License-Identifier: Apache-2.0
#include <ATen/ops/eye.h>

#include "analyzer/capture/mean_rotation-inl.hpp"
#include "analyzer/capture/projection_impl.hpp"

namespace kvatlas::capture {

at::Tensor mean_rotation(const model::Config& config, std::int64_t layer, std::int64_t first,
                         std::int64_t n, const at::Device& device) {
  const auto floats = at::TensorOptions(at::kFloat).device(device);
  Projected unit;  // the rows of a unit matrix, at each position
  unit.query = at::eye(config.head_dim, floats).unsqueeze(0).repeat({n, 1, 1});
  turn(config, layer, {}, rotations(config, first, n, device), unit);
  return unit.query.mean(0);
}

}  // namespace kvatlas::capture
