// SPDX-License-Identifier: Apache-2.0
// Policies tried on prompts: each is prefilled once with full attention, and all policies decode
// together from its cache (docs/evaluation.md).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analyzer/capture/engine.hpp"
#include "calibrate/simulate/plan.hpp"

namespace kvatlas::calibrate {

class PromptStore;

/// Prompts decode together while a step has no more rows than these: further ones are hardly
/// cheaper each, unless weights are streamed for every step.
constexpr std::int64_t kRowsTogether = 48;

/// The tokens that ask the model to repeat what it has read.
struct RepeatRequest {
  std::int64_t before_text = 0;    // tokens of the prompt before its text: they are not repeated
  std::vector<std::int64_t> all;   // to repeat it from the beginning
  std::vector<std::int64_t> part;  // or from the tokens on that are named behind this
  std::vector<std::int64_t> end;   // where the answer begins, behind either
};

/// A part of a prompt, and what is read behind the prompt to have it repeated.
struct RepeatedPart {
  Range part;
  std::vector<std::int64_t> tokens;
};
/// The prompt's text in parts of `chunk` tokens.
std::vector<RepeatedPart> repeated_parts(std::span<const std::int64_t> prompt,
                                         const RepeatRequest& request, std::int64_t chunk);

struct SimulateOptions {
  std::int64_t max_new = 16;
  std::vector<std::int64_t> end_tokens = {};  // after one of them nothing more is generated
  /// Whether the KL divergence and the agreement are measured, at each token that the full model
  /// generates.
  bool compare = true;
  bool generate = true;  // whether policies generate by themselves; else there are no tokens
  /// If given, and nothing is compared: whether these tokens settle what is asked of them. Then
  /// nothing more is generated.
  std::function<bool(std::span<const std::int64_t> tokens)> settled = {};
  /// After how many tokens of the prompt the cache is cut, before the rest (the question) is read.
  /// 0 if it is cut after the whole prompt.
  std::int64_t context_tokens = 0;
  /// How many steps each policy is run alone for timing. 0 if it is not timed.
  std::int64_t time_steps = 0;
  bool positions = false;  // whether Outcome says which tokens are held
  /// For policies that have the prompt repeated.
  std::optional<RepeatRequest> repeat = {};
  /// How much memory the copies of parts of the cache may take at a time.
  std::int64_t copy_bytes = std::int64_t{1} << 30;
  /// Whether the memory that is taken has a limit, for which freed memory is given back at once.
  bool within_budget = false;
  /// How many prompts may be held at a time, to decode together.
  std::size_t prompts_together = 1;
  /// Where prompts that were read are kept and found again, if policies are tried on them in
  /// several rounds. It changes no result.
  PromptStore* store = nullptr;
};

/// What is held once so many tokens were read, of the prompt and behind it. What is read later is
/// held too, until another list says otherwise.
struct HeldAt {
  std::int64_t read = 0;
  HeldPositions positions;
};

/// What one policy did on one prompt.
struct Outcome {
  std::vector<std::int64_t> tokens;         // generated
  std::vector<std::int64_t> cache_lengths;  // [layer], at the end: tokens of the longest KV head
  std::vector<std::int64_t> kept;           // [layer], after the cut: likewise
  // If SimulateOptions::positions is set: which tokens were kept after the cut, which were held at
  // the end, and between them what was held whenever more was cut, at most 256 times.
  HeldAt cut;
  HeldPositions end_positions;
  std::vector<HeldAt> later_cuts;
  double kept_bytes = 0, full_bytes = 0;  // after the cut, at 16 bits a value or at kv_bits
  /// [generated token that the model has read]: what was held while it was read.
  std::vector<double> held_bytes = {};
  double read_bytes = 0;   // the mean of a decode step
  double prompt_read = 1;  // share of the prompt's pairs of a query and a key that were attended to
  std::int64_t compared = 0;  // tokens beside the full model's; 0 also if its answer has but one
  double kl = std::numeric_limits<double>::quiet_NaN();         // mean nats of those tokens
  double agreement = std::numeric_limits<double>::quiet_NaN();  // share of equal best tokens
  double skipped = std::numeric_limits<double>::quiet_NaN();    // share of gates that skipped (PoD)
  double seconds_per_token = std::numeric_limits<double>::quiet_NaN();
  // What the policy decided on this prompt. Empty where it has no such decision.
  std::vector<std::int64_t> lazy;     // the layers that were trimmed
  std::vector<double> mass;           // [layer] or [layer * KV head]
  std::vector<std::int64_t> budgets;  // [layer]
  /// [query head][layer] of PoD, [KV head][layer] of shared values.
  std::vector<std::vector<std::int64_t>> lowest;
};

struct Simulated {
  Outcome full;
  std::vector<Outcome> policies;
  /// Reading the prompt, or fetching what reading it gave; decoding, with the planning.
  double prefill_seconds = 0, decode_seconds = 0;
};

/// A prompt that policies are tried on. What it refers to must outlive the call.
struct SimulatedPrompt {
  std::span<const std::int64_t> tokens;
  const SimulateOptions& options;
  const std::string& name;  // for messages
};

/// [prompt]. All prompts are read, and held until their policies are done; those with few policies
/// decode together. Error(usage) for a policy that does not fit the model. Error(numeric), which
/// names the prompt, if the logits of the prefill are not numbers. If only a policy makes them so,
/// its KL is NaN.
std::vector<Simulated> simulate(capture::Engine& engine, std::span<const SimulatedPrompt> prompts,
                                std::span<const Policy> policies);

}  // namespace kvatlas::calibrate
