// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "analyzer/capture/engine.hpp"
#include "calibrate/simulate/plan.hpp"

namespace kvatlas::calibrate {

/// Quest: of all pages of the prompt, each step reads those whose keys may score highest, by the
/// least and the greatest value of every channel.
class QuestPages {
 public:
  explicit QuestPages(const model::Config& config) : config_(config) {}

  /// The pages that a row reads in this layer, [KV head]; adds the bytes of what it reads.
  std::vector<std::vector<Range>> choose(const Quest& quest, const capture::ContinuationRows& in,
                                         std::int64_t row, const AnyView<3>& prompt_keys,
                                         std::int64_t n_tokens, double& read_bytes);

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
