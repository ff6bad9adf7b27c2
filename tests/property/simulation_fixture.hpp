// SPDX-License-Identifier: Apache-2.0
// The tiny checkpoints, and prompts of random ids prefilled on them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "analyzer/capture/device.hpp"
#include "analyzer/capture/engine.hpp"
#include "calibrate/simulate/continuations.hpp"
#include "calibrate/simulate/plan.hpp"
#include "calibrate/simulate/simulate.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::calibrate {

/// Grouped queries; windows of 32 tokens in every layer; windows in some layers and soft caps, or
/// normed queries and keys; normed ones without windows; sinks, windows and experts; layers without
/// attention between.
inline const std::vector<std::string> kCheckpoints = {"llama3_gqa_f32",
                                                      "mistral_sliding_f32",
                                                      "gemma2_f32",
                                                      "gemma3_text_f32",
                                                      "qwen3_qknorm_f32",
                                                      "gpt_oss",
                                                      "lfm2"};

inline std::vector<std::int64_t> random_ids(std::int64_t n, std::uint64_t seed) {
  testing_support::Random random(seed);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < n; ++i) ids.push_back(random.integer(0, 255));
  return ids;
}

inline std::vector<Policy> policies(const std::vector<std::string>& texts) {
  std::vector<Policy> out;
  for (const auto& text : texts) out.push_back(parse_policy(text));
  return out;
}

/// What stands in for words that ask to repeat a prompt, behind whose first 3 tokens its text
/// begins.
inline const RepeatRequest kRepeat = {3, {7, 8}, {9, 10, 11}, {12}};

/// A prompt whose cache can be cut, with what policies need to know of it.
struct Prefilled {
  capture::Sequence sequence;
  PromptFacts facts;
  std::vector<float> logits;  // behind the prompt
};

class OnCheckpoint : public testing::TestWithParam<std::string> {
 protected:
  OnCheckpoint() { capture::use_threads(1); }

  capture::Engine engine{
      model::ModelFile::open(testing_support::golden_checkpoint(GetParam()).string()), {}};
  const model::Config& config = engine.model().config();
  /// Float32 rounding, which gemma2's random weights amplify (tests/golden/forward_test.cpp).
  const float logit_error = GetParam() == "gemma2_f32" ? 1e-2f : 1e-3f;

  /// The policies on one prompt alone.
  Simulated run(const std::vector<std::int64_t>& ids, const std::vector<Policy>& tried,
                SimulateOptions options = {}) {
    options.repeat = kRepeat;
    const std::string name = "the prompt";
    const SimulatedPrompt one{ids, options, name};
    return std::move(simulate(engine, {&one, 1}, tried).front());
  }

  void step(Continuations& of, std::span<const std::size_t> which,
            std::span<const std::int64_t> tokens, std::int64_t position,
            const std::function<void(std::size_t row, std::span<const float> logits)>& logits) {
    const auto next = of.next_step(which, tokens, position, logits);
    engine.run_continuations({&next, 1});
    of.took_step();
  }

  /// As the simulation does it: the prompt, then the step that some policies decide by, of the
  /// token that is given or of the model's own.
  Prefilled prefill(const std::vector<std::int64_t>& ids, const std::vector<Policy>& for_policies,
                    std::optional<std::int64_t> first = {}) {
    Prefilled out{engine.sequence(),
                  {needs_of(for_policies), config, static_cast<std::int64_t>(ids.size())},
                  {}};
    const auto run = [&](const std::vector<std::int64_t>& tokens,
                         const capture::EngineObservers& observers) {
      const capture::Engine::Step step{&out.sequence, tokens};
      engine.run({&step, 1}, capture::Logits::last, observers);
    };
    run(ids,
        {.attention = [&](const auto& in) { out.facts.prefill(in); },
         .queries = [&](auto layer, auto, const auto& query) { out.facts.queries(layer, query); },
         .value_outputs = [&](auto layer, auto,
                              const auto& outputs) { out.facts.value_outputs(layer, outputs); }});
    out.logits = out.sequence.logits();
    for (const auto& repetition : out.facts.needs().repetitions)
      for (const RepeatedPart& repeated : repeated_parts(ids, kRepeat, repetition.chunk)) {
        capture::Engine::Step step{&out.sequence, repeated.tokens};
        step.forgotten = true;
        engine.run({&step, 1}, capture::Logits::none, {.attention = [&](const auto& in) {
                     out.facts.repeated(repetition, repeated.part, in);
                   }});
      }
    run({first.value_or(capture::argmax(out.logits))},
        {.attention = [&](const auto& in) { out.facts.first_step(in); }});
    return out;
  }
};

}  // namespace kvatlas::calibrate
