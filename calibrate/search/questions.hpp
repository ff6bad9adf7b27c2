// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "analyzer/capture/profile_run.hpp"
#include "analyzer/capture/run_options.hpp"
#include "calibrate/search/evaluate.hpp"

namespace kvatlas::calibrate {

struct QuestionOptions {
  std::int64_t max_new = 0;  // 0: as many as the task's answers need
  bool compress_context = false;
};

/// Prompts ready to be judged on. Error(usage) for --compress-context where context and question
/// cannot be told apart.
std::vector<Question> make_questions(std::vector<capture::ProfilePrompt> prompts,
                                     const QuestionOptions& options, const capture::RunOptions& run,
                                     const model::ModelFile& model);

/// What the engine, the copies and what is held of each prompt's attention may take for them.
void set_memory(capture::EngineOptions& engine, const std::vector<Question>& questions,
                const model::Config& config, SimulateOptions& simulate);

}  // namespace kvatlas::calibrate
