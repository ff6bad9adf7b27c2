// SPDX-License-Identifier: Apache-2.0
// A policy and the facts of a prompt give a plan, which says what every KV head keeps of the
// prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "analyzer/capture/engine.hpp"
#include "calibrate/policy/policy.hpp"

namespace kvatlas::calibrate {

/// The tokens from `begin` up to, but without, `end`.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t length() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// [layer][KV head]: the positions of tokens, ascending.
using HeldPositions = std::vector<std::vector<std::vector<Range>>>;

/// What one KV head of one layer keeps of the prompt. It has ranges, which are read in place from
/// the prompt's cache, or single tokens, which are copied out of it, or such tokens for each of its
/// query heads.
struct HeadCut {
  std::vector<Range> ranges;
  std::vector<std::int64_t> tokens;  // ascending
  /// [query head of the KV head]: likewise. Each stores its keys and values for itself, also those
  /// that are generated.
  std::vector<std::vector<std::int64_t>> by_query_head;
  std::optional<Proximity> window;  // set if what is kept is a window
  bool rolling = false;             // the window also moves along while decoding
  /// [token that is kept]: the attention that it took so far, where a part goes on adding to it.
  std::vector<float> mass;
  bool operator==(const HeadCut&) const = default;

  std::int64_t copied() const;  // how many tokens are copied, for all query heads together
};

struct MeanQueries;

/// What a policy does to one prompt. Two policies with equal plans generate the same, so that only
/// one of them needs to be run.
struct Plan {
  /// How many decode steps see the full cache before it is cut: 1 if the policy decides by the
  /// first step, else 0.
  std::int64_t delay = 0;
  std::vector<std::vector<HeadCut>> heads;  // [layer][KV head]
  std::vector<KvFormats> formats;           // [layer]; empty: 16 bits everywhere
  std::optional<Fp8Scales> scales;          // of layers in FP8
  std::int64_t kv_residual = 0;             // as in Policy
  bool fp8_queries = false;                 // as in Precision
  // These go on cutting while decoding, in the heads of `cut_heads`: [layer][KV head], 1 for each.
  std::optional<LagKv> lag;
  std::optional<Decoding> decoding;
  LazyHeads cut_heads;
  /// [layer]: what tokens are scored by, if it is the prompt's mean query.
  std::shared_ptr<const std::vector<MeanQueries>> mean_queries;
  std::optional<Pod> pod;  // its blocks are known: `lowest` is filled
  std::optional<MiniCache> minicache;
  std::optional<ShareValues> shared_values;  // `lowest` is filled
  std::optional<Quest> quest;
  bool operator==(const Plan&) const = default;
  /// What a head's keys or values are divided by before they are rounded.
  double scale_of(HeadScales Fp8Scales::*side, std::int64_t layer, std::int64_t kv_head) const {
    return scales ? scale_in((*scales).*side, layer, kv_head) : 1;
  }
  KvFormats formats_of(std::int64_t layer) const {
    return formats.empty() ? KvFormats{} : formats[static_cast<std::size_t>(layer)];
  }

  // For reports: what the policy decided on this prompt. Empty where it has no such decision.
  std::vector<double> mass;  // [layer], or [layer * KV head] if KV heads are decided one by one
  std::vector<std::int64_t> lazy;     // the layers that were trimmed as a whole
  std::vector<std::int64_t> budgets;  // [layer], without the tokens of the window
};

/// What policies must know of a prompt beside its cache.
struct Needs {
  std::int64_t rows = 0;       // how many of the last attention rows of every layer
  bool columns = false;        // the sums of all attention columns
  bool value_outputs = false;  // how much the values of tokens give to the output
  bool mean_queries = false;   // the mean of the queries before RoPE
  /// The queries of so many of the last tokens, and if there are any, that of the first decode
  /// step.
  std::int64_t last_queries = 0;
  /// Mean and covariance of the queries before RoPE, without those of so many first tokens.
  std::vector<std::int64_t> queries_without_first = {};
  /// The greatest attention on each token while the prompt is repeated.
  std::vector<Repetition> repetitions = {};
  /// Attention mass on these tokens: of the last rows of the prompt (so many), and of the first
  /// decode step.
  std::vector<std::pair<Proximity, std::int64_t>> prefill_masses = {};
  std::vector<Proximity> decode_masses = {};
};
Needs needs_of(std::span<const Policy> policies);

/// What the model showed of a prompt while it ran: all that some policies need.
class PromptFacts {
 public:
  PromptFacts(Needs needs, const model::Config& config, std::int64_t n_tokens);
  ~PromptFacts();
  PromptFacts(PromptFacts&&) noexcept;

  /// Called for every layer, in order: during the prefill, and during the first decode step. Those
  /// of queries_without_first and value_outputs are called before that of the prefill, if they are
  /// needed.
  void queries(std::int64_t layer, const AnyView<3>& query);
  void value_outputs(std::int64_t layer, const AnyView<2>& outputs);
  void prefill(const capture::AttentionInputs& in);
  void first_step(const capture::AttentionInputs& in);
  /// The same while this part of the prompt is repeated behind it, for one of needs().repetitions.
  void repeated(const Repetition& repetition, Range part, const capture::AttentionInputs& in);

  const Needs& needs() const;

  struct State;
  const State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

/// The sequence holds the prompt and, if the policy decides by the first decode step, one token
/// more. Error(usage) for a policy that cannot be applied to this model or prompt.
Plan make_plan(const Policy& policy, const PromptFacts& facts, const capture::Sequence& prompt,
               const model::Config& config);

/// Whether the policy decides by the first decode step.
bool decides_while_decoding(const Policy& policy);

/// The full cache of n tokens: [layer][KV head].
std::vector<std::vector<HeadCut>> keep_all(const model::Config& config, std::int64_t n);

/// Rounds the keys and values of a layer, [KV head, token, head_dim], in place.
void round_layer(const KvFormats& formats, const std::optional<Fp8Scales>& scales,
                 std::int64_t layer, const AnyView<3>& key, const AnyView<3>& value);
/// Rounds queries, [n_heads, n, head_dim], to E4M3, in place, if the layer is in a floating-point
/// format.
void round_queries(const KvFormats& formats, const std::optional<Fp8Scales>& scales,
                   std::int64_t layer, const AnyView<3>& query);

using LayerWindows = std::vector<std::optional<Proximity>>;  // [layer], empty where it has none
/// The windows of the layers, for a policy whose windows mask the prefill too. Error(usage) if a
/// part of it is no window of whole layers, or only known once the prompt is read.
LayerWindows prefill_windows(const Policy& policy, const model::Config& config);

}  // namespace kvatlas::calibrate
