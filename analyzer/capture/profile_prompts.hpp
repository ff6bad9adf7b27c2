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
  std::int64_t seeds =
      0;  // texts of each task; each stands at every length and depth; 0: as many as depths
  std::int64_t seed = 0;  // the seed of the first of them; a command may have it chosen if below 0
  bool quick = false;
  bool conversation = false;     // turns of one context follow each other (data::Prompt::follows)
  std::int64_t most_tokens = 0;  // longer prompts lose their middle; 0: see truncate_prompt()
  std::int64_t new_tokens = 0;   // that are to follow a prompt; 0: as many as its answer needs
};

/// Adds the options for generated prompts, and --prompt and --prompts for the user's own prompts.
void add_prompt_options(CLI::App& command, PromptOptions& options, RunOptions& run);

/// Cuts so many tokens out of the middle of a prompt that at most `most_tokens` stay; if that is 0,
/// as many as the model's context leaves to the new tokens, or to the answer if these are 0.
void truncate_prompt(ProfilePrompt& prompt, std::int64_t most_tokens, std::int64_t new_tokens,
                     const model::Config& config);

/// The prompts as token ids, truncated, and a canonical JSON object that says where they came from.
/// Standard lengths beyond the model's context are left out.
struct PlannedPrompts {
  std::vector<ProfilePrompt> prompts;
  std::string description;
};
PlannedPrompts plan_prompts(const PromptOptions& options, const RunOptions& run,
                            const model::ModelFile& model);

}  // namespace kvatlas::capture
