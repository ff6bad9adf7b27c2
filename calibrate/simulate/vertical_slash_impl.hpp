// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "analyzer/capture/engine.hpp"
#include "calibrate/policy/policy.hpp"

namespace kvatlas::calibrate {

/// Chooses what the tokens of one prompt attend to, layer by layer, and counts it.
class SparseReading {
 public:
  explicit SparseReading(const VerticalSlash& part) : part_(part) {}

  capture::SeenKeys choose(const capture::AttentionInputs& in);
  /// The share of the pairs of a query and a key that were attended to, over all layers so far.
  double share() const { return static_cast<double>(read_) / static_cast<double>(all_); }

 private:
  const VerticalSlash& part_;
  std::int64_t read_ = 0, all_ = 0;
};

}  // namespace kvatlas::calibrate
