// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/layer_decisions.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/str.hpp"

namespace kvatlas::viewer {
namespace {

/// Decides by a method. Without its model, and for a setting that the profile does not know, the
/// layers are left as they are.
template <class Model, class Decide>
void decide(const OrReason<Model>& method, Decide decide) {
  try {
    decide(method.value());
  } catch (const Error&) {
    return;
  }
}

}  // namespace

std::vector<LayerDecision> layer_decisions(const MethodModels& models, const Choices& choices,
                                           std::int64_t layers) {
  std::vector<LayerDecision> out(static_cast<std::size_t>(layers));
  decide(models.lazy, [&](const LazyModel& model) {
    const LazyDecisions decisions = lazy_decisions(model, choices.lazy);
    for (std::size_t l = 0; l < out.size(); ++l) out[l].lazy = decisions.fixed.lazy[l] != 0;
    for (const auto l : decisions.near_half) out[l].near_half = true;
  });
  decide(models.budgets, [&](const BudgetsModel& model) {
    const auto budgets = budget_decisions(model, choices.budgets).all.budgets;
    for (std::size_t l = 0; l < out.size(); ++l) out[l].budget = budgets[l];
  });
  decide(models.blocks, [&](const BlocksModel& model) {
    const auto blocks = block_decisions(model, choices.blocks).blocks;
    for (std::size_t l = 0; l < out.size(); ++l) {
      const auto begins = std::count_if(blocks.begin(), blocks.end(), [&](const auto& lowest) {
        return lowest[l] == static_cast<std::int64_t>(l);
      });
      out[l].blocks = str(begins, "/", blocks.size());
    }
  });
  return out;
}

LayerWords layer_words(const std::vector<LayerDecision>& decisions, const profile::Header& header) {
  LayerWords words;
  const auto add = [&](const char* word, std::size_t layers, auto holds) {
    auto& found = words.emplace_back(word, std::vector<std::int64_t>()).second;
    for (std::size_t l = 0; l < layers; ++l)
      if (holds(l)) found.push_back(static_cast<std::int64_t>(l));
  };
  if (!decisions.empty() && decisions.front().lazy) {
    add("lazy", decisions.size(), [&](std::size_t l) { return *decisions[l].lazy; });
    add("near half", decisions.size(), [&](std::size_t l) { return decisions[l].near_half; });
  }
  const auto& window = header.window;
  if (std::any_of(window.begin(), window.end(), [](std::int64_t size) { return size > 0; })) {
    add("windowed", window.size(), [&](std::size_t l) { return window[l] > 0; });
    add("full", window.size(), [&](std::size_t l) { return window[l] <= 0; });
  }
  return words;
}

}  // namespace kvatlas::viewer
