// SPDX-License-Identifier: Apache-2.0
// `kvatlas check`: a gate for releases.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <set>

#include "analyzer/capture/progress.hpp"
#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/foreign_error.hpp"
#include "base/next_step.hpp"
#include "base/options.hpp"
#include "base/text_count.hpp"
#include "base/whole_file.hpp"
#include "calibrate/certify/gate.hpp"
#include "calibrate/certify/rounds.hpp"
#include "calibrate/rules/certainty.hpp"
#include "calibrate/rules/evidence.hpp"
#include "calibrate/search/check_endpoint.hpp"
#include "calibrate/search/commands.hpp"
#include "calibrate/search/evaluate_request.hpp"

namespace kvatlas {
namespace {

using namespace calibrate;
using nlohmann::json;

struct CheckCommand {
  EvaluateRequest request;
  EndpointOptions endpoint;
  std::string policy, junit;
  Gate gate;
  std::int64_t most_samples = 2000;
  bool surely = false, as_json = false, force = false, dry_run = false;
};

std::vector<GateVerdict> verdicts_of(const Evaluation& evaluation, const CheckCommand& command) {
  std::vector<GateVerdict> verdicts;
  for (const auto& summary : summarise(evaluation)) {
    verdicts.push_back(judge(summary.policy, measured_of(summary), summary.tasks, summary.losses,
                             summary.loss, command.gate));
    if (!command.gate.by_likeness()) continue;
    judge_likeness(verdicts.back(), {summary.text_kls, summary.agreements}, command.gate);
    if (command.gate.by_loss) continue;
    // Prompts without answers count too.
    verdicts.back().measured.samples = std::ssize(evaluation.questions);
    verdicts.back().measured.texts = std::ssize(summary.text_kls);
    verdicts.back().tasks = 1;
  }
  verdicts.erase(verdicts.begin());  // the full cache
  return verdicts;
}

std::int64_t seeds_needed(const Evaluation& evaluation, const std::vector<GateVerdict>& verdicts,
                          const CheckCommand& command) {
  std::set<std::int64_t> seeds;
  for (const auto& question : evaluation.questions) seeds.insert(question.prompt.seed);
  return seeds_for(verdicts, std::ssize(seeds), std::ssize(evaluation.questions),
                   command.most_samples);
}

/// What the asked loss needs, before anything is run: sentences.
std::vector<std::string> needs(const CheckCommand& command, const FirstRound& round) {
  std::vector<std::string> out = limit_needs(command.gate);
  const auto texts = groups_to_pass(command.gate.max_loss);
  if (command.gate.by_mean || !texts) return out;
  const auto least_limit = [](std::int64_t of_texts) {
    return str("the least limit that ", count_of(of_texts, "text", "texts"), " can pass is ",
               limit_text(least_limit_to_pass(of_texts)), " points");
  };
  const auto given = static_cast<std::int64_t>(round.texts);
  if (!round.generated && *texts > given)
    out.push_back(str("the prompts given are made of ", count_of(given, "text", "texts"),
                      ", so a policy can hardly pass: ", least_limit(given),
                      "; more lines, or --by-mean, would do"));
  if (!round.generated || *texts <= given) return out;
  const std::int64_t prompts = (*texts * round.prompts + given - 1) / given;
  out.push_back(str("so many texts are ", prompts, " prompts here, and take about ",
                    capture::duration_str(static_cast<double>(*texts) / static_cast<double>(given) *
                                          round.seconds),
                    " in all"));
  if (round.prompts > given) out.back() += "; with one length and one depth it is least";
  if (prompts > command.most_samples)
    out.push_back(str("these are more than --most-samples allows (", command.most_samples,
                      "), so a policy can hardly pass: ",
                      least_limit(command.most_samples * given / round.prompts)));
  return out;
}

constexpr const char* kNothingToJudgeBy =
    "no prompt has answers: without scores there is nothing to judge by, but --max-kl or "
    "--min-agreement";

/// Before anything is run.
void require_texts(const FirstRound& round, const CheckCommand& command) {
  const bool force = command.force;
  if (!command.gate.by_loss) {
    require_gate_texts(static_cast<std::size_t>(round.prompts), round.all_texts, force,
                       "more --seeds, or more lines in --prompts", "");
    return;
  }
  if (round.answered == 0) fail(ErrorCode::usage, kNothingToJudgeBy);
  require_gate_texts(round.answered, round.texts, force,
                     "more --seeds, or more lines in --prompts");
}

/// Error(usage) if the full cache's score is too low, even if all answers that are left are right.
void require_score_of(const Evaluation& so_far, bool force) {
  std::vector<double> scores;
  std::vector<std::string> groups, tasks;
  for (std::size_t i = 0; i < so_far.questions.size(); ++i) {
    const auto& prompt = so_far.questions[i].prompt;
    const double score = i < so_far.full.size() ? so_far.full[i].score : 1;
    if (prompt.answers.empty() || std::isnan(score)) continue;
    scores.push_back(score);
    groups.push_back(prompt.group);
    tasks.push_back(prompt.task);
  }
  if (scores.empty()) fail(ErrorCode::usage, kNothingToJudgeBy);
  const auto require = [&] { require_gate_score(scores, groups, tasks, force); };
  if (const std::size_t left = so_far.questions.size() - so_far.full.size(); left > 0)
    in_context(str("if the answers to the ",
                   count_of(static_cast<std::int64_t>(left), "prompt that is", "prompts that are"),
                   " left are all right"),
               require);
  else
    require();
}

NextStep next_step(const CheckCommand& command, const std::string& verdict) {
  if (verdict == "passed" && is_policy_document(command.policy))
    return export_step(command.policy, command.request.runtime);
  if (verdict == "passed")
    return {"kvatlas calibrate auto --help", "search a policy that saves more"};
  if (verdict == "failed")
    return {"kvatlas calibrate auto --help", "search a policy that loses no more than this"};
  return {"the same command with a larger --most-samples, or more lines in --prompts",
          "more texts decide it"};
}

/// Everything that is to be judged, where nothing could be.
std::vector<LeftOut> all_left_out(const CheckCommand& command, const std::string& reason) {
  std::vector<LeftOut> out;
  const std::string& runtime = command.request.runtime;
  const auto policies = is_policy_document(command.policy)
                            ? policies_of(read_document(command.policy))
                            : std::vector<Policy>{parse_policy(command.policy)};
  for (const auto& policy : policies)
    out.push_back({runtime.empty() ? policy.name : str(policy.name, " in ", runtime), reason});
  return out;
}

/// Whether every policy passed; a dry run judges none.
bool judge_document(const CheckCommand& command) {
  bool is_judgeable = false;
  const auto require_once = [&](const Evaluation& evaluation) {
    if (evaluation.policies.empty())
      fail(ErrorCode::usage, quoted(command.policy, 400),
           " is the full cache alone: nothing is to be checked");
    if (!is_judgeable && command.gate.by_loss) require_score_of(evaluation, command.force);
    is_judgeable = true;
  };
  const auto [model, policies, evaluation, left_out, calibrated_by] =
      evaluate_request(command.request, [&](const Evaluation& so_far) {
        require_once(so_far);
        const auto verdicts = verdicts_of(so_far, command);
        const std::int64_t seeds = seeds_needed(so_far, verdicts, command);
        for (const auto& verdict : verdicts)
          if (seeds > 0) std::cerr << "kvatlas: " << line_of(verdict, command.gate) << '\n';
        return seeds;
      });
  if (command.dry_run) return true;
  require_all(evaluation);
  require_once(evaluation);

  const auto verdicts = verdicts_of(evaluation, command);
  // A gate runs again and again: its report replaces the last one.
  if (!command.junit.empty())
    write_whole(junit_text(verdicts, left_out, false, command.gate), command.junit, true);
  if (command.as_json) {
    json out = verdicts_json(verdicts, left_out, command.gate);
    out["document"] = command.policy;
    if (!command.request.runtime.empty()) out["runtime"] = command.request.runtime;
    if (const auto fresh = calibrated_by.count_fresh(evaluation.questions))
      out["fresh_texts"] = *fresh;
    std::cout << canonical_json(out);
  } else {
    for (const auto& verdict : verdicts) std::cout << line_of(verdict, command.gate) << '\n';
  }
  if (const auto fresh = calibrated_by.fresh_text(evaluation.questions); !fresh.empty())
    std::cerr << "kvatlas: " << fresh << '\n';
  print_notes(evaluation);
  say_next({next_step(command, verdict_of_all(verdicts))});
  return verdict_of_all(verdicts) == "passed";
}

void run_check(CheckCommand command) {
  if (!command.junit.empty()) prepare_junit(command.junit, !command.dry_run);
  if (command.dry_run && command.as_json)
    fail(ErrorCode::usage, "--dry-run says what a run would take, in words: it has no --json");
  // As few texts as a verdict may rest on; while it is open, others follow.
  if (command.request.prompts.seeds == 0)
    command.request.prompts.seeds = static_cast<std::int64_t>(kLeastTexts);
  if (command.endpoint.asked()) {
    if (command.gate.by_likeness())
      fail(ErrorCode::usage,
           "--max-kl and --min-agreement judge policies that kvatlas itself runs: of a server's "
           "answers, without its whole distributions, only bounds are known, which are printed");
    if (!check_endpoint({command.endpoint, command.request, command.gate, command.policy,
                         command.junit, command.most_samples, command.as_json, command.force,
                         command.dry_run}))
      throw CLI::RuntimeError(kExitNotMet);
    return;
  }
  if (command.policy.empty() || command.request.run.model.empty())
    fail(ErrorCode::usage, command.policy.empty() ? "POLICY" : "--model",
         " is missing: a policy is judged on a model here, or a server's answers with --endpoint "
         "and --full");
  command.gate.subject = command.policy;
  command.request.policies = {command.policy};
  command.request.may_repeat = command.force;
  command.request.time_steps = 0;
  command.request.no_comparison = true;
  command.request.go_on = [&](const FirstRound& round) {
    require_texts(round, command);
    const auto sentences =
        command.gate.by_loss ? needs(command, round) : likeness_needs(command.gate);
    for (const auto& sentence : sentences)
      (command.dry_run ? std::cout : std::cerr << "kvatlas: ") << sentence << '\n';
    return !command.dry_run;
  };
  if (command.gate.by_likeness()) command.request.no_comparison = false;
  if (!command.force && command.gate.by_loss)
    command.request.look = [](const Evaluation& so_far) { require_score_of(so_far, false); };
  bool passed = false;
  try {
    passed = judge_document(command);
  } catch (const std::exception& thrown) {
    if (!command.junit.empty() && !command.dry_run)
      write_whole(
          junit_text({}, all_left_out(command, as_error(thrown).what()), true, command.gate),
          command.junit, true);
    throw;
  }
  if (!passed) throw CLI::RuntimeError(kExitNotMet);
}

}  // namespace

void add_check_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("check", kCheckSummary);
  const auto options = std::make_shared<CheckCommand>();
  CheckCommand& o = *options;
  add_option(*command, "policy", o.policy, "POLICY",
             "a policy document, each of whose policies is judged, or a policy as text; beside "
             "--endpoint only its calibration is looked at");
  add_request_options(*command, o.request);
  command->get_option("--model")->required(false);
  add_endpoint_options(*command, o.endpoint);
  command->get_option("--seeds")->default_str(
      str(kLeastTexts, ", and more while the verdict is open"));
  add_number(*command, "--max-loss", o.gate.max_loss, "POINTS",
             "points of the score that may be lost", 0.0, 100.0);
  add_number(
      *command, "--most-samples", o.most_samples, "N",
      "most generated prompts that are judged: while the verdict is open, more are made, seed "
      "after seed",
      std::int64_t{1}, std::int64_t{1} << 30);
  add_option(
      *command, "--max-kl", o.gate.max_kl, "NATS",
      "also, or for prompts without answers: what the median over texts of the KL divergence "
      "from the full cache's answers may be")
      ->check(real_range(0, 1000));
  add_option(*command, "--min-agreement", o.gate.min_agreement, "SHARE",
             "also, or for prompts without answers: in which share of the full cache's tokens both "
             "must have the same best one")
      ->check(real_range(0, 1));
  auto* by_mean = command->add_flag("--by-mean", o.gate.by_mean,
                                    "judge by the mean loss alone, however few samples there are");
  command
      ->add_flag(
          "--surely", o.surely,
          "pass or fail only with 95 % certainty, and leave the verdict undecided until then "
          "(the default)")
      ->excludes(by_mean);
  command->add_flag("--dry-run", o.dry_run,
                    "say how many texts the limit needs and how long they take, and run nothing");
  command->add_flag("--json", o.as_json, "print the verdict as JSON");
  add_option(*command, "--junit", o.junit, "FILE",
             "write the verdict as JUnit XML; the file is replaced if it exists");
  command->add_flag(
      "--force", o.force,
      "also accept fewer than 5 texts, own texts that calibrated the document, or a full "
      "cache that scores below 0.5");
  command->footer(
      "Exit status: 0 passed, 4 a policy loses too much or is undecided; others are failures.\n\n"
      "Examples:\n"
      "  kvatlas check policy.json --model M --task needle --depths 0.5 --max-loss 10\n"
      "  kvatlas check lagkv:lag=128,ratio=1/4 --model M --prompts qa.jsonl --max-loss 10\n"
      "  kvatlas check policy.json --model M --task needle --as vllm --junit verdict.xml\n"
      "  kvatlas check policy.json --model M --task prose --max-kl 0.1 --min-agreement 0.9\n"
      "  kvatlas check --endpoint http://HOST:8001 --full http://HOST:8000 --tokenizer M "
      "--max-loss "
      "5");
  command->callback([options, command] {
    Gate& gate = options->gate;
    gate.by_loss = !gate.by_likeness() || command->get_option("--max-loss")->count() > 0;
    run_check(*options);
  });
}

}  // namespace kvatlas
