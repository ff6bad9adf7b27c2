// SPDX-License-Identifier: Apache-2.0
#include "calibrate/simulate/kl_divergence.hpp"

#include <cmath>

#include <ATen/ops/exp.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/log_softmax.h>

namespace kvatlas::calibrate {

double kl_divergence(std::span<const float> full, std::span<const float> other) {
  const auto logs_of = [](std::span<const float> logits) {
    return at::log_softmax(
        at::from_blob(const_cast<float*>(logits.data()), {std::ssize(logits)}, at::kFloat), 0);
  };
  const at::Tensor p = logs_of(full), q = logs_of(other), shares = p.exp();
  const float *log_p = p.const_data_ptr<float>(), *log_q = q.const_data_ptr<float>(),
              *share = shares.const_data_ptr<float>();
  double sum = 0;  // one after the other: LibTorch's own sum depends on the number of threads
  for (std::int64_t i = 0; i < std::ssize(full); ++i)
    if (!(share[i] < 0x1p-126f)) sum += static_cast<double>(share[i] * (log_p[i] - log_q[i]));
  return sum < 0 ? 0 : sum;
}

}  // namespace kvatlas::calibrate
