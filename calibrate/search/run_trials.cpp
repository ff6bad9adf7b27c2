// SPDX-License-Identifier: Apache-2.0
#include "calibrate/search/run_trials.hpp"

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "analyzer/capture/profile_prompts.hpp"
#include "analyzer/capture/profile_run.hpp"
#include "analyzer/capture/progress.hpp"
#include "analyzer/capture/run_options.hpp"
#include "analyzer/profile/profile.hpp"
#include "base/error.hpp"
#include "base/free_memory.hpp"
#include "base/text_count.hpp"
#include "calibrate/policy/read_apart.hpp"
#include "calibrate/search/evaluate.hpp"
#include "calibrate/search/questions.hpp"
#include "calibrate/search/trial_cost.hpp"
#include "calibrate/simulate/pod_blocks.hpp"
#include "calibrate/simulate/prompt_store.hpp"
#include "data/tasks.hpp"

namespace kvatlas::calibrate {
namespace {

struct Trials {
  std::vector<Question> questions;  // [position in the profile]
  SimulateOptions options;
  std::unique_ptr<capture::Engine> engine;
  std::optional<PromptStore> store;
  std::string cost;  // of what is planned
  bool trouble_said = false;

  std::int64_t tokens_of(std::span<const std::size_t> samples) const {
    std::int64_t tokens = 0;
    for (const auto position : samples)
      tokens += static_cast<std::int64_t>(questions.at(position).tokens.size());
    return tokens;
  }

  std::vector<std::vector<Trial>> run(std::span<const Policy> policies,
                                      std::span<const std::size_t> samples, Measure measure) {
    options.compare = measure != Measure::score;
    options.generate = measure != Measure::divergence;
    std::vector<Question> chosen;
    for (const auto position : samples) chosen.push_back(questions.at(position));
    std::vector<Policy> ready;
    for (const auto& policy : policies)
      if (!is_full(policy)) load_blocks(ready.emplace_back(policy), engine->model().config());
    const Evaluation evaluation = evaluate(*engine, std::move(chosen), ready, options, {}, true);
    if (evaluation.interrupted > 0) fail(ErrorCode::cancelled, "interrupted");
    if (!store->trouble().empty() && !std::exchange(trouble_said, true))
      std::cerr
          << "kvatlas: note: prompts that do not fit into memory are read anew in each round: "
          << store->trouble() << '\n';
    std::vector<std::vector<Trial>> out(policies.size());
    auto tried = evaluation.judged.begin();
    for (std::size_t i = 0; i < policies.size(); ++i)
      for (const auto& judged : is_full(policies[i]) ? evaluation.full : *tried++)
        out[i].push_back(trial(judged, measure));
    return out;
  }

  /// Trials whose progress is shown.
  RunTrials shown(const RunTrials& run) const {
    return [this, run](std::span<const Policy> policies, std::span<const std::size_t> samples,
                       Measure measure) {
      capture::Progress progress(static_cast<std::int64_t>(samples.size()), tokens_of(samples),
                                 engine->model().config().n_layers);
      std::vector<std::vector<Trial>> out(policies.size());
      for (std::size_t first = 0; first < samples.size(); first += kPromptsTogether) {
        const auto together = tried_together(samples, first);
        const auto found = run(policies, together, measure);
        for (std::size_t p = 0; p < policies.size(); ++p)
          out[p].insert(out[p].end(), found.at(p).begin(), found.at(p).end());
        progress.sample(tokens_of(together), std::ssize(together));
      }
      return out;
    };
  }

  static Trial trial(const Judged& judged, Measure measure) {
    const Outcome& o = judged.outcome;
    Trial trial;
    trial.kept_share = o.kept_bytes / o.full_bytes;
    // Where the full model's answer is one token, which the prompt alone decides, no policy
    // differs.
    trial.kl = measure != Measure::score && o.compared == 0 ? 0 : o.kl;
    if (measure == Measure::divergence) return trial;  // nothing was generated
    trial.score = judged.score;
    trial.digits = judged.digits;
    return trial;
  }
};

// Prompts that do not fit into memory take so much of a disk, at most.
constexpr std::int64_t kMostOnDisk = std::int64_t{64} << 30;

/// Half of what the run leaves free of the memory that it may take, or that the machine has. The
/// memory of a GPU is left to the run.
PromptStore::Room room_for_prompts(const model::ModelFile& model,
                                   const capture::EngineOptions& engine,
                                   const std::string& beside) {
  PromptStore::Room room{0, kMostOnDisk, beside};
  if (engine.placement.device != "cpu") return room;
  const std::int64_t allowed = engine.memory_budget > 0 ? engine.memory_budget : free_memory();
  const std::int64_t taken = capture::plan_memory(model, engine).total_bytes;
  room.memory = std::max<std::int64_t>(0, (allowed - taken) / 2);
  return room;
}

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
              << count_of(count, "answer is", "answers are")
              << " scored by the name of the task alone; profile the prompts again if their file "
                 "says more\n";
}

std::shared_ptr<Trials> open_trials(const TrialOptions& given, const profile::Reader& profile) {
  capture::RunOptions run;
  static_cast<ModelOptions&>(run) = static_cast<const ModelOptions&>(given);
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
  auto trials = std::make_shared<Trials>();
  QuestionOptions options;
  options.max_new = given.max_new;
  trials->questions = make_questions(std::move(prompts), options, run, *model);
  trials->options.end_tokens = capture::end_tokens(*model, false);
  set_memory(engine, trials->questions, *model, trials->options);
  trials->store.emplace(room_for_prompts(*model, engine, given.keep_beside));
  trials->options.store = &*trials->store;
  trials->engine = std::make_unique<capture::Engine>(model, engine);
  trials->cost =
      cost_text(trial_cost({*model, engine.placement, trials->engine->streaming()},
                           trials->questions, given.planned, trials->options.prompts_together));
  return trials;
}

}  // namespace

std::string planned_cost(const TrialOptions& options, const profile::Reader& profile) {
  return open_trials(options, profile)->cost;
}

RunTrials make_trials(const TrialOptions& given, const profile::Reader& profile,
                      const AroundTrials& around) {
  const auto trials = open_trials(given, profile);
  if (!given.planned.empty())
    std::cerr << "kvatlas: " << trials->cost
              << (given.resumed ? ", less what was tried before the interruption\n" : "\n");
  RunTrials all =
      around([trials](std::span<const Policy> policies, std::span<const std::size_t> samples,
                      Measure measure) { return trials->run(policies, samples, measure); });
  return given.progress ? trials->shown(all) : all;
}

}  // namespace kvatlas::calibrate
