// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "analyzer/capture/profile_prompts.hpp"
#include "analyzer/capture/progress.hpp"
#include "analyzer/capture/run_options.hpp"
#include "calibrate/commands.hpp"
#include "calibrate/evaluate.hpp"
#include "calibrate/evidence.hpp"
#include "calibrate/pod_blocks.hpp"
#include "calibrate/questions.hpp"
#include "calibrate/runtimes.hpp"
#include "kernels/base/error.hpp"

namespace kvatlas {
namespace {

using namespace calibrate;
using nlohmann::json;

struct EvaluateCommand {
  capture::RunOptions run;
  capture::PromptOptions prompts;
  QuestionOptions questions;
  std::vector<std::string> policies;
  std::vector<std::string> against;
  std::string runtime, document_task, output;
  std::int64_t time_steps = 8;
  bool rolling = false, json = false, generations = false, positions = false, force = false;
  bool no_comparison = false;
};

/// Splits "full,streaming:initial=4,recent=256" where a policy begins, not where a setting does.
std::vector<std::string> split_policies(const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  for (const auto& text : texts) {
    std::size_t start = 0;
    bool first = true;
    while (start <= text.size()) {
      const std::size_t comma = std::min(text.find(',', start), text.size());
      const std::string piece = text.substr(start, comma - start);
      const bool setting = piece.find('=') < piece.find(':');
      if (setting && !first)
        out.back() += "," + piece;
      else
        out.push_back(piece);
      first = false;
      start = comma + 1;
    }
  }
  return out;
}

bool is_file(const std::string& text) {
  return text.ends_with(".json") || std::filesystem::is_regular_file(text);
}

void require_same_model(const Document& document, const model::ModelFile& model) {
  const auto& of = document.model;
  const auto& config = model.config();
  if (of.fingerprint == model.fingerprint()) return;
  if (of.layers != config.n_layers || of.heads != config.n_heads ||
      of.kv_heads != config.n_kv_heads)
    fail(ErrorCode::usage, "the policy is of ", quoted(of.name), " with ", of.layers,
         " layers and ", of.heads, " heads; this model has ", config.n_layers, " and ",
         config.n_heads);
  std::cerr << "kvatlas: note: the policy was calibrated on another model file ("
            << printable(of.name) << ") of the same shape\n";
}

std::vector<Policy> gather_policies(const EvaluateCommand& command, const model::ModelFile& model) {
  std::vector<Policy> policies;
  const auto& config = model.config();
  const ModelInfo info{config.name,         model::architecture_name(config.architecture),
                       model.fingerprint(), config.n_layers,
                       config.n_heads,      config.n_kv_heads,
                       config.head_dim};
  const auto add = [&](Policy policy) {
    // The full cache is in every table already.
    if (policy.parts.empty() && policy.kv_bits == 16) return;
    policy.rolling |= command.rolling;
    load_blocks(policy, config);
    if (!command.runtime.empty()) {
      const std::string name = policy.name;
      auto behaves = simulated_in_runtime(policy, command.runtime, info);
      for (const auto& change : behaves.changes)
        std::cerr << "kvatlas: note: " << name << " in " << command.runtime << ": " << change
                  << '\n';
      policy = std::move(behaves.policy);
      policy.name = name + " in " + command.runtime;
    }
    policies.push_back(std::move(policy));
  };
  // A runtime that takes some of a document's policies is judged on those.
  const auto add_policies_of = [&](const Document& document) {
    std::vector<std::string> left_out;
    const std::size_t before = policies.size();
    for (auto& policy : policies_of(document, command.document_task)) {
      if (command.runtime.empty()) {
        add(std::move(policy));
        continue;
      }
      try {
        add(given_to_runtime(document, policy, runtime_named(command.runtime)).policy);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::usage) throw;
        left_out.emplace_back(error.what());
      }
    }
    if (left_out.empty()) return;
    if (policies.size() == before) fail(ErrorCode::usage, left_out.front());
    for (const auto& reason : left_out) std::cerr << "kvatlas: left out: " << reason << '\n';
  };
  for (const auto& text : command.policies) {
    if (!is_file(text)) {
      add(parse_policy(text));
      continue;
    }
    const Document document = read_document(text);
    in_context(text, [&] { require_same_model(document, model); });
    add_policies_of(document);
  }
  for (const auto& text : split_policies(command.against)) add(parse_policy(text));
  return policies;
}

json positions_json(const Outcome& outcome) {
  json out = json::array();
  for (const auto& layer : outcome.positions) {
    json heads = json::array();
    for (const auto& head : layer) {
      json ranges = json::array();
      for (const auto& range : head) ranges.push_back({range.begin, range.end});
      heads.push_back(std::move(ranges));
    }
    out.push_back(std::move(heads));
  }
  return out;
}

void print_generations(const Evaluation& evaluation, bool has_text) {
  const auto line = [&](const Question& question, const std::string& policy, const Judged& judged) {
    const Outcome& o = judged.outcome;
    json out = {{"id", question.prompt.id},
                {"policy", policy},
                {"tokens", o.tokens},
                {"text", has_text ? json(judged.text) : json()},
                {"cache_lengths", o.cache_lengths},
                {"kept", o.kept},
                {"kept_bytes", o.kept_bytes}};
    const auto number = [&](const char* name, double value) {
      out[name] = std::isnan(value) ? json(nullptr) : json(value);
    };
    number("score", judged.score);
    number("kl", o.kl);
    number("agreement", o.agreement);
    if (!o.positions.empty()) out["positions"] = positions_json(o);
    if (!o.mass.empty()) out["mass"] = o.mass;
    if (!o.mass.empty() || !o.lazy.empty()) out["lazy"] = o.lazy;
    if (!o.budgets.empty()) out["budgets"] = o.budgets;
    if (!o.lowest.empty()) out["lowest_layer"] = o.lowest;
    if (!std::isnan(o.skipped)) out["gate_skipped"] = o.skipped;
    std::cout << out.dump(-1, ' ', false, json::error_handler_t::replace) << '\n';
  };
  for (std::size_t q = 0; q < evaluation.questions.size(); ++q) {
    line(evaluation.questions[q], "full", evaluation.full[q]);
    for (std::size_t i = 0; i < evaluation.policies.size(); ++i)
      line(evaluation.questions[q], evaluation.policies[i], evaluation.judged[i][q]);
  }
}

/// The document with what was measured in its sections.
void write_measured(const EvaluateCommand& command, const std::vector<Policy>& policies,
                    const Evaluation& evaluation) {
  Document document = read_document(command.policies.front());
  const auto measured = measured_json(evaluation, static_cast<std::uint64_t>(command.prompts.seed));
  for (std::size_t i = 0; i < policies.size(); ++i) {
    const std::string& place = policies[i].section;
    if (place.empty()) continue;  // of --against
    const auto places = place == kComposition ? document.compose : std::vector<std::string>{place};
    for (const auto& one : places) {
      json& section = document.sections[json::json_pointer("/" + one)];
      json& of = command.runtime.empty() ? section : section["runtimes"];
      of[command.runtime.empty() ? "measured" : command.runtime] = measured[i + 1];
    }
  }
  write_document(document, command.output, command.force);
}

/// What the reader of the scores should know.
void print_notes(const Evaluation& evaluation) {
  std::vector<double> scores;
  for (const auto& judged : evaluation.full)
    if (!std::isnan(judged.score)) scores.push_back(judged.score);
  if (scores.empty()) return;
  const std::size_t scored = scores.size();
  const double full_score = mean_of(scores);
  for (const auto& policy : evaluation.judged)
    for (const auto& judged : policy)
      if (!std::isnan(judged.score)) scores.push_back(judged.score);
  if (scored < kLeastSamples)
    std::cerr << "kvatlas: note: prompts with answers: " << scored << "; "
              << samples_needed(deviation_of(scores)) << " make an interval of about +-5 points\n";
  if (full_score < kLeastFullScore)
    std::cerr << "kvatlas: note: the full cache scores " << fixed_text(full_score, 2)
              << ": what a policy loses drowns in what the model fails anyway\n";
}

void run_evaluate(EvaluateCommand command) {
  capture::restart_with_sleeping_threads();
  if (!command.output.empty()) {
    if (command.policies.size() != 1 || !is_file(command.policies.front()))
      fail(ErrorCode::usage,
           "-o writes a policy document with what was measured: give exactly one "
           "document with --policy");
    if (std::filesystem::exists(command.output) && !command.force)
      fail(ErrorCode::usage, printable(command.output), " is there already; --force replaces it");
  }
  capture::EngineOptions engine_options = capture::engine_options(command.run);
  const auto model = model::ModelFile::open(command.run.model);
  const auto policies = gather_policies(command, *model);
  if (command.run.prompts_file.empty() && command.run.prompt_texts.empty()) {
    if (command.prompts.tasks.empty()) command.prompts.tasks = {"needle", "passkey"};
    if (command.prompts.lengths.empty() && !command.prompts.quick) command.prompts.lengths = {1024};
  }
  auto questions =
      make_questions(capture::plan_prompts(command.prompts, command.run, *model).prompts,
                     command.questions, command.run, *model);
  std::int64_t tokens = 0;
  for (const auto& question : questions)
    tokens += static_cast<std::int64_t>(question.tokens.size());

  SimulateOptions options;
  options.end_tokens = capture::end_tokens(*model, command.run.ignore_eos);
  options.compare = !command.no_comparison;
  options.time_steps = command.time_steps;
  options.positions = command.positions;
  set_memory(engine_options, questions, model->config(), options);
  capture::Engine engine(model, engine_options);
  std::cerr << "kvatlas: " << engine.plan() << "; " << policies.size()
            << (policies.size() == 1 ? " policy" : " policies") << " beside full on "
            << questions.size() << (questions.size() == 1 ? " prompt\n" : " prompts\n");
  Evaluation evaluation;
  {
    capture::Progress progress(static_cast<std::int64_t>(questions.size()), tokens,
                               model->config().n_layers);
    evaluation =
        evaluate(engine, std::move(questions), policies, options, [&](const Question& question) {
          progress.sample(static_cast<std::int64_t>(question.tokens.size()));
        });
  }
  const auto seed = static_cast<std::uint64_t>(command.prompts.seed);
  if (!command.output.empty() && evaluation.interrupted == 0)
    write_measured(command, policies, evaluation);
  if (command.generations) {
    print_generations(evaluation, model->tokenizer() != nullptr);
  } else if (command.json) {
    json out = evaluation_json(evaluation, seed);
    out["model"] = {{"name", model->config().name}, {"fingerprint", model->fingerprint()}};
    std::cout << out.dump(2, ' ', false, json::error_handler_t::replace) << '\n';
  } else {
    for (const auto& table : evaluation_tables(evaluation, seed))
      std::cout << table_text(table) << '\n';
    std::cout << "Prefill took " << capture::duration_str(evaluation.prefill_seconds)
              << ", decoding all policies " << capture::duration_str(evaluation.decode_seconds)
              << ".\n";
  }
  if (!std::cout.flush()) fail(ErrorCode::resource, "writing the result failed");
  print_notes(evaluation);
  if (evaluation.interrupted > 0)
    fail(ErrorCode::cancelled, "interrupted: the result is of ", evaluation.questions.size(),
         " prompts, ", evaluation.interrupted, " were not run");
}

}  // namespace

void add_evaluate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "evaluate", "Try cache policies on the model: what they save and what they cost");
  auto options = std::make_shared<EvaluateCommand>();
  capture::add_model_options(*command, options->run);
  command
      ->add_option("--policy", options->policies,
                   "a policy document, or a policy as text (below); may be repeated")
      ->type_name("POLICY")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("--against", options->against,
                   "further policies as text, with commas between; full is always there")
      ->type_name("POLICY,...")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command
      ->add_option("--as", options->runtime, "judge what this runtime would do with the policies")
      ->type_name("RUNTIME");
  command
      ->add_option("--budgets-of", options->document_task,
                   "of a document's DynamicKV budgets, take those of this task")
      ->type_name("TASK");
  command->add_flag("--rolling", options->rolling,
                    "windows stay at their size while decoding, as in a ring buffer");
  command->add_flag("--compress-context", options->questions.compress_context,
                    "cut the cache before the question is read");
  capture::add_prompt_options(*command, options->prompts, options->run);
  command->get_option("--task")->default_str("needle and passkey");
  command->get_option("--lengths")->default_str("1024");
  command
      ->add_option("--new", options->questions.max_new,
                   "tokens to generate; 0: as many as the task's answers need")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 20))
      ->type_name("N")
      ->group("Prompts");
  command
      ->add_option("--max-tokens", options->questions.most_tokens,
                   "longer prompts lose their middle; 0: the model's context")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 24))
      ->type_name("N")
      ->group("Prompts");
  command->add_flag("--ignore-eos", options->run.ignore_eos, "go on after an end-of-sequence token")
      ->group("Prompts");
  command->add_flag("--no-comparison", options->no_comparison,
                    "leave out KL divergence and agreement (half of the decoding)");
  command
      ->add_option("--time-steps", options->time_steps,
                   "steps by which each policy is timed alone, on the first prompt; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1024}))
      ->type_name("N");
  command
      ->add_option("-o,--output", options->output,
                   "write the policy document with what was measured")
      ->type_name("FILE");
  command->add_flag("--force", options->force, "replace the file of -o");
  command->add_flag("--json", options->json, "print the result as JSON");
  command->add_flag("--generations", options->generations,
                    "with --json: a line a prompt and policy with the tokens it generated and what "
                    "was decided");
  command
      ->add_flag("--positions", options->positions,
                 "with --generations: also which tokens each layer and KV head keeps")
      ->needs(command->get_option("--generations"));
  command->footer(
      "Policies:\n" + policy_help() +
      "\nExamples:\n"
      "  kvatlas evaluate --model SmolLM2.gguf --policy policy.json --task needle --lengths 2048\n"
      "  kvatlas evaluate --model SmolLM2.gguf --policy simlayerkv:threshold=0.9,recent=256 \\\n"
      "      --against streaming:recent=256,lagkv:lag=128,ratio=1/4 --task passkey --seeds 4\n"
      "  kvatlas evaluate --model ./Llama-3.1-8B --policy policy.json --as vllm --prompts "
      "qa.jsonl");
  command->callback([options] { run_evaluate(*options); });
}

}  // namespace kvatlas
