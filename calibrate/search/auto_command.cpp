// SPDX-License-Identifier: Apache-2.0
// `kvatlas calibrate auto`: the best policy for a memory, a context and a runtime.
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "analyzer/capture/profile_request.hpp"
#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/help.hpp"
#include "base/interrupt.hpp"
#include "base/next_step.hpp"
#include "base/options.hpp"
#include "base/text_count.hpp"
#include "base/whole_file.hpp"
#include "calibrate/methods/failed_tasks.hpp"
#include "calibrate/methods/judging.hpp"
#include "calibrate/methods/precision.hpp"
#include "calibrate/methods/rehearsal.hpp"
#include "calibrate/methods/trial_journal.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/policy/policy_front.hpp"
#include "calibrate/rules/certainty.hpp"
#include "calibrate/runtimes/runtimes.hpp"
#include "calibrate/search/commands.hpp"
#include "calibrate/search/run_trials.hpp"
#include "calibrate/search/search.hpp"

namespace kvatlas {
namespace {

using namespace calibrate;
namespace fs = std::filesystem;

struct AutoCommand {
  capture::RunOptions run;
  capture::PromptOptions prompts;
  std::string profile, output, memory;
  std::optional<double> kv_saving;
  std::int64_t context = 0, new_tokens = 0, batch = 1, max_new = 0;
  Request request;
  SearchSpace space;
  SearchRequest search;
  bool as_json = false, force = false, resume = false, dry_run = false;
};

void say(const std::string& line) { std::cerr << "kvatlas: " << line << '\n'; }

/// Beside the document: "policy.json" -> "policy.profile.h5".
fs::path beside(const std::string& output, const char* ending) {
  return fs::path(output).replace_extension(ending);
}

/// Prompts of the context's length, where nothing else is asked for.
void settle_prompts(AutoCommand& o, const model::ModelFile& model) {
  if (!o.run.prompts_file.empty()) return;
  if (o.prompts.tasks.empty()) o.prompts.tasks = {"needle", "passkey", "vt"};
  if (o.prompts.lengths.empty())
    o.prompts.lengths = {std::min(o.context, model.config().context_length)};
}

void take_own_profile(AutoCommand& o, const model::ModelFile& model) {
  if (o.output.empty() && !o.dry_run)
    fail(ErrorCode::usage,
         "without -p the model is profiled first, and the profile is kept beside the policy: give "
         "-o FILE");
  settle_prompts(o, model);
  capture::ProfileRequest request;
  request.run = o.run;
  request.prompts = o.prompts;
  request.prompts.new_tokens = o.max_new;
  request.output = o.profile = beside(o.output, ".profile.h5").string();
  request.resume = !o.force;
  request.force = o.force;
  request.say_result = false;
  request.dry_run = o.dry_run;
  say(o.dry_run ? "no profile was given: one would be taken first"
                : "no profile was given: taking " + request.output);
  capture::take_profile(request);
}

double bytes_allowed(const AutoCommand& o, const CacheLoad& load, const model::ModelFile& model) {
  if (o.kv_saving)
    return (1 - *o.kv_saving) * cache_bytes({.name = "full", .parts = {}}, load).total();
  const auto memory = static_cast<double>(parse_bytes(o.memory));
  const auto weights = static_cast<double>(model.stored_bytes());
  if (memory <= weights)
    fail(ErrorCode::usage, "--memory ", o.memory, " does not hold the weights, which take ",
         bytes_str(model.stored_bytes()), " as the model's file stores them");
  return (memory - weights) / static_cast<double>(o.batch);
}

void check(const AutoCommand& o) {
  if (o.memory.empty() == !o.kv_saving.has_value())
    fail(ErrorCode::usage,
         "give either --memory (for weights and cache) or --kv-saving (a share "
         "of the cache)");
  if (!o.space.runtime.empty()) runtime_named(o.space.runtime);
  TrialJournal::asked(o.output, o.force, o.resume);
  if (!o.profile.empty() &&
      (!o.run.prompts_file.empty() || !o.prompts.lengths.empty() || !o.prompts.depths.empty()))
    fail(ErrorCode::usage,
         "--prompts, --lengths and --depths say what to profile: leave them out with -p, or leave "
         "out -p");
}

void say_refused(const Candidates& candidates, const std::string& runtime) {
  for (const auto& line : refused_lines(candidates, runtime)) say(line);
  if (candidates.all.empty())
    fail(ErrorCode::usage, runtime.empty() ? "the profile" : runtime_named(runtime).title,
         runtime.empty()
             ? " has no statistics of any policy that saves memory"
             : " can carry out none of the policies that the profile has statistics of");
}

/// How many unseen texts it takes to certify the loss that is asked for.
std::string needs_text(const AutoCommand& o) {
  const std::string limit = str("a loss of at most ", fixed_text(o.search.max_loss, 1), " points");
  const auto needed = groups_to_pass(o.search.max_loss, jointly_sure(o.search.finalists));
  if (!needed) return str("no number of texts certifies ", limit);
  return str("to certify ", limit, " for one of ", o.search.finalists, " finalists takes ", *needed,
             " unseen texts without any loss, and more if some text loses");
}

/// How many unseen texts the profile leaves, and, if these are too few, which limit they certify.
std::string unseen_text(const AutoCommand& o, const Evidence& evidence,
                        const std::vector<std::size_t>& held_out) {
  std::string out =
      str("the profile's split leaves ", evidence.count(held_out).texts, " unseen texts");
  std::vector<std::string> tasks;
  for (const auto position : held_out) tasks.push_back(evidence.sample(position).task);
  // As if no text lost anything.
  const TaskMeans none =
      task_means(std::vector<double>(held_out.size(), 0), evidence.groups(held_out), tasks);
  if (none.rounds.empty()) return out;
  const double least =
      judge_losses(none.rounds, kPointRange, kPointRange.most, jointly_sure(o.search.finalists))
          .loss.high;
  if (least > o.search.max_loss)
    out += str(", and the least --max-loss that these can certify is ",
               fixed_text(std::ceil(10 * least) / 10, 1));
  return out;
}

/// Each layer's keys and values are tried by themselves in fewer bits, on a few samples.
std::vector<ExpectedFormats> formats_to_search(const AutoCommand& o, const Evidence& evidence,
                                               const RunTrials& run,
                                               const std::vector<std::size_t>& samples,
                                               const SearchSays& says) {
  PrecisionRequest request;
  request.texts = 2;
  if (!o.space.runtime.empty()) {
    const Runtime& runtime = runtime_named(o.space.runtime);
    if (!runtime.takes(Form::precision) || !runtime.formats_taken.not_simulated.empty()) return {};
    if (!runtime.runs_everything) {
      request.taken = runtime.formats_taken;
      request.taken.formats = formats_searched(runtime.formats_taken);
    }
  }
  if (!o.space.has(method::kPrecision.name)) return {};
  try {
    check_cache(policy_of(Precision{}), model_info(evidence.header()));
  } catch (const Error&) {
    return {};
  }
  says("precision: each layer's keys and values by themselves in fewer bits");
  return expected_formats(evidence, request, run, samples);
}

/// Before anything else is tried: what is lost of answers that are wrong anyway says nothing.
void require_full_cache(const AutoCommand& o, const Evidence& evidence, const RunTrials& run,
                        const Split& split, const SearchSays& says) {
  says(str("the full cache alone, on ", count_of(split.choice.size(), "sample", "samples")));
  Calibrated forced;
  Verdict(evidence, run, {}, split.choice).require_answers(o.force, forced);
  for (const auto& note : forced.notes) says(note);
}

/// The trials that the search will ask for. What fails here fails in the search too, which says it.
std::vector<TrialRound> rehearse(AutoCommand o, const Evidence& evidence, const Split& split,
                                 const CacheLoad& load) {
  Rehearsal rehearsal;
  const RunTrials trials = rehearsal.trials();
  const SearchSays silently = [](const std::string&) {};
  try {
    require_full_cache(o, evidence, trials, split, silently);
    o.space.formats = formats_to_search(o, evidence, trials, split.choice, silently);
    const Candidates candidates = list_candidates(evidence, split.choice, o.space, load);
    if (o.dry_run) say_refused(candidates, o.space.runtime);
    search(evidence, split, candidates, o.search, trials, silently);
  } catch (const Error&) {
    if (o.dry_run) throw;
  }
  return rehearsal.rounds();
}

std::vector<NextStep> next_steps(const AutoCommand& o) {
  const std::string document = shell_word(o.output);
  return {{str("kvatlas check ", document, " ", model_words(o.run),
               o.space.runtime.empty() ? "" : " --as " + o.space.runtime,
               " --depths 0.5 --max-loss ", o.search.max_loss),
           "until the loss is certain, on texts that the search has not seen"},
          {str("kvatlas view ", shell_word(o.profile), " ", document), "look at its front"},
          export_step(o.output, o.space.runtime)};
}

void run_auto(AutoCommand o) {
  check(o);
  outlive_readers();
  const auto model = model::ModelFile::open(o.run.model);
  const bool tasks_given = !o.prompts.tasks.empty();
  if (o.profile.empty()) {
    take_own_profile(o, *model);
    if (o.dry_run) {
      std::cout << needs_text(o) << "\nhow long the search takes is said once there is a profile\n";
      return;
    }
  } else {
    o.request.tasks = o.prompts.tasks;
  }
  const profile::Reader profile(o.profile);
  o.request.force = o.force;
  o.request.lengths = {o.context};
  o.request.seed = static_cast<std::uint64_t>(o.prompts.seed);
  Evidence evidence(profile, o.request);

  const auto answered = evidence.answered(evidence.positions());
  Calibrated forced;
  require_samples(evidence.count(answered), "with answers", o.force, forced);
  for (const auto& note : forced.notes) say(note);
  Split split = evidence.split(answered);
  const std::string needs = str(needs_text(o), "; ", unseen_text(o, evidence, split.held_out));
  if (!o.dry_run) say(needs);
  CacheLoad load;
  load.shape = evidence.shape();
  load.prompt = o.context;
  load.new_tokens = o.new_tokens;
  if (!o.space.runtime.empty()) load.runtime = &runtime_named(o.space.runtime);
  o.search.most_bytes = bytes_allowed(o, load, *model);
  std::int64_t longest = 0;
  for (const auto position : answered)
    longest = std::max(longest, evidence.sample(position).n_tokens);
  if (2 * longest < o.context)
    say(str("note: losses are measured on prompts of up to ", longest,
            " tokens, and the context is ", o.context,
            ": what holds there needs a profile of prompts of that length"));

  TrialOptions trials;
  static_cast<ModelOptions&>(trials) = static_cast<const ModelOptions&>(o.run);
  trials.max_new = o.max_new;
  trials.progress = false;
  trials.keep_beside = o.profile;
  trials.resumed = o.resume;
  trials.planned = rehearse(o, evidence, split, load);
  if (o.dry_run) {
    std::cout << needs << "\nthe search takes " << planned_cost(trials, profile) << '\n';
    return;
  }
  std::optional<TrialJournal> journal;
  const RunTrials run = make_trials(trials, profile, [&](RunTrials on_model) {
    return kept_beside(o.output, trial_settings(trials, o.space.runtime, profile),
                       TrialJournal::asked(o.output, o.force, o.resume), journal,
                       std::move(on_model));
  });
  if (!tasks_given && !o.force) {
    const FailedTasks failed = failed_tasks(evidence, run);
    for (const auto& one : failed.said) say(one);
    o.request.without = failed.names;
    evidence = Evidence(profile, o.request);
    split = evidence.split(evidence.answered(evidence.positions()));
  }
  unless_refused(journal, [&] { require_full_cache(o, evidence, run, split, say); });
  o.space.formats = formats_to_search(o, evidence, run, split.choice, say);
  const Candidates candidates = list_candidates(evidence, split.choice, o.space, load);
  say_refused(candidates, o.space.runtime);

  const SearchResult result = search(evidence, split, candidates, o.search, run, say);

  const Tried& chosen = result.tried[result.chosen];
  const Candidate& candidate = candidates.all[chosen.candidate];
  Document document = document_of(candidate, evidence, split.choice);
  document.runtime = o.space.runtime;
  document.provenance.tool_version = KVATLAS_VERSION;
  add_measured(document, report_json(*chosen.measured), o.space.runtime);
  document.pareto = front_json(result, candidates, evidence, split.choice);
  document.search = search_json(result, o.search);
  document.search["context"] = o.context;
  document.search["new_tokens"] = o.new_tokens;
  document.search["batch"] = o.batch;
  document.search["methods"] = o.space.methods;

  const bool written = !o.output.empty() && (result.met || o.force);
  if (written) {
    write_document(document, o.output, o.force || o.resume);
    journal->remove();
  }
  if (o.as_json) {
    std::cout << document_text(document);
  } else {
    for (const auto& table : search_tables(result, candidates))
      std::cout << table_text(table) << '\n';
    std::cout << "How well attention lost foretold what was measured (rank correlation): loss "
              << fixed_text(result.proxy_loss, 2) << ", KL " << fixed_text(result.proxy_kl, 2)
              << '\n';
    if (result.met)
      std::cout << "Chosen: " << candidate.policy.name << ", "
                << bytes_str(std::llround(candidate.bytes)) << " a sequence ("
                << percent_text(candidate.kept_share) << " of the full cache)\n";
  }
  for (const auto& note : result.notes) say(note);
  if (result.passed_over > 0)
    say(str("finalists passed over, of which unseen samples said less: ", result.passed_over));
  if (result.met) say(certificate_text(result, o.search));
  for (const auto& line : advice(result, candidates, o.search)) say(line);
  if (!result.met && !o.force) {
    say(str("no document was written", o.output.empty()
                                           ? ""
                                           : " (--force writes the nearest policy; --resume with "
                                             "another limit uses these trials)"));
    throw CLI::RuntimeError(kExitNotMet);
  }
  if (written) {
    say(o.output + ": written");
    say_next(next_steps(o));
  }
  if (!result.met) throw CLI::RuntimeError(kExitNotMet);
}

void add_options(CLI::App& command, AutoCommand& o) {
  capture::add_model_options(command, o.run);
  constexpr std::int64_t kMost = std::int64_t{1} << 27;
  command.option_defaults()->group("What is wanted");
  add_option(command, "--memory", o.memory, "SIZE",
             "memory for weights and all caches, such as 24GiB");
  add_option(command, "--kv-saving", o.kv_saving, "SHARE",
             "or the share of the cache to save, 0 to 1")
      ->check(real_range(0.01, 0.99));
  add_option(command, "--context", o.context, "TOKENS", "prompt tokens that must fit")
      ->required()
      ->check(whole_range(1, kMost));
  add_number(command, "--new-tokens", o.new_tokens, "TOKENS",
             "tokens generated after the prompt, which must fit too", 0, kMost);
  add_number(command, "--batch", o.batch, "N", "sequences at a time", 1, kMost);
  add_number(command, "--max-loss", o.search.max_loss, "POINTS",
             "points of the score that may be lost", 0.0, 100.0);
  add_option(command, "--for", o.space.runtime, "RUNTIME", "the runtime that is to run the policy");

  command.option_defaults()->group("Samples");
  add_option(command, "-p,--profile", o.profile, "FILE",
             "the model's profile; without it one is taken first, of prompts of the context's "
             "length");
  add_option(command, "--task", o.prompts.tasks, "TASK",
             "samples of these tasks: of the profile, or generated; may be repeated")
      ->default_str("all of the profile; generated: needle, passkey and vt");
  add_option(command, "--prompts", o.run.prompts_file, "FILE",
             "or your own prompts to profile, as JSONL with answers");
  add_option(command, "--lengths", o.prompts.lengths, "N,...",
             "lengths of generated prompts, in tokens")
      ->delimiter(',')
      ->default_str("the context")
      ->check(whole_range(1, std::int64_t{1} << 24));
  add_option(command, "--depths", o.prompts.depths, "D,...",
             "where the answer lies in the prompt, 0 to 1")
      ->delimiter(',')
      ->default_str("0.1,0.3,0.5,0.7,0.9")
      ->check(real_range(0.0, 1.0));
  add_option(command, "--seeds", o.prompts.seeds, "N",
             "texts of each generated task; each is made at every length and depth")
      ->default_str("as many as depths")
      ->check(whole_range(1, std::int64_t{1} << 20));
  add_number(command, "--held-out", o.request.held_out, "SHARE",
             "share of the texts that only the finalists are tried on", 0.0, 0.9);
  add_number(command, "--seed", o.prompts.seed, "NUMBER", "seed of the prompts and of the split", 0,
             std::int64_t{1} << 40);
  add_number(command, "--new", o.max_new, "N",
             "tokens generated for each sample; 0: as many as its answers need", 0,
             std::int64_t{1} << 20);

  command.option_defaults()->group("Search");
  add_option(command, "--methods", o.space.methods, "METHOD,...",
             "what is searched; compose: SimLayerKV with DynamicKV or LagKV on the layers "
             "that stay full; kv4: what is kept in 4 bits")
      ->delimiter(',')
      ->check(CLI::IsMember(searched_names()))
      ->default_str("all of them");
  add_number(command, "--candidates", o.search.width, "N", "policies that are tried on the model",
             1, 100000);
  add_number(command, "--finalists", o.search.finalists, "N",
             "policies that are judged on unseen samples", 1, 64);
  command.add_flag("--exhaustive", o.search.exhaustive,
                   "try every policy that fits on every sample of the search");

  command.option_defaults()->group("Options");
  add_option(command, "-o,--output", o.output, "FILE", "the policy document to write");
  command.add_flag("--json", o.as_json, "print the document instead of tables");
  command.add_flag("--resume", o.resume, "go on with an interrupted search");
  command.add_flag("--dry-run", o.dry_run,
                   "say how many texts it takes to certify the loss and how long the search takes, "
                   "and search nothing");
  command.add_flag("--force", o.force,
                   "replace the output and begin an interrupted search anew; also search where "
                   "there are too few texts or the full cache scores too low, and write the "
                   "nearest policy where nothing meets what is wanted");
  command.footer(
      "Exit status 4: nothing meets what is wanted; the nearest is named. docs/auto.md explains "
      "the search.\n\n"
      "Examples:\n"
      "  kvatlas calibrate auto --model M -p p.h5 --memory 24GiB --context 32768 --batch 8 -o "
      "policy.json\n"
      "  kvatlas calibrate auto --model M -p p.h5 --kv-saving 0.5 --context 8192 --for vllm -o "
      "policy.json\n"
      "  kvatlas calibrate auto --model M --task needle --depths 0.5 --seeds 20 --kv-saving 0.6 "
      "--context 4096 -o policy.json");
  lead_with(command, {"--model", "--profile", "--output", "--memory", "--kv-saving", "--context",
                      "--max-loss", "--for"});
}

}  // namespace

void add_auto_command(CLI::App& calibrate) {
  CLI::App* command = calibrate.add_subcommand(
      "auto", "The best policy of all methods for a memory, a context and a runtime");
  const auto options = std::make_shared<AutoCommand>();
  add_options(*command, *options);
  command->callback([options] { run_auto(*options); });
}

}  // namespace kvatlas
