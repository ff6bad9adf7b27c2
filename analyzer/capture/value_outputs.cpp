// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>

#include "analyzer/capture/projection_impl.hpp"

namespace kvatlas::capture {

at::Tensor value_outputs(const model::Config& c, std::int64_t layer, const LayerTensors& w,
                         const at::Tensor& value) {
  const std::int64_t size = c.shape(layer).value_dim, group = c.n_heads / value.size(0);
  const at::Tensor output = w.output.is_mkldnn() ? w.output.to_dense() : w.output;
  const at::Tensor weights = output.reshape({output.size(0), c.n_heads, size});
  std::vector<at::Tensor> sums;
  for (std::int64_t h = 0; h < c.n_heads; ++h) {
    const at::Tensor rows = value[h / group].narrow(1, 0, size);
    sums.push_back(at::matmul(rows, weights.select(1, h).t()).to(at::kFloat).abs().sum(1));
  }
  return at::stack(sums).view({value.size(0), group, -1}).mean(1);
}

}  // namespace kvatlas::capture
