// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "calibrate/simulate/plan.hpp"

namespace kvatlas::calibrate {

struct PromptFacts::State {
  Needs needs;
  const model::Config& config;
  std::int64_t n;
  at::Tensor rows = {};                  // [n_layers, n_heads, needs.rows, n], float32
  std::vector<at::Tensor> columns = {};  // [n_layers] of [n_kv_heads, n], on the host
  std::vector<std::vector<double>> prefill_mass = {};  // [needs.prefill_masses][layer * head]
  std::vector<std::vector<double>> decode_mass = {};   // [needs.decode_masses][layer * head]
};

}  // namespace kvatlas::calibrate
