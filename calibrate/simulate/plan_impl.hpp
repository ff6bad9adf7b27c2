// SPDX-License-Identifier: Apache-2.0
// What the files of the parts share: the facts of a prompt, a plan in the making, and the planner
// that each part gives.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "calibrate/simulate/plan.hpp"

namespace kvatlas::calibrate {

struct PromptFacts::State {
  Needs needs;
  const model::Config& config;
  std::int64_t n;                        // tokens of the prompt
  at::Tensor rows = {};                  // [n_layers, n_heads, needs.rows, n], float32
  std::vector<at::Tensor> columns = {};  // [n_layers] of [n_kv_heads, n], on the host
  std::vector<std::vector<double>> prefill_mass = {};  // [needs.prefill_masses][layer * head]
  std::vector<std::vector<double>> decode_mass = {};   // [needs.decode_masses][layer * head]

  const std::vector<double>& prefill_mass_of(const Proximity& keep, std::int64_t w_last) const;
  const std::vector<double>& decode_mass_of(const Proximity& keep) const;
};

/// A plan in the making. It begins with the full cache, and the parts of the policy change it one
/// after the other.
struct Draft {
  const Policy& policy;
  const PromptFacts::State& facts;
  const capture::Sequence& prompt;
  const model::Config& config;
  std::int64_t n = 0;  // tokens that are cut: the prompt's, and the first step's if a part needs it
  Plan plan = {};
  LazyHeads trimmed = {};  // heads that a part has trimmed; the parts after it leave them alone

  std::int64_t layers() const { return config.n_layers; }
  std::int64_t kv_heads() const { return config.n_kv_heads; }
  bool full(std::int64_t layer, std::int64_t g) const { return trimmed[layer][g] == 0; }

  /// The head keeps the initial and the recent tokens.
  void keep_window(std::int64_t layer, std::int64_t g, const Proximity& keep);
  /// The same, and no later part changes the head.
  void trim(std::int64_t layer, std::int64_t g, const Proximity& keep);
  void trim_layer(std::int64_t layer, const Proximity& keep);
  /// The head keeps these tokens.
  void select(std::int64_t layer, std::int64_t g, std::vector<std::int64_t> tokens);
  /// Calls change(layer, KV head) for all heads that no part has trimmed.
  void for_full_heads(const std::function<void(std::int64_t, std::int64_t)>& change) const;
  /// Every head keeps copies, because what is stored is changed.
  void copy_everything();
};

/// How one part of a policy is planned. It refers to the part.
struct PartPlanner {
  Needs needs = {};                 // what it must know of the prompt
  std::function<void(Draft&)> cut;  // what it does to the plan
  /// The window of a whole layer. Absent where no window is known before the prompt is read.
  std::function<std::optional<Proximity>(std::int64_t layer)> window_of = {};
};

// The table of parts: each has its function in a file of its own.
PartPlanner planner_of(const Streaming& part);      // streaming.cpp
PartPlanner planner_of(const SimLayerKv& part);     // simlayerkv.cpp
PartPlanner planner_of(const LayerBaseline& part);  // layer_baseline.cpp
PartPlanner planner_of(const Pod& part);            // pod.cpp
PartPlanner planner_of(const DynamicKv& part);      // budgets.cpp
PartPlanner planner_of(const SnapKv& part);         // budgets.cpp
PartPlanner planner_of(const H2o& part);            // h2o.cpp
PartPlanner planner_of(const LagKv& part);          // lagkv.cpp
PartPlanner planner_of(const MiniCache& part);      // minicache.cpp
PartPlanner planner_of(const Quest& part);          // quest.cpp

/// Means over groups of so many neighbouring query heads: those of a layer, or of a KV head.
std::vector<double> group_means(const std::vector<double>& of_heads, std::int64_t heads);

/// The `best` largest of scores [positions], ascending, then begin .. n - 1.
std::vector<std::int64_t> best_and_rest(const float* scores, std::int64_t positions,
                                        std::int64_t best, std::int64_t begin, std::int64_t n);

}  // namespace kvatlas::calibrate
