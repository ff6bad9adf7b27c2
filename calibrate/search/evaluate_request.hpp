// SPDX-License-Identifier: Apache-2.0
// What `kvatlas evaluate` and `kvatlas check` are asked to judge.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "analyzer/capture/profile_prompts.hpp"
#include "analyzer/capture/run_options.hpp"
#include "calibrate/certify/gate.hpp"
#include "calibrate/search/evaluate.hpp"
#include "calibrate/search/fresh_texts.hpp"
#include "calibrate/search/questions.hpp"

namespace kvatlas::calibrate {

/// The first round of an evaluation, before it is run.
struct FirstRound {
  std::int64_t prompts = 0;
  std::size_t answered = 0;   // of them, those that have answers
  std::size_t texts = 0;      // that those are made of
  std::size_t all_texts = 0;  // that all are made of
  double seconds = 0;         // that it will take
  bool generated = false;     // prompts: others may follow
};

struct EvaluateRequest {
  capture::RunOptions run;
  capture::PromptOptions prompts;
  QuestionOptions questions;
  std::vector<std::string> policies;  // documents, or policies as text
  std::vector<std::string> against;
  std::string runtime, document_task;
  std::int64_t time_steps = 8;
  bool rolling = false, positions = false, no_comparison = false;
  bool may_repeat = true;  // the user's own texts may be those that calibrated
  /// Asked before anything is run; false ends it there.
  std::function<bool(const FirstRound&)> go_on;
  /// Told after each question of the first round; may throw.
  QuestionDone look;
};

struct Evaluated {
  std::shared_ptr<const model::ModelFile> model;
  std::vector<Policy> policies;
  Evaluation evaluation;
  std::vector<LeftOut> left_out;  // policies that the runtime cannot carry out
  CalibrationTexts calibrated_by;
};
/// After a round of generated prompts: how many more seeds are to be judged too; 0 ends it.
using MoreSeeds = std::function<std::int64_t(const Evaluation&)>;
Evaluated evaluate_request(EvaluateRequest request, const MoreSeeds& more = {});
/// Error(cancelled) if Ctrl-C left questions undone.
void require_all(const Evaluation& evaluation);
/// Prints on stderr what the reader of the scores should know.
void print_notes(const Evaluation& evaluation);
/// Whether the text names a file that holds a policy document.
bool is_policy_document(const std::string& text);

/// Adds --model and the options beside it, --as, and the options for prompts.
void add_request_options(CLI::App& command, EvaluateRequest& request);

}  // namespace kvatlas::calibrate
