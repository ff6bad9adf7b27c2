// SPDX-License-Identifier: Apache-2.0
// Policies judged on many prompts (docs/evaluation.md), and the tables that say how they did.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "analyzer/tokenizer/tokenizer.hpp"
#include "calibrate/report/report.hpp"
#include "calibrate/rules/calibrated.hpp"
#include "calibrate/rules/rules.hpp"
#include "calibrate/simulate/simulate.hpp"
#include "data/prompts.hpp"
#include "data/scores.hpp"

namespace kvatlas::calibrate {

/// One prompt on which policies are judged.
struct Question {
  data::Prompt prompt;
  std::vector<std::int64_t> tokens;
  std::int64_t max_new = 16;
  std::int64_t context_tokens = 0;  // as in SimulateOptions
  std::string chat = "none";        // the format that the user asked for, as in RunOptions
  std::size_t place = 0;            // among the prompts as they were given
};

/// What one policy did on one prompt.
struct Judged {
  Outcome outcome;
  std::string text;  // that was generated; empty without a tokenizer
  double score = std::numeric_limits<double>::quiet_NaN();
  std::optional<data::DigitScores> digits;  // of a pass key
  /// The first token alone has this score. It is chosen before anything is cut.
  bool right_at_once = false;
};

/// What is measured of several draws of a policy on one prompt is their mean. What was generated
/// and decided is the first draw's.
Judged mean_of_draws(std::vector<Judged> draws);

struct Evaluation {
  std::vector<Question> questions;
  std::vector<Judged> full;                 // [question]
  std::vector<std::string> policies;        // their names
  std::vector<std::vector<Judged>> judged;  // [policy][question]
  double prefill_seconds = 0, decode_seconds = 0;
  std::size_t interrupted =
      0;  // questions that Ctrl-C left undone; none of them is in the lists above
};

/// Told after the questions that were tried together: all questions are there, and what was judged
/// of those that were run.
using QuestionDone = std::function<void(const Evaluation& so_far)>;

/// Prefills each question once and tries all policies on it, on a few questions together. Of a
/// policy that draws layers several times, each draw is tried (draws_of). Steps are
/// timed on the first question alone. With `scores_alone`, and where `options` compare nothing, an
/// answer ends as soon as its score is settled.
Evaluation evaluate(capture::Engine& engine, std::vector<Question> questions,
                    std::span<const Policy> policies, const SimulateOptions& options,
                    const QuestionDone& done = {}, bool scores_alone = false);

/// What the policy held while it generated, in the mean and at most; after the cut, if its answer
/// is one token.
double held_mean_bytes(const Outcome& outcome);
double held_peak_bytes(const Outcome& outcome);

/// One policy over all questions, or over those of one task.
struct Summary {
  std::string policy;
  std::size_t scored = 0;  // questions with answers
  std::size_t texts = 0;   // that these are made of
  std::size_t tasks = 0;   // that these belong to
  // Means of the tasks' means over groups, as docs/certainty.md says.
  Estimate score, full_score;  // 0 to 1
  Estimate loss;               // full score less this one, question by question, in points
  std::vector<double> losses;  // the same of each round of groups (TaskMeans::rounds)
  Divergence kl;               // of the next-token distribution from the full cache's
  Estimate agreement;
  std::vector<double> text_kls;             // of each text, and
  std::vector<double> agreements;           // of each round of texts
  Estimate digits_prefix, digits_in_place;  // of pass keys; NaN if there are none
  double score_over_prompts = 0;            // each prompt counting the same
  double kept_bytes = 0, full_bytes = 0;    // of one prompt, the mean over prompts
  double read_bytes = 0, full_read_bytes = 0;
  double prompt_read = 1;                           // as in Outcome
  double held_mean_bytes = 0, held_peak_bytes = 0;  // while generating
  std::vector<double> held_bytes;  // [generated token]: the mean over answers that are so long
  double ms_per_token = std::numeric_limits<double>::quiet_NaN();
  double full_ms_per_token = std::numeric_limits<double>::quiet_NaN();
  double saved() const { return full_bytes > 0 ? 1 - kept_bytes / full_bytes : 0; }
};
/// One row for each policy, after that of the full cache. If `task` is empty, all questions count.
std::vector<Summary> summarise(const Evaluation& evaluation, const std::string& task = {});

/// The mean scores of the prompts that were asked for at one length and depth.
std::vector<DepthScore> depth_scores(const Evaluation& evaluation,
                                     const std::vector<Judged>& judged);

/// The mean scores of the prompts that are one turn of their contexts.
std::vector<TurnScore> turn_scores(const Evaluation& evaluation, const std::vector<Judged>& judged);

/// The parts of the calls of functions that were asked for, in the order of data::kCallParts; empty
/// where none were. Of a policy that draws layers several times they are the first draw's.
std::vector<Estimate> call_part_means(const Evaluation& evaluation,
                                      const std::vector<Judged>& judged);

/// All that is known, for programs.
nlohmann::json evaluation_json(const Evaluation& evaluation);
std::vector<Table> evaluation_tables(const Evaluation& evaluation);
Measured measured_of(const Summary& summary);
/// What policy documents keep under "measured": one entry for each policy, after that of the full
/// cache.
std::vector<Measured> measured_of(const Evaluation& evaluation);

}  // namespace kvatlas::calibrate
