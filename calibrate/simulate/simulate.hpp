// SPDX-License-Identifier: Apache-2.0
// Policies tried on one prompt: it is prefilled once with full attention, and all policies decode
// together from that cache (docs/evaluation.md).
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "analyzer/capture/engine.hpp"
#include "calibrate/simulate/plan.hpp"

namespace kvatlas::calibrate {

struct SimulateOptions {
  std::int64_t max_new = 16;
  std::vector<std::int64_t> end_tokens = {};  // generation stops behind one of them
  /// KL divergence and agreement along the full model's own continuation.
  bool compare = true;
  /// The cache is cut behind so many tokens of the prompt, before the rest (the question) is read;
  /// 0: behind the whole prompt.
  std::int64_t context_tokens = 0;
  /// Steps by which each policy is timed alone; 0: none is.
  std::int64_t time_steps = 0;
  bool positions = false;  // Outcome::positions is wanted
  /// What copies of the cache may take at a time.
  std::int64_t copy_bytes = std::int64_t{1} << 30;
};

/// What one policy did on one prompt.
struct Outcome {
  std::vector<std::int64_t> tokens;         // generated
  std::vector<std::int64_t> cache_lengths;  // [layer], at the end, of the longest KV head
  std::vector<std::int64_t> kept;           // [layer], after the cut, likewise
  /// [layer][KV head]: which tokens those are, where it was asked for.
  std::vector<std::vector<std::vector<Range>>> positions;
  double kept_bytes = 0, full_bytes = 0;  // after the cut, at 16 bits a value unless kv_bits says
  double read_bytes = 0;                  // a step, the mean
  double kl = std::numeric_limits<double>::quiet_NaN();         // nats a token, the mean
  double agreement = std::numeric_limits<double>::quiet_NaN();  // of the best token
  double skipped = std::numeric_limits<double>::quiet_NaN();    // PoD's gate
  double seconds_per_token = std::numeric_limits<double>::quiet_NaN();
  // What the policy decided, where it does.
  std::vector<std::int64_t> lazy;                 // layers trimmed
  std::vector<double> mass;                       // [layer] or [layer * KV head]
  std::vector<std::int64_t> budgets;              // [layer]
  std::vector<std::vector<std::int64_t>> lowest;  // [query head][layer]
};

struct Simulated {
  Outcome full;
  std::vector<Outcome> policies;
  double prefill_seconds = 0, decode_seconds = 0;  // decoding with all that it needs
};

/// Throws Error: usage for a policy that does not fit the model, numeric for logits that are not
/// numbers after the prefill (the prompt is named). Where a policy makes them so, its KL is NaN.
Simulated simulate(capture::Engine& engine, std::span<const std::int64_t> tokens,
                   std::span<const Policy> policies, const SimulateOptions& options,
                   const std::string& prompt_name);

}  // namespace kvatlas::calibrate
