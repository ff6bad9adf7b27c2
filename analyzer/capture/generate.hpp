// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "analyzer/capture/engine.hpp"

namespace kvatlas::capture {

struct GenerateOptions {
  std::int64_t max_new = 64;
  std::vector<std::int64_t> end_tokens;  // generation stops after one of them; empty: never
};

struct Generated {
  std::vector<std::int64_t> tokens;  // the new ones, an end token included
  std::vector<float> prompt_logits;  // after the prompt, [vocab_size]
};

struct GenerateObservers {
  std::function<void(std::size_t prompt, std::int64_t token)> token;  // as each comes
  std::function<void()> prefilled;                                    // all prompts have been read
  std::function<void(std::int64_t layers_done)> progress;             // during the prefill
};

/// Greedy continuation of every prompt. All prompts go through the layers together, so that
/// streamed weights are loaded once a token for all of them. Throws Error(numeric) if the model
/// yields NaN.
std::vector<Generated> generate(Engine& engine, std::span<const std::vector<std::int64_t>> prompts,
                                const GenerateOptions& options,
                                const GenerateObservers& observers = {});

}  // namespace kvatlas::capture
