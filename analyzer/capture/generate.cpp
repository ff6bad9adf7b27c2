// SPDX-License-Identifier: Apache-2.0
#include "analyzer/capture/generate.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/interrupt.hpp"

namespace kvatlas::capture {
std::vector<Generated> generate(Engine& engine, std::span<const std::vector<std::int64_t>> prompts,
                                const GenerateOptions& options,
                                const GenerateObservers& observers) {
  std::vector<Sequence> sequences;
  std::vector<Engine::Step> steps;
  for (std::size_t i = 0; i < prompts.size(); ++i) sequences.push_back(engine.sequence());
  for (std::size_t i = 0; i < prompts.size(); ++i) steps.push_back({&sequences[i], prompts[i]});
  engine.run(steps, Logits::last, {.progress = observers.progress});
  std::vector<Generated> results(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) results[i].prompt_logits = sequences[i].logits();
  if (observers.prefilled) observers.prefilled();

  std::vector<bool> ended(prompts.size(), false);
  for (std::int64_t round = 0; round < options.max_new; ++round) {
    stop_if_interrupted();
    steps.clear();
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      if (ended[i]) continue;
      require_numbers(sequences[i], str("prompt ", i + 1));
      const std::int64_t token = argmax(sequences[i].logits());
      results[i].tokens.push_back(token);
      if (observers.token) observers.token(i, token);
      ended[i] = std::find(options.end_tokens.begin(), options.end_tokens.end(), token) !=
                 options.end_tokens.end();
      if (!ended[i] && round + 1 < options.max_new) steps.push_back({&sequences[i], {token}});
    }
    if (steps.empty()) break;
    engine.run(steps, Logits::last);
  }
  return results;
}

}  // namespace kvatlas::capture
