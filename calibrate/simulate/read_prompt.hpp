// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "analyzer/capture/engine.hpp"
#include "calibrate/simulate/plan.hpp"

namespace kvatlas::calibrate {

/// A prompt that the model has read, and after it the first decode step, by which some policies
/// decide. It gives again what policies must know of the prompt.
class ReadPrompt {
 public:
  /// Of a prompt of `tokens` tokens that is to be read; for the facts of other policies the queries
  /// of its last `rows` tokens are kept.
  ReadPrompt(capture::Sequence empty, std::int64_t tokens, std::int64_t rows);
  ~ReadPrompt();
  ReadPrompt(ReadPrompt&&) noexcept;

  capture::Sequence sequence;
  std::vector<float> logits;  // behind the prompt

  /// Called for every layer, in order: while the prompt is read, and during the first decode step.
  void prefill(const capture::AttentionInputs& in);
  void first_step(const capture::AttentionInputs& in);

  /// Whether all that is needed can be told again.
  bool tells(const Needs& needs) const;
  /// Shows `facts` what the layers showed while they ran.
  void show(PromptFacts& facts) const;

  std::int64_t bytes() const;
  void save(const capture::WriteBytes& write) const;
  static ReadPrompt load(const capture::Engine& engine, const capture::ReadBytes& read);

 private:
  struct State;
  explicit ReadPrompt(capture::Sequence loaded, std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Of how many of a prompt's last tokens queries must be kept to tell so much again.
std::int64_t rows_to_keep(const Needs& needs);

}  // namespace kvatlas::calibrate
