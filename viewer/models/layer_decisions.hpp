// SPDX-License-Identifier: Apache-2.0
// What the present choices make of each layer, by every method that the profile knows enough of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "viewer/models/method_models.hpp"

namespace kvatlas::viewer {

struct LayerDecision {
  std::optional<bool> lazy;  // for all inputs; none: not known
  bool near_half = false;    // its lazy rate is near the share that makes a layer lazy
  std::int64_t budget = -1;  // tokens that DynamicKV gives it; -1: not known
  std::string blocks;        // "4/9": 4 of its 9 heads begin a block of PoD; empty: not known
};
/// One for each of so many layers.
std::vector<LayerDecision> layer_decisions(const MethodModels& models, const Choices& choices,
                                           std::int64_t layers);

/// Words for layers, and the layers that each is true of: "lazy" and "near half" if that is known,
/// "windowed" and "full" if the model has windows.
using LayerWords = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;
LayerWords layer_words(const std::vector<LayerDecision>& decisions, const profile::Header& header);

}  // namespace kvatlas::viewer
