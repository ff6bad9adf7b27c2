// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "analyzer/capture/profile_run.hpp"
#include "analyzer/capture/run_options.hpp"
#include "calibrate/search/evaluate.hpp"

namespace kvatlas::calibrate {

struct QuestionOptions {
  std::int64_t max_new = 0;  // tokens generated; 0 means as many as the answers of the task need
  bool compress_context = false;
};

/// Makes questions of prompts. Those of a conversation have their cache cut behind its first turn.
/// Error(usage) for --compress-context if a prompt's context cannot be told from its question.
std::vector<Question> make_questions(std::vector<capture::ProfilePrompt> prompts,
                                     const QuestionOptions& options, const capture::RunOptions& run,
                                     const model::ModelFile& model);

/// Divides the memory for these questions between the engine, the copies of caches and what is held
/// of each prompt's attention, and says how many prompts may be held at a time.
void set_memory(capture::EngineOptions& engine, const std::vector<Question>& questions,
                const model::ModelFile& model, SimulateOptions& simulate);

}  // namespace kvatlas::calibrate
