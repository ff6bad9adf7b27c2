// SPDX-License-Identifier: Apache-2.0
// What every method decides about each layer at the present choices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "viewer/models/method_models.hpp"

namespace kvatlas::viewer {

struct LayerDecision {
  std::optional<bool> lazy;  // in the static view; none if it is not known
  bool near_half = false;    // its lazy rate is near the share that makes a layer lazy
  std::int64_t budget = -1;  // tokens that DynamicKV gives it; -1 if that is not known
  /// "4/9" if 4 of its 9 heads begin a block of PoD; empty if that is not known.
  std::string blocks;
};
/// One decision for each of `layers` layers.
std::vector<LayerDecision> layer_decisions(const MethodModels& models, const Choices& choices,
                                           std::int64_t layers);

/// Words for layers, each with the layers that it is true of: "lazy" and "near half" if that is
/// known, "windowed" and "full" if some of the model's layers have windows.
using LayerWords = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;
LayerWords layer_words(const std::vector<LayerDecision>& decisions, const profile::Header& header);

}  // namespace kvatlas::viewer
