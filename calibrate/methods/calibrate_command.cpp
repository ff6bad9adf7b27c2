// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/plain_text.hpp"
#include "base/real_range.hpp"
#include "base/whole_file.hpp"
#include "calibrate/methods/commands.hpp"
#include "calibrate/methods/dynamickv.hpp"
#include "calibrate/methods/lagkv.hpp"
#include "calibrate/methods/pod.hpp"
#include "calibrate/methods/simlayerkv.hpp"
#include "calibrate/policy/policy_settings.hpp"
#include "calibrate/policy/setting_option.hpp"
#include "calibrate/runtimes/runtimes.hpp"

namespace kvatlas {
namespace {

using namespace calibrate;

/// The words of the command line.
struct Options {
  std::vector<std::string> methods;
  std::string profile, output;
  bool as_json = false, force = false;
  TrialOptions trials;
  Request request;
  std::string runtime;
  std::optional<double> tolerance;
  // SimLayerKV and PoD, where both are asked for, take these for their proximal tokens.
  std::optional<std::int64_t> initial, recent, pod_initial, pod_recent;
  SimLayerRequest simlayerkv;
  std::string identify, granularity;
  PodRequest pod;
  std::string memory = "24GiB";
  DynamicRequest dynamickv;
  std::string pooling;
  LagRequest lagkv;

  bool wants(const char* method) const {
    return std::find(methods.begin(), methods.end(), method) != methods.end();
  }
};

const char* const kSampling = "Samples";
const char* const kModel = "Model";

void add_common_options(CLI::App& command, Options& o) {
  command.add_option("-p,--profile", o.profile, "the profile, as 'kvatlas profile' writes it")
      ->required()
      ->type_name("FILE");
  command.add_option("-o,--output", o.output, "the policy document to write")->type_name("FILE");
  command.add_flag("--json", o.as_json, "print the document instead of tables");
  command.add_flag("--force", o.force,
                   "replace the output if it is there, and calibrate on fewer than 5 samples, or "
                   "where the full cache scores below 0.5 (the document says so)");

  command
      .add_option("--tasks", o.request.tasks, "only samples of these tasks (default: all of them)")
      ->delimiter(',')
      ->type_name("NAME,...")
      ->group(kSampling);
  command
      .add_option("--held-out", o.request.held_out,
                  "share of the samples that the choice does not see and the loss is measured on; "
                  "nothing is held out of fewer than 10")
      ->check(real_range(0.0, 0.9))
      ->capture_default_str()
      ->type_name("SHARE")
      ->group(kSampling);
  command.add_option("--seed", o.request.seed, "of the split and of the intervals")
      ->capture_default_str()
      ->type_name("NUMBER")
      ->group(kSampling);
  command
      .add_option("--lengths", o.request.lengths,
                  "prompt tokens at which savings are given (default: the samples' lengths)")
      ->delimiter(',')
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
      ->type_name("N,...")
      ->group(kSampling);

  command.option_defaults()->group(kModel);
  add_model_options(command, o.trials)
      ->description(
          "GGUF file or Hugging Face folder of the profile's model, to try candidates on");
  command.get_option("--memory-budget")
      ->description("memory the run may take, as 6GiB (default: no limit)");
  command
      .add_option("--for", o.runtime,
                  "try candidates as this runtime would run them (" +
                      join(runtimes(), ", ", &Runtime::name) +
                      "), so that the policy is the best for it; lazy layers are then the same "
                      "for every input")
      ->type_name("RUNTIME");
  command
      .add_option("--new", o.trials.max_new,
                  "tokens generated of each sample; 0: as many as the task's answers need")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 20))
      ->capture_default_str()
      ->type_name("N");
  command.option_defaults()->group("Options");
}

void add_tolerance(CLI::App& command, Options& o) {
  command
      .add_option("--tolerance", o.tolerance,
                  "share of the score that may be lost, 0 to 1 (default: the greater of 0.01 and "
                  "one sample)")
      ->check(real_range(0.0, 1.0))
      ->type_name("SHARE");
}

void add_simlayerkv_options(CLI::App& command, Options& o, bool alone) {
  const char* group = alone ? "Options" : "SimLayerKV";
  limit_to_setting(command.add_option("--threshold", o.simlayerkv.threshold,
                                      setting_named("simlayerkv", "threshold").meaning +
                                          ", 0 to 1 (default: searched for, which needs --model)"),
                   "simlayerkv", "threshold")
      ->type_name("SHARE")
      ->group(group);
  as_setting(command.add_option("--identify", o.identify,
                                "when layers are told: decode (at the first generated token) or "
                                "prefill (at the last prompt rows)"),
             "simlayerkv", "identify")
      ->type_name("WHEN")
      ->group(group);
  as_setting(command.add_option("--w-last", o.simlayerkv.policy.w_last,
                                "prompt rows looked at by prefill"),
             "simlayerkv", "w_last")
      ->type_name("N")
      ->group(group);
  command
      .add_option("--static-share", o.simlayerkv.static_share,
                  "share of samples from which a layer is lazy in the static view, 0 to 1")
      ->check(real_range(0.0, 1.0))
      ->capture_default_str()
      ->type_name("SHARE")
      ->group(group);
  command.add_flag("--per-head", o.simlayerkv.policy.per_head, "tell KV heads, not layers")
      ->group(group);
  command
      .add_flag("--fixed", o.simlayerkv.fixed,
                "make the static view the policy: the same lazy layers for every input")
      ->group(group);
}

void add_pod_options(CLI::App& command, Options& o, bool alone) {
  const char* group = alone ? "Options" : "PoD";
  auto* delta = limit_to_setting(
                    command.add_option(
                        "--delta", o.pod.delta,
                        "least similarity of a block's layers, 0 to 1 (default: with --model the "
                        "least that keeps the score, else " +
                            default_text("pod", "delta") + ")"),
                    "pod", "delta")
                    ->type_name("SHARE")
                    ->group(group);
  command
      .add_option("--save", o.pod.wanted_saving,
                  "or the greatest that saves this share of the cache at the longest of --lengths")
      ->check(real_range(0.0, 0.5))
      ->excludes(delta)
      ->type_name("SHARE")
      ->group(group);
  limit_to_setting(
      command.add_option("--deltas", o.pod.deltas, "of the sweep (default: 0.05 to 0.95)"), "pod",
      "delta")
      ->delimiter(',')
      ->type_name("SHARE,...")
      ->group(group);
  as_setting(command.add_option("--granularity", o.granularity,
                                "what has blocks of its own: kv-head or head (query heads)"),
             "pod", "granularity")
      ->type_name("WHAT")
      ->group(group);
  as_setting(command.add_option("--tau", o.pod.policy.tau,
                                "gate from which a head skips the distant part, 0 to 1; 1: never"),
             "pod", "tau")
      ->type_name("SHARE")
      ->group(group);
  command.add_option("--memory", o.memory, "memory for KV caches that the greatest batch is of")
      ->capture_default_str()
      ->type_name("SIZE")
      ->group(group);
  command
      .add_option("--new-tokens", o.pod.new_tokens, "generated after the prompt, for that batch")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 24))
      ->capture_default_str()
      ->type_name("TOKENS")
      ->group(group);
}

void add_dynamickv_options(CLI::App& command, Options& o, bool alone) {
  const char* group = alone ? "Options" : "DynamicKV";
  auto& select = o.dynamickv.policy.select;
  as_setting(command.add_option("--budget", select.budget,
                                setting_named("dynamickv", "budget").meaning + ": the document's"),
             "dynamickv", "budget")
      ->type_name("TOKENS")
      ->group(group);
  limit_to_setting(command.add_option("--budgets", o.dynamickv.budgets,
                                      "of the sweep (default: those of the profile)"),
                   "dynamickv", "budget")
      ->delimiter(',')
      ->type_name("TOKENS,...")
      ->group(group);
  as_setting(
      command.add_option("--window", select.window, "last prompt rows, which score the others"),
      "dynamickv", "window")
      ->type_name("TOKENS")
      ->group(group);
  as_setting(command.add_option("--kernel", select.kernel), "dynamickv", "kernel")
      ->type_name("N")
      ->group(group);
  as_setting(command.add_option("--pooling", o.pooling, "how: avg or max"), "dynamickv", "pooling")
      ->type_name("HOW")
      ->group(group);
  as_setting(command.add_option("--r-max", o.dynamickv.policy.r_max), "dynamickv", "r_max")
      ->type_name("NUMBER")
      ->group(group);
}

void add_lagkv_options(CLI::App& command, Options& o, bool alone) {
  const char* group = alone ? "Options" : "LagKV";
  as_setting(command.add_option("--sink", o.lagkv.sink), "lagkv", "sink")
      ->type_name("TOKENS")
      ->group(group);
  limit_to_setting(
      command.add_option("--lags", o.lagkv.lags, "partition sizes of the sweep, in tokens"),
      "lagkv", "lag")
      ->delimiter(',')
      ->default_str("128,512,1024")
      ->type_name("TOKENS,...")
      ->group(group);
  command.add_option("--ratios", o.lagkv.ratios, "shares of a partition kept, as 0.25 or 1/4")
      ->delimiter(',')
      ->default_str("1/2,1/4,1/6,1/8")
      ->type_name("R,...")
      ->group(group);
  command
      .add_option("--compression", o.lagkv.compression,
                  "share of the cache that the recommended setting saves at least, 0 to 1")
      ->check(real_range(0.0, 1.0))
      ->capture_default_str()
      ->type_name("SHARE")
      ->group(group);
}

/// What the words mean, in the requests.
void settle(Options& o) {
  o.request.force = o.force;
  o.simlayerkv.policy.identify =
      o.identify == "prefill" ? SimLayerKv::Identify::prefill : SimLayerKv::Identify::decode;
  auto& lazy = o.simlayerkv.policy.keep;
  lazy = {o.initial.value_or(lazy.initial), o.recent.value_or(lazy.recent)};
  auto& proximal = o.pod.policy.proximal;
  if (!o.pod_initial) o.pod_initial = o.initial;
  if (!o.pod_recent) o.pod_recent = o.recent;
  proximal = {o.pod_initial.value_or(proximal.initial), o.pod_recent.value_or(proximal.recent)};
  o.pod.policy.per_query_head = o.granularity == "head";
  o.simlayerkv.tolerance = o.pod.tolerance = o.tolerance;
  o.pod.memory_bytes = static_cast<double>(parse_bytes(o.memory));
  o.dynamickv.policy.select.pooling = o.pooling == "max" ? Pooling::maximum : Pooling::average;
}

/// Trials in which every policy is what the runtime makes of it; the full cache stays. What it
/// changes is said once, on stderr.
RunTrials as_runtime(const RunTrials& run, const std::string& runtime, const ModelInfo& model) {
  const auto said = std::make_shared<std::set<std::string>>();
  return [=](std::span<const Policy> policies, std::span<const std::size_t> samples) {
    std::vector<Policy> real;
    for (const Policy& policy : policies) {
      if (policy.parts.empty()) {
        real.push_back(policy);
        continue;
      }
      RuntimePolicy made = simulated_in_runtime(policy, runtime, model);
      for (const auto& change : made.changes)
        if (said->insert(change).second) std::cerr << runtime << ": " << change << '\n';
      real.push_back(std::move(made.policy));
    }
    return run(real, samples);
  };
}

RunTrials open_trials(const Options& o, const MakeTrials& make_trials,
                      const profile::Reader& profile) {
  if (o.trials.model.empty()) return nullptr;
  if (!make_trials)
    fail(ErrorCode::unsupported,
         "--model needs LibTorch, which this build lacks: run ./dev setup and ./dev build, or "
         "calibrate without a model (simlayerkv then needs --threshold)");
  const RunTrials run = make_trials(o.trials, profile);
  return o.runtime.empty() ? run : as_runtime(run, o.runtime, model_info(profile.header()));
}

/// Leaves out the methods that the runtime cannot carry out; Error(usage) if none is left. A
/// runtime that cannot tell layers by input gets them fixed.
void choose_runtime(Options& o) {
  const Runtime& runtime = runtime_named(o.runtime);
  const auto able = [&](Form form) { return runtime.takes(form); };
  const bool lazy = o.simlayerkv.policy.per_head ? able(Form::lazy_heads) : able(Form::lazy_layers);
  const std::pair<const char*, bool> can[] = {{"simlayerkv", lazy || able(Form::lazy_by_input)},
                                              {"pod", able(Form::pod)},
                                              {"dynamickv", able(Form::dynamickv)},
                                              {"lagkv", able(Form::lagkv)}};
  for (const auto& [method, fits] : can)
    if (!fits && std::erase(o.methods, method) > 0)
      std::cerr << method << ": " << runtime.title << " cannot carry it out\n";
  if (o.methods.empty())
    fail(ErrorCode::usage, runtime.title, " can carry out none of what is asked for");
  if (!able(Form::lazy_by_input) || o.simlayerkv.policy.per_head) o.simlayerkv.fixed = true;
}

/// What was measured as a runtime runs it is kept under the runtime's name.
void measured_in(const std::string& runtime, nlohmann::json& section) {
  for (nlohmann::json* of : {&section, section.contains("static") ? &section["static"] : nullptr}) {
    if (!of || !of->contains("measured")) continue;
    (*of)["runtimes"][runtime] = std::move((*of)["measured"]);
    of->erase("measured");
  }
}

void run(Options& o, const MakeTrials& make_trials) {
  settle(o);
  outlive_readers();
  if (!o.output.empty() && !o.force && std::filesystem::exists(o.output)) fail_exists(o.output);
  const profile::Reader profile(o.profile);
  const Evidence evidence(profile, o.request);
  if (!o.runtime.empty()) choose_runtime(o);
  const RunTrials trials = open_trials(o, make_trials, profile);

  Document document;
  document.model = model_info(profile.header());
  document.runtime = o.runtime;
  document.provenance = provenance(evidence);
  document.provenance.tool_version = KVATLAS_VERSION;
  const auto add = [&](const char* method, Calibrated found) {
    if (!o.runtime.empty()) measured_in(o.runtime, found.section);
    document.sections[method] = std::move(found.section);
    if (!o.as_json)
      for (const auto& table : found.tables) std::cout << table_text(table) << '\n';
    for (const auto& note : found.notes) std::cerr << method << ": " << note << '\n';
  };
  const auto calibrate = [&](const char* method, auto&& how) {
    if (o.wants(method)) add(method, in_context(method, how));
  };
  calibrate("simlayerkv", [&] { return calibrate_simlayerkv(evidence, o.simlayerkv, trials); });
  calibrate("pod", [&] { return calibrate_pod(evidence, o.pod, trials); });
  calibrate("dynamickv", [&] { return calibrate_dynamickv(evidence, o.dynamickv, trials); });
  calibrate("lagkv", [&] { return calibrate_lagkv(evidence, o.lagkv, trials); });

  const std::string text = document_text(document);
  if (!o.output.empty()) write_document(document, o.output, o.force);
  if (o.as_json) std::cout << text;
  if (!std::cout.flush()) fail(ErrorCode::resource, "writing the result failed");
  if (!o.output.empty()) std::cerr << o.output << ": written\n";
}

struct Method {
  const char *name, *summary, *example;
};
constexpr Method kMethods[] = {
    {"simlayerkv", "Which layers are lazy, and need only initial and recent tokens",
     "  kvatlas calibrate simlayerkv -p p.h5 --model M --recent 256 -o policy.json\n"
     "  kvatlas calibrate simlayerkv -p p.h5 --threshold 0.8 --recent 256"},
    {"pod", "Which layers can share the keys of distant tokens",
     "  kvatlas calibrate pod -p p.h5 --model M --initial 16 --recent 240 -o policy.json\n"
     "  kvatlas calibrate pod -p p.h5 --save 0.35 --lengths 8192,32768"},
    {"dynamickv", "How many tokens each layer deserves",
     "  kvatlas calibrate dynamickv -p p.h5 --budget 256 -o policy.json"},
    {"lagkv", "How hard eviction by the next tokens' range may cut",
     "  kvatlas calibrate lagkv -p p.h5 --model M --lags 64,128,256 --compression 0.6 -o "
     "policy.json"}};

}  // namespace

void add_calibrate_command(CLI::App& app, MakeTrials make_trials,
                           const std::function<void(CLI::App&)>& add_auto) {
  CLI::App* command = app.add_subcommand(
      "calibrate", "Find what the KV cache can do without, from a profile and trials on the model");
  command->require_subcommand(1);
  command->footer(
      "Without --model the profile alone is used: nothing is tried, and costs are unknown.\n"
      "Sizes are in tokens, shares from 0 to 1. docs/calibration.md explains the tables.\n"
      "\n"
      "Examples:\n"
      "  kvatlas calibrate all -p p.h5 --model M --initial 4 --recent 256 -o policy.json\n"
      "  kvatlas calibrate auto -p p.h5 --model M --memory 24GiB --context 32768 --batch 8 -o "
      "policy.json\n"
      "  kvatlas calibrate pod --help");
  const auto add_method = [&](const char* name, const char* summary, const char* example,
                              std::vector<std::string> methods) {
    const auto options = std::make_shared<Options>();
    Options& o = *options;
    o.methods = std::move(methods);
    CLI::App* sub = command->add_subcommand(name, summary);
    add_common_options(*sub, o);
    const bool alone = o.methods.size() == 1;
    const bool lazy = o.wants("simlayerkv"), pod = o.wants("pod");
    if (lazy || pod) {
      const char* both = alone ? "" : ", for SimLayerKV and PoD";
      const char* first = lazy ? "simlayerkv" : "pod";
      const auto add_tokens = [&](const char* option, const char* key, auto& to, const char* help) {
        as_setting(sub->add_option(option, to, str(help, both)), first, key)->type_name("TOKENS");
        if (lazy && pod)
          sub->get_option(option)->default_str(default_text("simlayerkv", key) + "; PoD " +
                                               default_text("pod", key));
      };
      add_tokens("--initial", "initial", o.initial, "first tokens that stay with every layer");
      add_tokens("--recent", "recent", o.recent, "last tokens that do, the query's own included");
      add_tolerance(*sub, o);
    }
    if (lazy && pod) {
      limit_to_setting(sub->add_option("--pod-initial", o.pod_initial, "another --initial for PoD"),
                       "pod", "initial")
          ->type_name("TOKENS")
          ->group("PoD");
      limit_to_setting(sub->add_option("--pod-recent", o.pod_recent, "another --recent for PoD"),
                       "pod", "recent")
          ->type_name("TOKENS")
          ->group("PoD");
    }
    if (lazy) add_simlayerkv_options(*sub, o, alone);
    if (pod) add_pod_options(*sub, o, alone);
    if (o.wants("dynamickv")) add_dynamickv_options(*sub, o, alone);
    if (o.wants("lagkv")) add_lagkv_options(*sub, o, alone);
    sub->footer(std::string("Examples:\n") + example);
    sub->callback([options, make_trials] { run(*options, make_trials); });
  };
  std::vector<std::string> all;
  for (const auto& method : kMethods) {
    add_method(method.name, method.summary, method.example, {method.name});
    all.emplace_back(method.name);
  }
  add_method("all", "All four, in one document",
             "  kvatlas calibrate all -p p.h5 --model M --recent 256 --pod-initial 16 --pod-recent "
             "240 --lags 64,128,256 -o policy.json",
             all);
  add_auto(*command);
}

}  // namespace kvatlas
