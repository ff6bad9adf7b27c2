// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/help.hpp"
#include "base/interrupt.hpp"
#include "base/next_step.hpp"
#include "base/options.hpp"
#include "base/plain_text.hpp"
#include "calibrate/methods/commands.hpp"
#include "calibrate/methods/failed_tasks.hpp"
#include "calibrate/methods/method_command.hpp"
#include "calibrate/methods/rehearsal.hpp"
#include "calibrate/methods/trial_journal.hpp"
#include "calibrate/policy/policy_settings.hpp"
#include "calibrate/policy/setting_option.hpp"
#include "calibrate/rules/fitting.hpp"
#include "calibrate/runtimes/runtimes.hpp"

namespace kvatlas {
namespace {

using namespace calibrate;

/// What one command line asks for.
struct Options {
  /// A method that is to be calibrated, with what --NAME-initial and --NAME-recent say of it.
  struct Wanted {
    CalibratedMethod row;
    std::unique_ptr<MethodCommand> command;
    std::optional<std::int64_t> initial, recent;
  };
  std::vector<Wanted> methods;
  std::string profile, output;
  bool as_json = false, force = false, resume = false;
  TrialOptions trials;
  Request request;
  std::string runtime;
  double tolerance = 0;
  std::optional<std::int64_t> initial, recent;  // for every method that keeps such tokens
};

/// What the help of a method begins with.
std::vector<std::string> leading_options(const CLI::App& command) {
  std::vector<std::string> names = {"--profile", "--model", "--output", "--for"};
  for (const char* name : {"--threshold", "--recent", "--save", "--budget", "--lags", "--size"})
    if (command.get_option_no_throw(name)) names.emplace_back(name);
  return names;
}

void add_common_options(CLI::App& command, Options& o) {
  add_option(command, "-p,--profile", o.profile, "FILE",
             "the profile, as 'kvatlas profile' writes it")
      ->required();
  add_option(command, "-o,--output", o.output, "FILE", "the policy document to write");
  command.add_flag("--json", o.as_json, "print the document instead of tables");
  command.add_flag(
      "--force", o.force,
      "replace the output and begin an interrupted calibration anew; also accept fewer "
      "than 5 texts, or a full cache that scores below 0.5 (the document says so)");
  command.add_flag("--resume", o.resume, "go on with an interrupted calibration");

  command.option_defaults()->group("Samples");
  add_option(command, "--tasks", o.request.tasks, "NAME,...",
             "only samples of these tasks (default: all of them)")
      ->delimiter(',');
  add_number(command, "--held-out", o.request.held_out, "SHARE",
             "share of the texts that the choice does not see and the loss is measured on; nothing "
             "is held out of fewer than 10",
             0.0, 0.9);
  add_option(command, "--seed", o.request.seed, "NUMBER",
             "seed of the split into texts for the choice and held-out ones")
      ->capture_default_str();
  add_option(command, "--lengths", o.request.lengths, "N,...",
             "prompt tokens at which savings are given (default: the samples' lengths)")
      ->delimiter(',')
      ->check(whole_range(1, std::int64_t{1} << 40));

  command.option_defaults()->group("Model");
  add_model_options(command, o.trials)
      ->description(
          "GGUF file or Hugging Face folder of the profile's model, to try candidates on");
  command.get_option("--memory-budget")
      ->description("memory that the run may take, such as 6GiB (default: no limit)");
  add_option(command, "--for", o.runtime, "RUNTIME",
             "try candidates as this runtime would run them (" +
                 join(runtimes(), ", ", &Runtime::name) +
                 "), so that the policy is the best for it; lazy layers are then the same "
                 "for every input");
  add_number(command, "--new", o.trials.max_new, "N",
             "tokens generated for each sample; 0: as many as the task's answers need", 0,
             std::int64_t{1} << 20);
  command.option_defaults()->group("Options");
}

/// Options that several methods share: which tokens stay with every layer, and the tolerance.
void add_shared_options(CLI::App& command, Options& o) {
  if (std::any_of(o.methods.begin(), o.methods.end(),
                  [](const auto& wanted) { return wanted.command->shared().tolerance; }))
    add_number(command, "--tolerance", o.tolerance, "SHARE",
               "share of the score that what is chosen may lose, 0 to 1", 0.0, 1.0);
  std::vector<Options::Wanted*> keepers;
  for (auto& wanted : o.methods)
    if (wanted.command->shared().keep) keepers.push_back(&wanted);
  if (keepers.empty()) return;
  std::string whose;
  if (o.methods.size() > 1)
    for (const auto* keeper : keepers)
      whose += str(whose.empty() ? ", for " : " and ", keeper->row.method.title);
  const auto add = [&](const char* key, auto& value, const char* meaning) {
    const char* const first = keepers.front()->row.method.name;
    auto* option = as_setting(
        add_option(command, str("--", key), value, "TOKENS", str(meaning, whose)), first, key);
    std::string defaults = default_text(first, key);
    for (std::size_t i = 1; i < keepers.size(); ++i)
      defaults += str("; ", keepers[i]->row.method.title, " ",
                      default_text(keepers[i]->row.method.name, key));
    option->default_str(defaults);
  };
  add("initial", o.initial, "first tokens that every layer keeps");
  add("recent", o.recent,
      "last tokens that every layer keeps, the query's own included; by default fewer where the "
      "profile or its prompts' lengths do not allow the published number");
  for (std::size_t i = 1; i < keepers.size(); ++i) {
    const Method& method = keepers[i]->row.method;
    const auto add_own = [&](const char* key, auto& value) {
      limit_to_setting(add_option(command, str("--", method.name, "-", key), value, "TOKENS",
                                  str("another --", key, " for ", method.title)),
                       method.name, key)
          ->group(method.title);
    };
    add_own("initial", keepers[i]->initial);
    add_own("recent", keepers[i]->recent);
  }
}

/// Hands every method what the words of the command line say.
void settle(Options& o) {
  o.request.force = o.force;
  o.trials.keep_beside = o.profile;
  o.trials.resumed = o.resume;
  for (auto& wanted : o.methods) {
    const auto shared = wanted.command->shared();
    if (!wanted.initial) wanted.initial = o.initial;
    if (!wanted.recent) wanted.recent = o.recent;
    if (shared.tolerance) *shared.tolerance = o.tolerance;
    wanted.command->settle();
  }
}

/// Fits what was not given to the profile.
void suit(Options& o, const Evidence& evidence, std::vector<std::string>& said) {
  for (auto& wanted : o.methods) {
    std::vector<std::string> taken = wanted.command->suit(evidence);
    if (Proximity* keep = wanted.command->shared().keep)
      take(fitting_window(evidence, *keep, wanted.initial, wanted.recent), *keep, taken);
    for (const auto& one : taken) said.push_back(str(wanted.row.method.name, ": ", one));
  }
}

/// Leaves out the tasks that the model fails anyway, unless they are asked for.
Evidence without_failed_tasks(const Options& o, const Evidence& evidence, const RunTrials& run) {
  if (!run || !o.request.tasks.empty() || o.force) return evidence;
  Request request = o.request;
  const FailedTasks failed = failed_tasks(evidence, run);
  request.without = failed.names;
  for (const auto& one : failed.said) std::cerr << "kvatlas: " << one << '\n';
  return {evidence.profile(), request};
}

/// Trials in which every policy is what the runtime makes of it; the full cache stays. What it
/// changes is said once, on stderr, if `says`.
RunTrials as_runtime(const RunTrials& run, const std::string& runtime, const ModelInfo& model,
                     bool says) {
  const auto said = std::make_shared<std::set<std::string>>();
  return
      [=](std::span<const Policy> policies, std::span<const std::size_t> samples, Measure measure) {
        std::vector<Policy> real;
        for (const Policy& policy : policies) {
          if (policy.parts.empty()) {
            real.push_back(policy);
            continue;
          }
          RuntimePolicy made = simulated_in_runtime(policy, runtime, model);
          for (const auto& change : made.changes)
            if (said->insert(change).second && says) std::cerr << runtime << ": " << change << '\n';
          real.push_back(std::move(made.policy));
        }
        return run(real, samples, measure);
      };
}

RunTrials open_trials(const Options& o, const MakeTrials& make_trials,
                      const profile::Reader& profile, std::optional<TrialJournal>& journal) {
  if (o.trials.model.empty()) return nullptr;
  if (!make_trials)
    fail(ErrorCode::unsupported,
         "--model needs LibTorch, which this build lacks: run ./dev setup and ./dev build, or "
         "calibrate without a model");
  const RunTrials run = make_trials(o.trials, profile, [&](RunTrials on_model) {
    return kept_beside(o.output, trial_settings(o.trials, o.runtime, profile),
                       TrialJournal::asked(o.output, o.force, o.resume), journal,
                       std::move(on_model));
  });
  return o.runtime.empty() ? run : as_runtime(run, o.runtime, model_info(profile.header()), true);
}

/// Leaves out the methods that the model's cache cannot follow; Error(usage) if none is left.
void leave_out_for_cache(Options& o, const ModelInfo& model, std::vector<std::string>& said) {
  std::vector<std::string> refused;
  std::erase_if(o.methods, [&](const Options::Wanted& wanted) {
    try {
      check_cache(parse_policy(wanted.row.method.name), model);
      return false;
    } catch (const Error& error) {
      refused.emplace_back(error.what());
      return true;
    }
  });
  if (o.methods.empty()) fail(ErrorCode::usage, join(refused, "; "));
  for (const auto& why : refused) said.push_back("left out: " + why);
}

/// Without a model, leaves out the methods that go by trials alone, unless there are no others.
void leave_out_without_model(Options& o, std::vector<std::string>& said) {
  const auto needs = [](const Options::Wanted& wanted) { return wanted.command->needs_model(); };
  if (!o.trials.model.empty() || std::all_of(o.methods.begin(), o.methods.end(), needs)) return;
  for (const auto& wanted : o.methods)
    if (needs(wanted))
      said.push_back(str("left out: ", wanted.row.method.name, ", which needs --model"));
  std::erase_if(o.methods, needs);
}

/// Leaves out the methods that the runtime cannot carry out; Error(usage) if none is left.
void choose_runtime(Options& o, std::vector<std::string>& said) {
  const Runtime& runtime = runtime_named(o.runtime);
  std::erase_if(o.methods, [&](const Options::Wanted& wanted) {
    const bool fits = wanted.command->fit(runtime);
    if (!fits)
      said.push_back(str("left out: ", wanted.row.method.name, ", which ", runtime.title,
                         " cannot carry out"));
    return !fits;
  });
  if (o.methods.empty())
    fail(ErrorCode::usage, runtime.title, " can carry out none of what is asked for");
}

/// What was measured as a runtime runs it is kept under the runtime's name.
void measured_in(const std::string& runtime, const Method& method, nlohmann::json& section) {
  std::vector<nlohmann::json*> measured = {&section};
  for (const auto& control : method.controls)
    if (control.member && section.contains(control.member))
      measured.push_back(&section[control.member]);
  for (nlohmann::json* of : measured) {
    if (!of->contains("measured")) continue;
    (*of)["runtimes"][runtime] = std::move((*of)["measured"]);
    of->erase("measured");
  }
}

/// Error(usage) once, in place of once for each method, where the samples are too few for all.
void require_samples_of_all(const Options& o, const Evidence& evidence) {
  if (o.methods.size() < 2) return;
  const std::string names =
      join(o.methods, ", ", [](const Options::Wanted& wanted) { return wanted.row.method.name; });
  in_context(names, [&] {
    const auto require = [&](const std::vector<std::size_t>& positions, const char* which) {
      Calibrated forced;
      require_samples(evidence.count(positions), which, o.force, forced);
    };
    require(evidence.positions(), "in the profile");
    if (!o.trials.model.empty()) require(evidence.answered(evidence.positions()), "with answers");
  });
}

/// Lets every method run on trials that cost nothing, so that none of them ends for what the
/// profile lacks after others have worked for a long time. Returns the trials that they ask for.
std::vector<TrialRound> rehearse(const Options& o, const Evidence& evidence) {
  Rehearsal rehearsal;
  RunTrials trials = rehearsal.trials();
  if (!o.runtime.empty())
    trials = as_runtime(trials, o.runtime, model_info(evidence.header()), false);
  std::vector<std::string> lacking;
  for (const auto& wanted : o.methods) {
    const std::size_t before = rehearsal.calls();
    try {
      in_context(wanted.row.method.name, [&] { wanted.command->calibrate(evidence, trials); });
    } catch (const Error& error) {
      // What fails after a trial may fail for what was made up of it here.
      if (rehearsal.calls() > before) continue;
      if (error.code() != ErrorCode::usage) throw;
      lacking.emplace_back(error.what());
    }
  }
  if (!lacking.empty()) fail(ErrorCode::usage, join(lacking, "; "));
  return rehearsal.rounds();
}

std::vector<NextStep> next_steps(const Options& o) {
  if (o.output.empty()) return {{"the same command with -o policy.json", "keeps the policies"}};
  const std::string document = shell_word(o.output);
  std::vector<NextStep> steps;
  if (!o.trials.model.empty())
    steps.push_back({str("kvatlas evaluate ", model_words(o.trials), " --policy ", document),
                     "what they cost on texts that the profile does not have"});
  steps.push_back({str("kvatlas view ", shell_word(o.profile), " ", document), "look at them"});
  steps.push_back(export_step(o.output, o.runtime));
  return steps;
}

void run(Options& o, const MakeTrials& make_trials) {
  settle(o);
  outlive_readers();
  TrialJournal::asked(o.output, o.force, o.resume);
  if (o.resume && o.trials.model.empty())
    fail(ErrorCode::usage, "--resume goes on with trials on a model: give --model");
  const profile::Reader profile(o.profile);
  const Evidence all(profile, o.request);
  std::vector<std::string> said;
  leave_out_for_cache(o, model_info(profile.header()), said);
  leave_out_without_model(o, said);
  if (!o.runtime.empty()) choose_runtime(o, said);
  require_samples_of_all(o, all);
  suit(o, all, said);
  if (!o.trials.model.empty()) o.trials.planned = rehearse(o, all);
  std::optional<TrialJournal> journal;
  // To open them may start the program anew: what is said before would be said twice.
  const RunTrials trials = open_trials(o, make_trials, profile, journal);
  for (const auto& one : said) std::cerr << "kvatlas: " << one << '\n';
  const Evidence evidence = without_failed_tasks(o, all, trials);

  Document document;
  document.model = model_info(profile.header());
  document.runtime = o.runtime;
  document.provenance = provenance(evidence);
  document.provenance.tool_version = KVATLAS_VERSION;
  for (const auto& wanted : o.methods) {
    const char* const method = wanted.row.method.name;
    Calibrated found;
    try {
      found = in_context(method, [&] {
        const auto calibrate = [&] { return wanted.command->calibrate(evidence, trials); };
        return document.sections.empty() ? unless_refused(journal, calibrate) : calibrate();
      });
    } catch (...) {
      if (!o.output.empty() && !document.sections.empty()) {
        write_document(document, o.output, o.force || o.resume);
        std::cerr << o.output << ": written, without " << method << " and what follows it\n";
      }
      throw;
    }
    if (!o.as_json)
      for (const auto& table : found.tables) std::cout << table_text(table) << '\n';
    for (const auto& note : found.notes) std::cerr << method << ": " << note << '\n';
    if (found.section.is_null()) continue;
    if (!o.runtime.empty()) measured_in(o.runtime, wanted.row.method, found.section);
    document.sections[method] = std::move(found.section);
  }

  const bool none = document.sections.empty();
  const std::string text = document_text(document);
  if (!o.output.empty() && !none) write_document(document, o.output, o.force || o.resume);
  if (journal) journal->remove();
  if (o.as_json) std::cout << text;
  if (none) {
    std::cerr << "kvatlas: nothing was found that saves and keeps the score"
              << (o.output.empty() ? "" : ", so no document was written")
              << " (--tolerance SHARE allows a loss)\n";
    throw CLI::RuntimeError(kExitNotMet);
  }
  if (!o.output.empty()) std::cerr << o.output << ": written\n";
  say_next(next_steps(o));
}

/// The rows of all methods of calibration, in the order of the document's sections.
const std::vector<CalibratedMethod>& calibrated_methods() {
  static const std::vector<CalibratedMethod> all = {simlayerkv_command(), pod_command(),
                                                    dynamickv_command(),  headkv_command(),
                                                    lagkv_command(),      precision_command()};
  return all;
}

}  // namespace

void add_calibrate_command(CLI::App& app, MakeTrials make_trials,
                           const std::function<void(CLI::App&)>& add_auto) {
  CLI::App* command = app.add_subcommand("calibrate", kCalibrateSummary);
  command->require_subcommand(1);
  command->footer(
      "Without --model the profile alone is used: nothing is tried, and costs are unknown.\n"
      "Exit status 4: nothing was found that saves and keeps the score; --tolerance allows a "
      "loss.\n"
      "Sizes are in tokens, shares from 0 to 1. docs/calibration.md explains the tables.\n"
      "\n"
      "Examples:\n"
      "  kvatlas calibrate all -p p.h5 --model M -o policy.json\n"
      "  kvatlas calibrate auto -p p.h5 --model M --memory 24GiB --context 32768 --batch 8 -o "
      "policy.json\n"
      "  kvatlas calibrate pod --help");
  const auto add_method = [&](const char* name, const char* summary, const char* examples,
                              std::span<const CalibratedMethod> methods) {
    const auto options = std::make_shared<Options>();
    Options& o = *options;
    for (const auto& method : methods) o.methods.push_back({method, method.make(), {}, {}});
    CLI::App* sub = command->add_subcommand(name, summary);
    add_common_options(*sub, o);
    add_shared_options(*sub, o);
    for (const auto& wanted : o.methods) {
      sub->option_defaults()->group(methods.size() == 1 ? "Options" : wanted.row.method.title);
      wanted.command->add_options(*sub);
    }
    sub->footer(std::string("Examples:\n") + examples);
    lead_with(*sub, leading_options(*sub));
    sub->callback([options, make_trials] { run(*options, make_trials); });
  };
  for (const auto& row : calibrated_methods())
    add_method(row.method.name, row.summary, row.examples, {&row, 1});
  add_method(
      "all", "All methods, in one document",
      "  kvatlas calibrate all -p p.h5 --model M -o policy.json\n"
      "  kvatlas calibrate all -p p.h5 --model M --recent 256 --pod-recent 240 --lags 64,128",
      calibrated_methods());
  add_auto(*command);
}

}  // namespace kvatlas
