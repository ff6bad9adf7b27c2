// SPDX-License-Identifier: Apache-2.0
#include "calibrate/search/run_trials.hpp"

#include <algorithm>
#include <iostream>
#include <memory>
#include <numeric>

#include "analyzer/capture/profile_prompts.hpp"
#include "analyzer/capture/profile_run.hpp"
#include "analyzer/capture/progress.hpp"
#include "analyzer/capture/run_options.hpp"
#include "analyzer/profile/profile.hpp"
#include "base/error.hpp"
#include "calibrate/search/evaluate.hpp"
#include "calibrate/search/questions.hpp"
#include "calibrate/simulate/pod_blocks.hpp"
#include "data/tasks.hpp"

namespace kvatlas::calibrate {
namespace {

struct Trials {
  bool progress = true;
  std::vector<Question> questions;  // [position in the profile]
  SimulateOptions options;
  std::unique_ptr<capture::Engine> engine;

  std::vector<std::vector<Trial>> run(std::span<const Policy> policies,
                                      std::span<const std::size_t> samples) {
    std::vector<Question> chosen;
    std::int64_t tokens = 0;
    for (const auto position : samples) {
      chosen.push_back(questions.at(position));
      tokens += static_cast<std::int64_t>(chosen.back().tokens.size());
    }
    const auto& config = engine->model().config();
    std::vector<Policy> ready(policies.begin(), policies.end());
    for (auto& policy : ready) load_blocks(policy, config);
    std::unique_ptr<capture::Progress> shown;
    if (progress)
      shown = std::make_unique<capture::Progress>(static_cast<std::int64_t>(chosen.size()), tokens,
                                                  config.n_layers);
    const Evaluation evaluation =
        evaluate(*engine, std::move(chosen), ready, options, [&](const Question& question) {
          if (shown) shown->sample(static_cast<std::int64_t>(question.tokens.size()));
        });
    if (evaluation.interrupted > 0) fail(ErrorCode::cancelled, "interrupted");
    std::vector<std::vector<Trial>> out(policies.size());
    for (std::size_t i = 0; i < policies.size(); ++i)
      for (const auto& judged : evaluation.judged[i]) out[i].push_back(trial(judged));
    return out;
  }

  static Trial trial(const Judged& judged) {
    const Outcome& o = judged.outcome;
    Trial trial;
    trial.score = judged.score;
    trial.kl = o.kl;
    trial.text = judged.text;
    trial.tokens_kept =
        std::accumulate(o.kept.begin(), o.kept.end(), 0.0) / static_cast<double>(o.kept.size());
    trial.kept_share = o.kept_bytes / o.full_bytes;
    return trial;
  }
};

/// Says that a file of schema 1.0 lacks what scoring may need. The answers of generated prompts are
/// scored by their task alone.
void note_lack(const profile::Reader& profile) {
  const auto lacks = [](const profile::Sample& sample) {
    return !sample.has_scoring && !sample.answers.empty() && !data::is_task(sample.task);
  };
  const auto& samples = profile.samples();
  const auto count = std::count_if(samples.begin(), samples.end(), lacks);
  if (count > 0)
    std::cerr << "kvatlas: note: the profile is of schema 1.0, which lacks the metric, the classes "
                 "and the language of prompts: "
              << count << (count == 1 ? " answer is" : " answers are")
              << " scored by the name of the task alone; profile the prompts again if their file "
                 "says more\n";
}

}  // namespace

RunTrials make_trials(const TrialOptions& given, const profile::Reader& profile) {
  capture::restart_with_sleeping_threads();
  capture::RunOptions run;
  static_cast<ModelOptions&>(run) = given;
  capture::EngineOptions engine = capture::engine_options(given);
  const auto model = model::ModelFile::open(run.model);
  const auto& header = profile.header();
  if (header.model_fingerprint != model->fingerprint())
    fail(ErrorCode::usage, "the profile is of another model (", printable(header.model_name),
         ", fingerprint ", header.model_fingerprint, ") than ", printable(run.model), " (",
         model->fingerprint(), "): profile this model, or name the one that was profiled");
  note_lack(profile);
  std::vector<capture::ProfilePrompt> prompts;
  for (std::size_t i = 0; i < profile.samples().size(); ++i) {
    const auto& sample = profile.samples()[i];
    data::Prompt prompt;
    static_cast<PromptDescription&>(prompt) = sample;
    const auto tokens = profile.tokens(i);
    prompts.push_back({std::move(prompt), {tokens.begin(), tokens.end()}});
    // A profile of the current schema left room for the answer.
    if (!sample.has_scoring || given.max_new > 0)
      capture::truncate_prompt(prompts.back(), 0, given.max_new, model->config());
  }
  auto trials = std::make_shared<Trials>(Trials{given.progress, {}, {}, nullptr});
  QuestionOptions options;
  options.max_new = given.max_new;
  trials->questions = make_questions(std::move(prompts), options, run, *model);
  trials->options.compare = given.compare;
  trials->options.end_tokens = capture::end_tokens(*model, false);
  set_memory(engine, trials->questions, model->config(), trials->options);
  trials->engine = std::make_unique<capture::Engine>(model, engine);
  return [trials](std::span<const Policy> policies, std::span<const std::size_t> samples) {
    return trials->run(policies, samples);
  };
}

}  // namespace kvatlas::calibrate
