// SPDX-License-Identifier: Apache-2.0
// From a policy and what a prompt's prefill showed to what every KV head keeps of the prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "analyzer/capture/engine.hpp"
#include "calibrate/policy/policy.hpp"

namespace kvatlas::calibrate {

/// Tokens begin .. end - 1.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t length() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// What one KV head of one layer keeps of the prompt: either ranges of it, which are read where the
/// prompt's cache lies, or single tokens, which are copied.
struct HeadCut {
  std::vector<Range> ranges;
  std::vector<std::int64_t> tokens;  // ascending
  std::optional<Proximity> window;   // that this is; none: chosen otherwise
  bool rolling = false;              // while decoding too, nothing but the window is seen
  bool operator==(const HeadCut&) const = default;
};

/// What a policy does to one prompt. Equal plans decode alike.
struct Plan {
  /// Decode steps that see the full cache before the cut: 1 where the first one decides.
  std::int64_t delay = 0;
  std::vector<std::vector<HeadCut>> heads;  // [layer][KV head]
  int kv_bits = 16;
  std::optional<LagKv> lag;  // goes on cutting while decoding, where `lag_heads` says
  LazyHeads lag_heads;       // [layer][KV head]
  std::optional<Pod> pod;    // with `lowest`
  std::optional<MiniCache> minicache;
  std::optional<Quest> quest;
  bool operator==(const Plan&) const = default;

  // What was decided, for reports: of the policies that decide it.
  std::vector<double> mass;           // [layer], or [layer * KV head]
  std::vector<std::int64_t> lazy;     // layers trimmed
  std::vector<std::int64_t> budgets;  // [layer], the window not counted
};

/// What the policies need of a prompt beside its cache.
struct Needs {
  std::int64_t rows = 0;  // last attention rows of every layer
  bool columns = false;   // sums of all attention columns
  std::vector<std::pair<Proximity, std::int64_t>> prefill_masses;  // with w_last
  std::vector<Proximity> decode_masses;
};
Needs needs_of(std::span<const Policy> policies);

/// What a prefill showed of a prompt. Made by PromptFacts::observe while the model runs.
class PromptFacts {
 public:
  PromptFacts(Needs needs, const model::Config& config, std::int64_t n_tokens);
  ~PromptFacts();
  PromptFacts(PromptFacts&&) noexcept;

  /// For every layer of the prefill, and of the first decode step.
  void prefill(const capture::AttentionInputs& in);
  void first_step(const capture::AttentionInputs& in);

  struct State;
  const State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

/// Error(usage) for a policy that cannot be applied to this model or prompt. The sequence holds the
/// prompt, and for a plan with a delay its first generated token.
Plan make_plan(const Policy& policy, const PromptFacts& facts, const capture::Sequence& prompt,
               const model::Config& config);

/// Whether make_plan needs the first decode step.
bool decides_while_decoding(const Policy& policy);

/// Every head keeps the first n tokens: [layer][KV head].
std::vector<std::vector<HeadCut>> keep_all(const model::Config& config, std::int64_t n);

using LayerWindows = std::vector<std::optional<Proximity>>;  // [layer]
/// The windows of a policy whose windows mask the prefill too. Error(usage) where they are not
/// windows of whole layers that are known before the prompt is read.
LayerWindows prefill_windows(const Policy& policy, const model::Config& config);

}  // namespace kvatlas::calibrate
