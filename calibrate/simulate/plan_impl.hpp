// SPDX-License-Identifier: Apache-2.0
// What the files of the parts share: the facts of a prompt, the draft of a plan, and the table of
// the parts' planners.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "analyzer/config/rope.hpp"
#include "calibrate/simulate/held_heads_impl.hpp"
#include "calibrate/simulate/plan.hpp"

namespace kvatlas::calibrate {

/// How the queries of a layer before RoPE are spread.
struct QuerySpread {
  at::Tensor mean;        // [n_heads, head_dim] float32
  at::Tensor covariance;  // [n_heads, head_dim, head_dim] float32
};

/// The last queries of a layer, [n_heads, rows, head_dim]: of the prompt, and of the first step.
struct LastQueries {
  Scoring scoring;
  at::Tensor prompt, step;
};

struct PromptFacts::State {
  Needs needs;
  const model::Config& config;
  std::int64_t n;                              // tokens of the prompt
  at::Tensor rows = {};                        // [n_layers, n_heads, needs.rows, n], float32
  std::vector<at::Tensor> columns = {};        // [n_layers] of [n_kv_heads, n], on the host
  std::vector<at::Tensor> value_outputs = {};  // [n_layers] of [n_kv_heads, n], float32
  std::vector<std::vector<QuerySpread>> queries = {};  // [needs.queries_without_first][layer]
  std::shared_ptr<std::vector<MeanQueries>> mean_queries = {};  // [n_layers], if needed
  std::vector<std::vector<at::Tensor>> repeated = {};  // [needs.repetitions][layer] [kv head, n]
  std::vector<LastQueries> last_queries = {};          // [n_layers], if they are needed
  std::vector<std::vector<double>> prefill_mass = {};  // [needs.prefill_masses][layer * head]
  std::vector<std::vector<double>> decode_mass = {};   // [needs.decode_masses][layer * head]

  const std::vector<double>& prefill_mass_of(const Proximity& keep, std::int64_t w_last) const;
  const std::vector<double>& decode_mass_of(const Proximity& keep) const;
  const QuerySpread& queries_of(std::int64_t without_first, std::int64_t layer) const;
  /// [layer] of [n_kv_heads, n] float32: 0 for what is not repeated.
  const std::vector<at::Tensor>& repeated_of(const Repetition& repetition) const;
};

/// A plan while it is made. It begins with the full cache, and the parts of the policy change it
/// one after the other.
struct Draft {
  const Policy& policy;
  const PromptFacts::State& facts;
  const capture::Sequence& prompt;
  const model::Config& config;
  /// How many tokens are cut: the prompt's and, if the policy decides by it, the first step's.
  std::int64_t n = 0;
  Plan plan = {};
  /// [layer][KV head], 1 where a part has trimmed. Later parts do not change those heads.
  LazyHeads trimmed = {};

  std::int64_t layers() const { return config.n_layers; }
  std::int64_t kv_heads() const { return config.n_kv_heads; }
  bool full(std::int64_t layer, std::int64_t g) const { return trimmed[layer][g] == 0; }

  /// Lets the head keep only its initial and its recent tokens.
  void keep_window(std::int64_t layer, std::int64_t g, const Proximity& of_part);
  /// Does the same and marks the head, or the layer, as trimmed.
  void trim(std::int64_t layer, std::int64_t g, const Proximity& keep);
  void trim_layer(std::int64_t layer, const Proximity& keep);
  /// Lets the head keep only these tokens, which ascend.
  void select(std::int64_t layer, std::int64_t g, std::vector<std::int64_t> tokens);
  /// Lets each query head of the KV head keep tokens of its own, which ascend.
  void select_by_query_head(std::int64_t layer, std::int64_t g,
                            std::vector<std::vector<std::int64_t>> tokens);
  /// Lets the heads of the layer that no part has trimmed keep only these tokens, which ascend: one
  /// list for all heads, one for each KV head, or one for each query head.
  void select_in_layer(std::int64_t layer, const std::vector<std::vector<std::int64_t>>& tokens);
  /// Calls change(layer, KV head) for every head that no part has trimmed.
  void for_full_heads(const std::function<void(std::int64_t, std::int64_t)>& change) const;
  /// [layer][KV head]: 1 for those, in the layers from this one on.
  LazyHeads full_heads(std::int64_t from_layer = 0) const;
  /// Lets every head of the layer keep copies of its tokens, so that what is stored may be changed.
  void copy_layer(std::int64_t layer);
};

/// How one part of a policy is planned. It refers to the part, which must outlive it.
struct PartPlanner {
  Needs needs = {};                 // what the part must know of the prompt
  std::function<void(Draft&)> cut;  // what the part does to the plan
  /// The window of a whole layer, if it has one. Left empty by parts that are no windows, or whose
  /// windows are only known once the prompt is read.
  std::function<std::optional<Proximity>(std::int64_t layer)> window_of = {};
};

// The table of parts. Each part has its planner in a file of its own.
PartPlanner planner_of(const Streaming& part);          // streaming.cpp
PartPlanner planner_of(const SimLayerKv& part);         // simlayerkv.cpp
PartPlanner planner_of(const LayerBaseline& part);      // layer_baseline.cpp
PartPlanner planner_of(const Pod& part);                // pod.cpp
PartPlanner planner_of(const DynamicKv& part);          // budgets.cpp
PartPlanner planner_of(const SnapKv& part);             // budgets.cpp
PartPlanner planner_of(const AdaKv& part);              // adakv.cpp
PartPlanner planner_of(const HeadKv& part);             // adakv.cpp
PartPlanner planner_of(const CriticalKv& part);         // criticalkv.cpp
PartPlanner planner_of(const ChunkKv& part);            // chunkkv.cpp
PartPlanner planner_of(const H2o& part);                // h2o.cpp
PartPlanner planner_of(const Tova& part);               // tova.cpp
PartPlanner planner_of(const KeyDiff& part);            // keydiff.cpp
PartPlanner planner_of(const ExpectedAttention& part);  // expected_attention.cpp
PartPlanner planner_of(const KvZip& part);              // kvzip.cpp
PartPlanner planner_of(const LagKv& part);              // lagkv.cpp
PartPlanner planner_of(const Decoding& part);           // decoding.cpp
PartPlanner planner_of(const MiniCache& part);          // minicache.cpp
PartPlanner planner_of(const ShareValues& part);        // share_values.cpp
PartPlanner planner_of(const Quest& part);              // quest.cpp
PartPlanner planner_of(const Precision& part);          // plan.cpp
PartPlanner planner_of(const VerticalSlash& part);      // vertical_slash.cpp

/// The means over groups of `heads` neighbouring query heads, such as those of a layer or of a KV
/// head.
std::vector<double> group_means(const std::vector<double>& of_heads, std::int64_t heads);

/// The positions of the `best` largest of the scores [positions], ascending, and behind them the
/// positions from `begin` to n - 1.
std::vector<std::int64_t> best_and_rest(const float* scores, std::int64_t positions,
                                        std::int64_t best, std::int64_t begin, std::int64_t n);
/// The same for each row of scores, [rows, positions] on the host: behind the best come the
/// positions that have no score.
std::vector<std::vector<std::int64_t>> best_of_rows(const at::Tensor& scores, std::int64_t best,
                                                    std::int64_t n);

/// Of several rows of `positions` scores each, the `best` largest of all together: [row] their
/// positions, ascending. Of equal ones the first.
std::vector<std::vector<std::int64_t>> best_together(const std::vector<float>& scores,
                                                     std::int64_t positions, std::int64_t best);

/// Scores of the tokens before the window by its attention rows, the last of [heads, rows, tokens]:
/// [groups, positions].
at::Tensor window_scores(const WindowBudget& select, std::int64_t groups, const at::Tensor& rows);
/// Scores of a layer's tokens before the window, [groups, positions]: for so many groups of
/// neighbouring query heads.
at::Tensor window_scores(const WindowBudget& select, std::int64_t groups, const Draft& draft,
                         std::int64_t layer);
/// The same for each KV head, or each query head, as the part keeps tokens.
at::Tensor window_scores(const WindowBudget& select, const Draft& draft, std::int64_t layer);
/// RoPE of a layer that has it, in a text of so many tokens.
model::RopeFrequencies rope_of_layer(const model::Config& config, std::int64_t layer,
                                     std::int64_t tokens);
/// How many pairs of a layer's channels RoPE turns: channel i and channel i + so many.
std::int64_t turning_pairs(const model::Config& config, std::int64_t layer);

/// Error(usage) for a model whose queries cannot be turned to another place once they are averaged.
void require_turning_queries(const Draft& draft);

/// Scores [rows, positions] with those of the window behind them: the best of all, and 1 more.
at::Tensor with_window(const at::Tensor& scores, std::int64_t window);

/// TOVA's scores of all tokens but the last, [1, positions], by rows of attention [heads, rows,
/// tokens].
at::Tensor last_row_scores(const at::Tensor& rows);
/// KeyDiff's scores, [heads, tokens], of keys [heads, tokens, head_dim].
at::Tensor unlike_mean_scores(const at::Tensor& keys);

/// The greatest attention that each token of this part of a prompt, and of each KV head, gets of
/// the tokens that are read behind the prompt: [n_kv_heads, tokens of the part] float32. These
/// attend to the prompt's first `sink` tokens, the part and themselves, as far as the layer lets
/// them.
at::Tensor greatest_attention(const capture::AttentionInputs& behind, Range part,
                              std::int64_t sink);

/// Scores of a layer's tokens, [rows, positions]: one row for all heads, or one for each KV head or
/// each query head. The tokens of the prompt behind these positions have no score and are kept.
using LayerScores = std::function<at::Tensor(const Draft&, std::int64_t layer)>;
/// The planner of a part that keeps `budget` tokens of the prompt, those with the best scores.
PartPlanner best_scored(Needs needs, std::int64_t budget, LayerScores scores_of);

/// Rows of two layers with one direction, which lies t of the way from the lower layer's to the
/// upper layer's, and their own lengths. Where the two are nearly parallel, the direction is the
/// mean's; where they are opposite, the nearer one's; where one has no length, the other's.
std::pair<at::Tensor, at::Tensor> merged_directions(const at::Tensor& below,
                                                    const at::Tensor& above, double t);

}  // namespace kvatlas::calibrate
