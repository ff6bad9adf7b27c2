// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <numeric>

#include <nlohmann/json.hpp>

#include "analyzer/capture/progress.hpp"
#include "base/error.hpp"
#include "base/help.hpp"
#include "base/interrupt.hpp"
#include "base/json_text.hpp"
#include "base/next_step.hpp"
#include "base/options.hpp"
#include "base/whole_file.hpp"
#include "calibrate/search/check_endpoint.hpp"
#include "calibrate/search/commands.hpp"
#include "calibrate/search/evaluate_request.hpp"

namespace kvatlas {
namespace {

using namespace calibrate;
using nlohmann::json;

struct EvaluateCommand {
  EvaluateRequest request;
  EndpointOptions endpoint;
  std::string output;
  bool json = false, generations = false, force = false;
};

json positions_json(const HeldPositions& positions) {
  json out = json::array();
  for (const auto& layer : positions) {
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

/// The text of each token. One that ends inside a character has a replacement character there.
json pieces_json(const model::Tokenizer& tokenizer, std::span<const std::int64_t> tokens) {
  json out = json::array();
  for (const auto& token : tokens) out.push_back(tokenizer.decode_bytes({&token, 1}, false, false));
  return out;
}

/// Which tokens are held, after the cut and later.
json held_json(const Outcome& outcome) {
  json out = {{"positions", positions_json(outcome.cut.positions)},
              {"cut_after", outcome.cut.read}};
  for (const auto& [read, positions] : outcome.later_cuts)
    out["later_cuts"].push_back({{"after", read}, {"positions", positions_json(positions)}});
  if (!outcome.end_positions.empty()) out["end_positions"] = positions_json(outcome.end_positions);
  return out;
}

void print_generations(const Evaluation& evaluation, const model::Tokenizer* tokenizer) {
  const auto line = [&](const Question& question, const std::string& policy, const Judged& judged) {
    const Outcome& o = judged.outcome;
    json out = {{"id", question.prompt.id},
                {"policy", policy},
                {"tokens", o.tokens},
                {"text", tokenizer ? json(judged.text) : json()},
                {"cache_lengths", o.cache_lengths},
                {"kept", o.kept},
                {"kept_bytes", count_json(o.kept_bytes)},
                {"held_mean_bytes", count_json(held_mean_bytes(o))},
                {"held_peak_bytes", count_json(held_peak_bytes(o))}};
    const auto number = [&](const char* name, double value) {
      out[name] = std::isnan(value) ? json(nullptr) : json(value);
    };
    number("score", judged.score);
    number("kl", o.kl);
    number("agreement", o.agreement);
    if (!o.cut.positions.empty()) {
      out.update(held_json(o));
      out["prompt_tokens"] = question.tokens.size();
      if (tokenizer) out["pieces"] = pieces_json(*tokenizer, o.tokens);
      if (tokenizer && policy == "full")
        out["prompt_pieces"] = pieces_json(*tokenizer, question.tokens);
    }
    if (!o.mass.empty()) out["mass"] = o.mass;
    if (!o.mass.empty() || !o.lazy.empty()) out["lazy"] = o.lazy;
    if (!o.budgets.empty()) out["budgets"] = o.budgets;
    if (!o.lowest.empty()) out["lowest_layer"] = o.lowest;
    if (!std::isnan(o.skipped)) out["gate_skipped"] = o.skipped;
    std::cout << json_text(out) << '\n';
  };
  std::vector<std::size_t> as_given(evaluation.questions.size());
  std::iota(as_given.begin(), as_given.end(), std::size_t{0});
  std::sort(as_given.begin(), as_given.end(), [&](std::size_t a, std::size_t b) {
    return evaluation.questions[a].place < evaluation.questions[b].place;
  });
  for (const auto q : as_given) {
    line(evaluation.questions[q], "full", evaluation.full[q]);
    for (std::size_t i = 0; i < evaluation.policies.size(); ++i)
      line(evaluation.questions[q], evaluation.policies[i], evaluation.judged[i][q]);
  }
}

/// Keeps what was measured of a policy that is none of the document's, instead of what was before.
void add_compared(Document& document, ComparedEntry entry) {
  for (json& before : document.compared)
    if (before.at("policy") == entry.policy && before.value("runtime", "") == entry.runtime) {
      before = report_json(std::move(entry));
      return;
    }
  document.compared.push_back(report_json(std::move(entry)));
}

/// The document with what was measured.
void write_measured(const EvaluateCommand& command, const std::vector<Policy>& policies,
                    const Evaluation& evaluation) {
  Document document = read_document(command.request.policies.front());
  const auto measured = measured_of(evaluation);
  for (std::size_t i = 0; i < policies.size(); ++i) {
    const std::string& place = policies[i].section;
    if (place.empty()) {  // of --against
      add_compared(document, {policies[i].name, command.request.runtime, measured[i + 1]});
      continue;
    }
    const auto places = place == kComposition ? document.compose : std::vector<std::string>{place};
    for (const auto& one : places) {
      json& section = document.sections[json::json_pointer("/" + one)];
      json& of = command.request.runtime.empty() ? section : section["runtimes"];
      of[command.request.runtime.empty() ? "measured" : command.request.runtime] =
          report_json(measured[i + 1]);
    }
  }
  write_document(document, command.output, command.force);
}

std::vector<NextStep> next_steps(const EvaluateCommand& command) {
  const auto& policies = command.request.policies;
  if (policies.size() != 1 || !is_policy_document(policies.front())) return {};
  if (command.output.empty())
    return {{"the same command with -o measured.json", "exports then say what was measured"}};
  return {export_step(command.output, command.request.runtime,
                      "files for runtimes, with what was measured")};
}

/// Judges a server's answers instead of policies that kvatlas itself runs.
void run_served(const EvaluateCommand& command) {
  const EvaluateRequest& request = command.request;
  if (!command.output.empty() || command.generations || !request.against.empty() ||
      !request.runtime.empty() || request.policies.size() > 1)
    fail(ErrorCode::usage,
         "beside --endpoint there is no --against, --as, -o or --generations, and at most one "
         "--policy, of which only the calibration is looked at: a server is judged by its answers");
  evaluate_endpoint({.endpoint = command.endpoint,
                     .request = request,
                     .gate = {},
                     .policy = request.policies.empty() ? "" : request.policies.front(),
                     .junit = {},
                     .as_json = command.json});
}

void run_evaluate(const EvaluateCommand& command) {
  const EvaluateRequest& request = command.request;
  if (command.endpoint.asked()) {
    run_served(command);
    return;
  }
  if (request.run.model.empty())
    fail(ErrorCode::usage,
         "--model is missing: policies are tried on a model here, or a server's answers are judged "
         "with --endpoint and --full");
  if (!command.output.empty()) {
    if (request.policies.size() != 1 || !is_policy_document(request.policies.front()))
      fail(ErrorCode::usage,
           "-o writes a policy document with what was measured: give exactly one "
           "document with --policy");
    check_output(command.output, command.force);
    if (read_document(request.policies.front()).sections.empty() && request.against.empty())
      fail(ErrorCode::usage, quoted(request.policies.front(), 400),
           " has no section that could keep what is measured: leave out -o");
  }
  if (request.policies.empty() && request.against.empty())
    std::cerr << "kvatlas: note: no policy is named (--policy, --against): only the full cache is "
                 "tried\n";
  outlive_readers();
  const auto [model, policies, evaluation, left_out, calibrated_by] = evaluate_request(request);
  if (!command.output.empty() && evaluation.interrupted == 0)
    write_measured(command, policies, evaluation);
  if (command.generations) {
    print_generations(evaluation, model->tokenizer().get());
  } else if (command.json) {
    json out = evaluation_json(evaluation);
    if (const auto fresh = calibrated_by.count_fresh(evaluation.questions))
      out["fresh_texts"] = *fresh;
    out["model"] = {{"name", model->config().name}, {"fingerprint", model->fingerprint()}};
    std::cout << json_text(out, 2) << '\n';
  } else {
    for (const auto& table : evaluation_tables(evaluation)) std::cout << table_text(table) << '\n';
    std::cout << "Prefill took " << capture::duration_str(evaluation.prefill_seconds)
              << ", decoding all policies " << capture::duration_str(evaluation.decode_seconds)
              << ".\n";
  }
  if (const auto fresh = calibrated_by.fresh_text(evaluation.questions); !fresh.empty())
    std::cerr << "kvatlas: " << fresh << '\n';
  print_notes(evaluation);
  require_all(evaluation);
  say_next(next_steps(command));
}

}  // namespace

void add_evaluate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("evaluate", kEvaluateSummary);
  auto options = std::make_shared<EvaluateCommand>();
  EvaluateRequest& request = options->request;
  add_request_options(*command, request);
  command->get_option("--model")->required(false);
  add_endpoint_options(*command, options->endpoint);
  add_option(*command, "--policy", request.policies, "POLICY",
             "a policy document, or a policy as text (--help-all lists them); may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_option(*command, "--against", request.against, "POLICY,...",
             "further policies as text, with commas between; the full cache is always among them")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_option(*command, "--budgets-of", request.document_task, "TASK",
             "of a document's DynamicKV budgets, take those of this task");
  command->add_flag("--rolling", request.rolling,
                    "windows stay at their size while decoding, like a ring buffer");
  command->add_flag("--no-comparison", request.no_comparison,
                    "leave out KL divergence and agreement (half of the decoding)");
  add_number(
      *command, "--time-steps", request.time_steps, "N",
      "decoding steps for which each policy is timed by itself, on the first prompt; 0: none", 0,
      1024);
  add_option(*command, "-o,--output", options->output, "FILE",
             "write the policy document again, with what was measured, of --against too");
  command->add_flag("--force", options->force, "replace the output if it exists");
  command->add_flag("--json", options->json, "print the result as JSON");
  command->add_flag(
      "--generations", options->generations,
      "print, in place of tables, one line of JSON for each prompt and policy: the tokens "
      "that were generated and what was decided");
  command
      ->add_flag("--positions", request.positions,
                 "with --generations: also which tokens each layer and KV head keeps, and holds "
                 "while it generates; the window opens such lines")
      ->needs(command->get_option("--generations"));
  command->footer(
      "Examples:\n"
      "  kvatlas evaluate --model SmolLM2.gguf --policy policy.json --task needle --lengths 2048\n"
      "  kvatlas evaluate --model SmolLM2-Instruct.gguf --chat auto --policy policy.json\n"
      "  kvatlas evaluate --model SmolLM2.gguf --policy simlayerkv:threshold=0.9,recent=256 \\\n"
      "      --against streaming:recent=256,lagkv:lag=128,ratio=1/4 --task passkey --seeds 10\n"
      "  kvatlas evaluate --model ./Llama-3.1-8B --policy policy.json --as vllm --prompts "
      "qa.jsonl\n"
      "  kvatlas evaluate --endpoint http://HOST:8001 --full http://HOST:8000 --tokenizer M");
  lead_with(
      *command,
      {"--model", "--policy", "--against", "--prompts", "--task", "--lengths", "--chat", "--as"},
      "Policies:\n" + policy_help());
  command->callback([options] { run_evaluate(*options); });
}

}  // namespace kvatlas
