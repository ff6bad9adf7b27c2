// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analyzer/capture/profile_run.hpp"
#include "analyzer/capture/run_options.hpp"

namespace CLI {
class App;
}

namespace kvatlas::capture {

/// Which prompts a profile is taken of: generated ones, unless RunOptions names some.
struct PromptOptions {
  std::vector<std::string> tasks;
  std::vector<std::int64_t> lengths;
  std::vector<double> depths;
  std::int64_t seeds = 1;  // prompts of each task, length and depth
  std::int64_t seed = 0;   // the seed of the first of them
  bool quick = false;
};

/// Adds the options for generated prompts, and --prompt and --prompts for the user's own prompts.
void add_prompt_options(CLI::App& command, PromptOptions& options, RunOptions& run);

/// The prompts as token ids, and a canonical JSON object that says where they came from. Standard
/// lengths beyond the model's context are left out.
struct PlannedPrompts {
  std::vector<ProfilePrompt> prompts;
  std::string description;
};
PlannedPrompts plan_prompts(const PromptOptions& options, const RunOptions& run,
                            const model::ModelFile& model);

}  // namespace kvatlas::capture
