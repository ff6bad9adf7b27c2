// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "analyzer/capture/engine.hpp"
#include "calibrate/rules/rules.hpp"
#include "calibrate/simulate/plan.hpp"

namespace kvatlas::calibrate {

/// What the model's caches take.
CacheShape cache_shape(const model::Config& config);

/// Bytes of keys and values in a step, at 16 bits or at the plan's kv_bits.
struct StepBytes {
  double held = 0;  // before what is cut behind the step
  double read = 0;
};

/// Continuations of one prompt that decode together, each over its own part of the prompt's cache.
/// Ranges of the prompt are read where they lie, so that only what a plan selects or changes is
/// copied.
class Continuations {
 public:
  /// The first `n_tokens` of the sequence are the prompt that is cut; it may hold one token more.
  /// No continuation is run for more than `steps` steps.
  Continuations(capture::Engine& engine, const capture::Sequence& prompt, std::int64_t n_tokens,
                std::int64_t steps);
  ~Continuations();

  /// Makes room for these plans, and if `forks` for a fork of each, before they are added. Without
  /// it the arrays grow while plans are added, which takes longer.
  void reserve(std::span<const Plan* const> plans, bool forks);
  /// Begins a continuation and gives its number. Its first position is behind the prompt and, if
  /// the plan has a delay, behind the first step.
  std::size_t add(const Plan& plan);
  /// Begins one that has seen the same tokens and holds the same so far.
  std::size_t fork(std::size_t number);
  /// The bytes that a continuation of the plan and its fork will take.
  std::int64_t bytes_of(const Plan& plan) const;

  /// One token of each continuation in `which`, all at `position`, for Engine::run_continuations().
  /// The logits of each are handed over, of the first one first. When the step has run, took_step()
  /// has to be called before the next one.
  capture::ContinuationStep next_step(
      std::span<const std::size_t> which, std::span<const std::int64_t> tokens,
      std::int64_t position,
      std::function<void(std::size_t row, std::span<const float> logits)> logits);
  void took_step();

  StepBytes last_step(std::size_t number) const;
  /// [layer]: the tokens that the longest KV head holds.
  std::vector<std::int64_t> lengths(std::size_t number) const;
  /// What it holds, in bytes as in StepBytes.
  double stored_bytes(std::size_t number) const;
  /// What it holds; where query heads hold tokens of their own, what any of them holds.
  HeldPositions positions(std::size_t number) const;
  /// How often PoD's gate made a head skip the distant tokens so far, as a share of the heads and
  /// layers that borrow keys. NaN if there was no gate.
  double skipped(std::size_t number) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvatlas::calibrate
