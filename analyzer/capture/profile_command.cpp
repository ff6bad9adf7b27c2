// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include "analyzer/capture/commands.hpp"
#include "analyzer/capture/profile_request.hpp"
#include "analyzer/capture/profile_run.hpp"
#include "analyzer/capture/progress.hpp"
#include "analyzer/capture/ranks.hpp"
#include "analyzer/profile/describe.hpp"
#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/foreign_error.hpp"
#include "base/help.hpp"
#include "base/interrupt.hpp"
#include "base/json_text.hpp"
#include "base/next_step.hpp"
#include "base/options.hpp"
#include "base/parallel.hpp"
#include "base/plain_text.hpp"
#include "base/text_count.hpp"
#include "base/whole_file.hpp"

namespace kvatlas {
namespace {

using capture::ProfilePlan;
using capture::ProfileRequest;

/// From fewer texts nothing is calibrated (kLeastTexts of calibrate/rules/evidence.hpp).
constexpr std::size_t kTextsToCalibrate = 5;

std::int64_t total_tokens(const ProfilePlan& plan, const std::set<std::int64_t>& finished) {
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < plan.prompts.size(); ++i)
    if (!finished.contains(static_cast<std::int64_t>(i)))
      tokens += static_cast<std::int64_t>(plan.prompts[i].tokens.size());
  return tokens;
}

/// Ranks on one machine share its cores and GPUs.
void share_machine(capture::RunOptions& run, const capture::Ranks& ranks) {
  if (ranks.local_size() == 1) return;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  // A launcher that binds each rank to cores of its own has shared them out already.
  if (run.threads == 0 && thread_count() == cores)
    run.threads = std::max(1, cores / ranks.local_size());
  int gpus = 0;
  while (std::filesystem::exists(str("/dev/nvidia", gpus))) ++gpus;
  if (gpus > 1)
    setenv("CUDA_VISIBLE_DEVICES", std::to_string(ranks.local_rank() % gpus).c_str(), 0);
}

void print_plan(const ProfilePlan& plan, const model::ModelFile& model,
                const capture::ProfileEstimate& estimate, int ranks) {
  std::map<std::string, std::int64_t> tasks;
  std::int64_t shortest = plan.engine.longest, longest = 0;
  for (const auto& one : plan.prompts) {
    ++tasks[one.prompt.task.empty() ? "your own" : one.prompt.task];
    const auto n = static_cast<std::int64_t>(one.tokens.size());
    shortest = std::min(shortest, n);
    longest = std::max(longest, n);
  }
  const std::string kinds = join(
      tasks, ", ", [](const auto& task) { return str(task.second, " ", printable(task.first)); });
  const auto say = [](const auto&... parts) { std::cerr << "kvatlas: " << str(parts...) << '\n'; };
  const model::Config& config = model.config();
  say(config.name.empty() ? "model" : printable(config.name), ", ",
      count_of(config.n_layers, "layer", "layers"),
      config.layer_numbers.empty() ? "" : str(" with attention of ", config.total_layers), ", on ",
      capture::device_text(plan.engine.placement), " in ", plan.engine.placement.dtype);
  std::vector<std::string> groups;
  for (const auto& one : plan.prompts) groups.push_back(one.prompt.group);
  say(count_of(plan.prompts.size(), "sample", "samples"),
      of_texts(plan.prompts.size(), count_texts(groups)), " of ",
      shortest == longest ? str(longest) : str(shortest, " to ", longest), " tokens (", kinds,
      "), ", total_tokens(plan, {}), " tokens in all");
  say("weights ",
      estimate.memory.streaming
          ? str("streamed layer by layer (", bytes_str(estimate.memory.held_weight_bytes),
                " at a time), ", count_of(plan.batch, "prompt", "prompts"), " at a time")
          : str("resident (", bytes_str(estimate.memory.weight_bytes), ")"),
      ", about ", bytes_str(estimate.memory.total_bytes), " of memory");
  const auto longest_share = (static_cast<double>(plan.prompts.size()) + ranks - 1) / ranks /
                             static_cast<double>(plan.prompts.size());
  say("about ", capture::duration_str(estimate.seconds * longest_share),
      ranks > 1 ? str(" on ", ranks, " processes") : "", " and a file of at most ",
      bytes_str(estimate.file_bytes));
  const auto cut = std::count_if(plan.prompts.begin(), plan.prompts.end(),
                                 [](const auto& one) { return one.cut_tokens > 0; });
  if (cut > 0)
    say("note: ",
        count_of(cut, "prompt is too long and loses its", "prompts are too long and lose their"),
        " middle, and with it what is to be found there");
  if (longest + plan.settings.generated > model.config().context_length)
    say("note: prompts of up to ", longest, " tokens go beyond the model's context of ",
        model.config().context_length);
}

/// What is usually done with the profile, and what it lacks to be calibrated from.
void say_next_of(const ProfileRequest& command, const ProfilePlan& plan) {
  std::vector<std::string> groups, answered;
  for (const auto& one : plan.prompts) {
    groups.push_back(one.prompt.group);
    if (!one.prompt.answers.empty()) answered.push_back(one.prompt.group);
  }
  const std::string profile = shell_word(command.output);
  const std::string calibrate = "kvatlas calibrate all -p " + profile;
  const NextStep view{"kvatlas view " + profile, "look at it"};
  const bool own = command.run.has_own_prompts();
  const std::size_t texts = count_texts(answered);
  if (texts >= kTextsToCalibrate)
    return say_next({{str(calibrate, " ", model_words(command.run), " -o policy.json"),
                      "what the cache can do without"},
                     view});
  std::cerr << "kvatlas: note: prompts with answers of "
            << count_of(static_cast<std::int64_t>(texts), "text", "texts")
            << " are too few to calibrate from; "
            << (own ? str("for calibration: prompts with answers of ", kTextsToCalibrate, " texts")
                    : str("for calibration: --seeds ", kTextsToCalibrate))
            << " or more\n";
  if (own && count_texts(groups) >= kTextsToCalibrate)  // statistics need no answers
    say_next({view, {calibrate + " -o policy.json", "by the statistics alone, tried on nothing"}});
  else
    say_next({view});
}

void print_result(const ProfileRequest& command, const ProfilePlan& plan, std::int64_t run,
                  double seconds) {
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(command.output));
  if (command.json) {
    const nlohmann::ordered_json result = {{"profile", command.output},
                                           {"samples", plan.prompts.size()},
                                           {"run_now", run},
                                           {"seconds", seconds},
                                           {"bytes", bytes}};
    std::cout << json_text(result, 2) << '\n';
  } else {
    std::cout << command.output << ": " << count_of(std::ssize(plan.prompts), "sample", "samples")
              << ", " << bytes_str(bytes)
              << (run == 0 ? "; nothing was left to do"
                           : str("; took ", capture::duration_str(seconds)))
              << '\n';
    say_next_of(command, plan);
  }
}

/// The prompts, settings and engine of the run.
ProfilePlan make_plan(const ProfileRequest& command, const model::ModelFile& model,
                      std::string& prompts) {
  ProfilePlan plan;
  plan.engine = capture::engine_options(command.run);
  auto planned = capture::plan_prompts(command.prompts, command.run, model);
  plan.prompts = std::move(planned.prompts);
  prompts = std::move(planned.description);
  std::int64_t longest = 0;
  for (const auto& one : plan.prompts)
    longest = std::max(longest, static_cast<std::int64_t>(one.tokens.size()));
  plan.settings = capture::settle_capture(command.capture, model.config(), longest);
  plan.end_tokens = capture::end_tokens(model, command.run.ignore_eos);
  capture::fit_memory(plan, model);
  return plan;
}

/// Hands out the samples that are not finished yet, and keeps count of what the ranks have done.
class Dispatcher {
 public:
  Dispatcher(const ProfilePlan& plan, const std::set<std::int64_t>& finished, std::int64_t layers)
      : plan_(plan),
        finished_(finished),
        progress_(static_cast<std::int64_t>(plan.prompts.size() - finished.size()),
                  total_tokens(plan, finished), layers) {}

  std::optional<std::int64_t> next(int rank) {
    // A rank that asks again has written what it was given for its last batch.
    auto& given = given_[rank];
    const bool none_left = skip_finished() == static_cast<std::int64_t>(plan_.prompts.size());
    if (none_left || static_cast<std::int64_t>(given.size()) == plan_.batch) {
      if (rank > 0)
        for (const auto index : given) done(index);
      given.clear();
    }
    if (none_left) return std::nullopt;
    given.push_back(index_);
    return index_++;
  }

  void done(std::int64_t index) {
    ++done_;
    progress_.sample(static_cast<std::int64_t>(plan_.prompts[index].tokens.size()));
  }
  void layer(std::int64_t layers, std::int64_t tokens) { progress_.layer(layers, tokens); }

  std::int64_t samples_done() const { return done_; }
  double seconds() const { return progress_.seconds(); }

 private:
  std::int64_t skip_finished() {
    while (finished_.contains(index_)) ++index_;
    return index_;
  }

  const ProfilePlan& plan_;
  const std::set<std::int64_t>& finished_;
  capture::Progress progress_;
  std::map<int, std::vector<std::int64_t>> given_;
  std::int64_t index_ = 0;
  std::atomic<std::int64_t> done_ = 0;
};

/// Rank 0: takes the lock, hands out the samples, runs its share, and puts the file together.
void lead(const ProfileRequest& command, const ProfilePlan& plan, const profile::Header& header,
          const std::shared_ptr<const model::ModelFile>& model, capture::Ranks& ranks) {
  capture::Engine engine(model, plan.engine);
  profile::Writer writer(command.output, header,
                         {.resume = command.resume, .force = command.force});
  const auto finished = writer.finished();
  if (!finished.empty())
    std::cerr << "kvatlas: " << finished.size() << " of "
              << count_of(std::ssize(plan.prompts), "sample is", "samples are")
              << " there already\n";
  ranks.barrier();  // the others join what is open now
  std::int64_t run = 0;
  double seconds = 0;
  {
    Dispatcher dispatcher(plan, finished, model->config().n_layers);
    ranks.serve([&](int rank) { return dispatcher.next(rank); });
    try {
      capture::run_profile(
          engine, plan, writer, [&] { return ranks.take(); },
          {.layer = [&](std::int64_t layers,
                        std::int64_t tokens) { dispatcher.layer(layers, tokens); },
           .finished = [&](const profile::Sample& sample) { dispatcher.done(sample.index); }});
    } catch (const std::exception& thrown) {
      const Error error = as_error(thrown);
      const auto done = std::ssize(finished) + dispatcher.samples_done();
      if (error.code() != ErrorCode::resource || done == 0) throw;
      fail(error.code(), error.what(), "; ", done, " of ",
           count_of(std::ssize(plan.prompts), "sample is", "samples are"),
           " done, and the same command with --resume goes on from there");
    }
    ranks.barrier();  // all have written what they were given
    run = dispatcher.samples_done();
    seconds = dispatcher.seconds();
  }
  writer.finish();
  for (const auto& warning : writer.warnings()) std::cerr << "kvatlas: note: " << warning << '\n';
  if (command.say_result) print_result(command, plan, run, seconds);
}

/// The other ranks: run what they are given, each sample into a file of its own.
void follow(const ProfileRequest& command, const ProfilePlan& plan, const profile::Header& header,
            const std::shared_ptr<const model::ModelFile>& model, capture::Ranks& ranks) {
  capture::Engine engine(model, plan.engine);
  ranks.barrier();
  const auto writer = profile::Writer::join(command.output, header);
  capture::run_profile(engine, plan, *writer, [&] { return ranks.take(); }, {});
  ranks.barrier();
}

void run_ranks(ProfileRequest command, capture::Ranks& ranks) {
  share_machine(command.run, ranks);
  const auto model = model::ModelFile::open(command.run.model);
  std::string prompts;
  const ProfilePlan plan = make_plan(command, *model, prompts);
  const bool leads = ranks.rank() == 0;
  if (leads) print_plan(plan, *model, capture::estimate(plan, *model), ranks.size());
  if (leads && !command.run.has_own_prompts()) capture::note_bare_prompts(command.run.chat, *model);
  const bool all_is_standard =
      !command.run.has_own_prompts() && command.prompts.tasks.empty() && !command.prompts.quick;
  if (leads && all_is_standard && !command.resume)
    std::cerr << "kvatlas: note: this is the whole mixture of generated prompts; for a first look "
                 "--quick takes fewer and shorter ones, of too few texts to calibrate from\n";
  if (command.dry_run) return;
  const profile::Header header = capture::profile_header(plan, *model, prompts);
  (leads ? lead : follow)(command, plan, header, model, ranks);
}

}  // namespace

namespace capture {

void take_profile(const ProfileRequest& request) {
  outlive_readers();
  if (request.force && request.resume)
    fail(ErrorCode::usage, "--force begins anew and --resume goes on: give one of them");
  if (!request.dry_run) check_folder_of(request.output);
  const auto ranks = Ranks::open();
  if (ranks->size() == 1) return run_ranks(request, *ranks);
  // Whatever ends this rank must end the others too: they would wait for it.
  try {
    run_ranks(request, *ranks);
  } catch (const std::exception& thrown) {
    const Error error = as_error(thrown);
    std::cerr << str("kvatlas: rank ", ranks->rank(), ": ", error.what(), "\n") << std::flush;
    ranks->abort(exit_status(error.code()));
  }
}

}  // namespace capture

void add_profile_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("profile", kProfileSummary);
  auto options = std::make_shared<ProfileRequest>();
  capture::add_model_options(*command, options->run);
  add_option(*command, "-o,--output", options->output, "FILE", "the profile (HDF5) to write")
      ->required();
  command->add_flag("--force", options->force, "begin anew and replace the file if it exists");
  command->add_flag("--resume", options->resume, "go on with an unfinished profile");
  command->add_flag("--dry-run", options->dry_run,
                    "print the plan with its time, memory and file size, and stop");
  command->add_flag("--json", options->json, "print the result as JSON");
  capture::add_prompt_options(*command, options->prompts, options->run);
  command
      ->add_flag("--ignore-eos", options->run.ignore_eos,
                 "with --new: go on generating after an end-of-sequence token")
      ->group("Prompts");
  capture::add_capture_options(*command, options->capture);
  // Needs neither a model nor an output, so it lifts what other calls must give.
  add_option(
      *command, "--describe", options->describe, "SHAPE",
      "with --json: print what a profile with these settings holds of a model of this shape, "
      "for software that writes profiles itself (docs/python.md), and stop")
      ->each([command](const std::string&) {
        for (const char* name : {"--model", "--output"}) command->get_option(name)->required(false);
      });
  command->footer(
      "Examples:\n"
      "  kvatlas profile --model SmolLM2.gguf -o p.h5\n"
      "  kvatlas profile --model SmolLM2-Instruct.gguf --chat auto -o p.h5\n"
      "  kvatlas profile --model SmolLM2.gguf --task needle --task passkey:digits=64 \\\n"
      "      --lengths 1024,4096 --seeds 5 -o needle.h5\n"
      "  kvatlas profile --model ./Llama-3.1-8B --prompts mine.jsonl --memory-budget 6GiB -o p.h5\n"
      "  kvatlas profile --model ./Llama-3.1-8B --prompts mine.jsonl -o p.h5 --resume\n"
      "  kvatlas profile --describe layers=32,heads=32,kv_heads=8,head_dim=128,vocab=128256 "
      "--json");
  lead_with(*command, {"--model", "--output", "--prompts", "--task", "--lengths", "--chat",
                       "--memory-budget"});
  command->callback([options] {
    if (options->describe.empty()) return capture::take_profile(*options);
    if (!options->json) fail(ErrorCode::usage, "--describe prints JSON: give --json too");
    const model::Config shape = profile::shape_from(options->describe);
    const auto settings = capture::settle_capture(options->capture, shape, 1);
    std::cout << profile::description_json(settings, shape, KVATLAS_VERSION) << '\n';
  });
}

}  // namespace kvatlas
