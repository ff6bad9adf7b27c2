// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "analyzer/capture/engine.hpp"
#include "calibrate/simulate/plan.hpp"
#include "calibrate/simulate/ranges_impl.hpp"

namespace kvatlas::calibrate {

/// Quest's pages. Of every page of the prompt the least and the greatest value of each channel are
/// known, which bound the scores of its keys. A step reads the pages with the highest bounds.
class QuestPages {
 public:
  explicit QuestPages(const model::Config& config) : config_(config) {}

  /// The tokens that row `row` of the step reads in this layer, for each KV head. Adds the bytes
  /// that it reads to `read_bytes`.
  std::vector<Ranges> choose(const Quest& quest, const capture::ContinuationRows& in,
                             std::int64_t row, const AnyView<3>& prompt_keys, std::int64_t n_tokens,
                             double& read_bytes);

 private:
  struct Bounds {
    at::Tensor least, greatest;  // [n_kv_heads, pages, d]
  };
  const Bounds& bounds(std::int64_t layer, std::int64_t page, const AnyView<3>& keys,
                       std::int64_t n_tokens);

  const model::Config& config_;
  std::map<std::pair<std::int64_t, std::int64_t>, Bounds> bounds_;  // by layer and page
};

}  // namespace kvatlas::calibrate
