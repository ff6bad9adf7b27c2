// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "analyzer/capture/engine.hpp"
#include "calibrate/simulate/plan.hpp"

namespace kvatlas::calibrate {

/// What one continuation holds and reads.
struct CacheUse {
  std::vector<std::int64_t> lengths;  // [layer], tokens held, the longest KV head's
  double stored_bytes = 0;            // keys and values, at 16 bits or as the plan says
  double read_bytes = 0;              // by the last step
};

/// Continuations of one prompt that decode together, each over its own part of the prompt's cache.
/// Ranges of the prompt are read where they lie, so that only what a plan selects or changes is
/// copied.
class Continuations {
 public:
  /// The prompt's first `n_tokens` are what is cut; the sequence may hold one more. `steps`: the
  /// most that any of them is run.
  Continuations(capture::Engine& engine, const capture::Sequence& prompt, std::int64_t n_tokens,
                std::int64_t steps);
  ~Continuations();

  /// Makes room for plans, and for a fork of each, before they are added: growing later costs more.
  void reserve(std::span<const Plan* const> plans, bool forks);
  /// Begins one: for a plan with a delay at the position behind the first step. Gives its number.
  std::size_t add(const Plan& plan);
  /// One more that has seen and held the same so far.
  std::size_t fork(std::size_t number);
  /// Bytes that a plan and its fork will take here.
  std::int64_t bytes_of(const Plan& plan) const;

  /// Runs one token of each of `which`, all at `position`; rows of logits come in that order.
  void step(std::span<const std::size_t> which, std::span<const std::int64_t> tokens,
            std::int64_t position,
            const std::function<void(std::size_t row, std::span<const float> logits)>& logits);

  CacheUse use(std::size_t number) const;
  /// PoD's gate: the share of (head, layer) above the lowest of its block that skipped the distant
  /// part so far; NaN where there is none.
  double skipped(std::size_t number) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kvatlas::calibrate
