// SPDX-License-Identifier: Apache-2.0
#include "analyzer/capture/value_cosines.hpp"

#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "analyzer/capture/tensors-inl.hpp"

namespace kvatlas::capture {

std::vector<float> value_cosines(const Sequence& sequence, const model::Config& config,
                                 std::int64_t tokens) {
  const std::int64_t L = config.n_layers, K = config.n_kv_heads;
  at::Tensor sums = at::zeros({K, L, L}, at::TensorOptions(at::kDouble));
  for (std::int64_t first = 0; first < tokens; first += kComparedTokens) {
    const std::int64_t count = std::min(kComparedTokens, tokens - first);
    std::vector<at::Tensor> layers;
    for (std::int64_t l = 0; l < L; ++l) {
      const at::Tensor values =
          tensor_of(sequence.cache(l).value).narrow(1, first, count).to(at::kFloat);
      const at::Tensor norms = at::linalg_vector_norm(values, 2, at::IntArrayRef({-1}), true);
      layers.push_back((values / norms.clamp_min(std::numeric_limits<float>::min())).flatten(1));
    }
    const at::Tensor all = at::stack(layers, 1);  // [K, L, tokens * head_dim]
    sums.add_(at::matmul(all, all.transpose(1, 2)).cpu());
  }
  const at::Tensor means = (sums / static_cast<double>(tokens)).to(at::kFloat).contiguous();
  return {means.const_data_ptr<float>(), means.const_data_ptr<float>() + means.numel()};
}

}  // namespace kvatlas::capture
