// SPDX-License-Identifier: Apache-2.0
#include "calibrate/search/evaluate_request.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "analyzer/capture/progress.hpp"
#include "base/error.hpp"
#include "base/options.hpp"
#include "base/text_count.hpp"
#include "calibrate/policy/read_apart.hpp"
#include "calibrate/rules/certainty.hpp"
#include "calibrate/rules/evidence.hpp"
#include "calibrate/runtimes/runtimes.hpp"
#include "calibrate/search/trial_cost.hpp"
#include "calibrate/simulate/plan.hpp"
#include "calibrate/simulate/pod_blocks.hpp"

namespace kvatlas::calibrate {
namespace {

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

void gather_policies(const EvaluateRequest& request, Evaluated& out) {
  const model::ModelFile& model = *out.model;
  std::vector<Policy>& policies = out.policies;
  const auto& config = model.config();
  const ModelInfo info{config.name,         model::architecture_name(config.architecture),
                       model.fingerprint(), config.n_layers,
                       config.n_heads,      config.n_kv_heads,
                       config.head_dim,     own_windows(config.window)};
  const auto add = [&](Policy policy) {
    if (is_full(policy)) return;
    policy.rolling |= request.rolling;
    load_blocks(policy, config);
    if (!request.runtime.empty()) {
      const std::string name = policy.name;
      auto behaves = simulated_in_runtime(policy, request.runtime, info);
      for (const auto& change : behaves.changes)
        std::cerr << "kvatlas: note: " << name << " in " << request.runtime << ": " << change
                  << '\n';
      policy = std::move(behaves.policy);
      policy.name = name + " in " + request.runtime;
    }
    policies.push_back(std::move(policy));
  };
  // A runtime that takes some of a document's policies is judged on those.
  const auto add_policies_of = [&](const Document& document) {
    const std::size_t before = policies.size(), left_out_before = out.left_out.size();
    for (auto& policy : policies_of(document, request.document_task)) {
      if (request.runtime.empty()) {
        add(std::move(policy));
        continue;
      }
      try {
        add(given_to_runtime(document, policy, runtime_named(request.runtime)).policy);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::usage) throw;
        out.left_out.push_back({str(policy.name, " in ", request.runtime), error.what()});
      }
    }
    const auto left_out = std::span(out.left_out).subspan(left_out_before);
    if (left_out.empty()) return;
    if (policies.size() == before) fail(ErrorCode::usage, left_out.front().reason);
    for (const auto& [policy, reason] : left_out)
      std::cerr << "kvatlas: left out: " << reason << '\n';
  };
  for (const auto& text : request.policies) {
    if (!is_policy_document(text)) {
      add(parse_policy(text));
      continue;
    }
    const Document document = read_document(text);
    in_context(text, [&] { require_same_model(document, model); });
    out.calibrated_by.add(text, document.provenance);
    add_policies_of(document);
  }
  for (const auto& text : split_policies(request.against)) add(parse_policy(text));
}

/// What a round costs: after the first one by what the prompts before took.
double round_seconds(const EvaluateRequest& request, const Evaluated& on,
                     const std::vector<Question>& questions, const capture::Placement& placement,
                     bool streaming, std::size_t prompts_together) {
  const auto& before = on.evaluation;
  if (!before.questions.empty())
    return (before.prefill_seconds + before.decode_seconds) *
           static_cast<double>(questions.size()) / static_cast<double>(before.questions.size());
  TrialRound round;
  const std::vector<Policy> tried = draws_of(on.policies);
  round.policies = tried.size();
  const auto count = [&](bool (*of_policy)(const Policy&)) {
    return static_cast<std::size_t>(std::count_if(tried.begin(), tried.end(), of_policy));
  };
  round.apart = count(reads_prompt_apart);
  round.in_place = count(reads_in_place);
  round.repeated = needs_of(on.policies).repetitions.size();
  round.samples.resize(questions.size());
  std::iota(round.samples.begin(), round.samples.end(), std::size_t{0});
  round.measure = request.no_comparison ? Measure::score : Measure::both;
  const capture::RunSpeed speed(*on.model, placement, streaming);
  const TrialCost cost = trial_cost(speed, questions, {&round, 1}, prompts_together);
  // The steps that are timed are those of one policy after the other.
  const auto timed =
      static_cast<double>(request.time_steps) * static_cast<double>(1 + tried.size());
  return cost.seconds +
         timed * speed.step(1, 1, static_cast<double>(questions.front().tokens.size()));
}

/// The questions of a round in their hashed order. Rounds follow each other, so that whoever looks
/// after each of them sees the values before unmoved.
std::vector<Question> questions_in_order(const EvaluateRequest& request,
                                         const model::ModelFile& model) {
  auto given = capture::plan_prompts(request.prompts, request.run, model).prompts;
  std::vector<std::string> names;
  for (const auto& one : given) names.push_back(one.prompt.text_name());
  const auto order = hashed_order(names);
  std::vector<capture::ProfilePrompt> prompts;
  for (const auto place : order) prompts.push_back(std::move(given[place]));
  auto questions = make_questions(std::move(prompts), request.questions, request.run, model);
  for (std::size_t i = 0; i < questions.size(); ++i) questions[i].place = order[i];
  return questions;
}

Evaluation evaluate_round(const EvaluateRequest& request, const Evaluated& on) {
  const model::ModelFile& model = *on.model;
  capture::EngineOptions engine_options = capture::engine_options(request.run);
  auto questions = questions_in_order(request, model);
  on.calibrated_by.require_fresh(questions, request.may_repeat);
  std::int64_t tokens = 0;
  for (const auto& question : questions)
    tokens += static_cast<std::int64_t>(question.tokens.size());

  SimulateOptions options;
  options.end_tokens = capture::end_tokens(model, request.run.ignore_eos);
  options.compare = !request.no_comparison;
  options.time_steps = request.time_steps;
  options.positions = request.positions;
  set_memory(engine_options, questions, model, options);
  capture::Engine engine(on.model, engine_options);
  FirstRound round;
  round.prompts = static_cast<std::int64_t>(questions.size());
  std::vector<std::string> groups, answered;  // of all, and of those with answers
  for (const auto& question : questions) {
    groups.push_back(question.prompt.group);
    if (!question.prompt.answers.empty()) answered.push_back(question.prompt.group);
  }
  round.all_texts = count_texts(groups);
  round.answered = answered.size();
  round.texts = count_texts(answered);
  round.seconds = round_seconds(request, on, questions, engine_options.placement,
                                engine.streaming(), options.prompts_together);
  round.generated = !request.run.has_own_prompts();
  std::cerr << "kvatlas: " << engine.plan() << "; "
            << count_of(std::ssize(on.policies), "policy", "policies") << " beside full on "
            << count_of(std::ssize(questions), "prompt", "prompts") << ", about "
            << capture::duration_str(round.seconds) << '\n';
  if (on.evaluation.questions.empty() && request.go_on && !request.go_on(round)) return {};
  capture::Progress progress(static_cast<std::int64_t>(questions.size()), tokens,
                             model.config().n_layers);
  return evaluate(engine, std::move(questions), on.policies, options,
                  [&, told = std::size_t{0}](const Evaluation& so_far) mutable {
                    std::int64_t read = 0;
                    const std::size_t first = std::exchange(told, so_far.full.size());
                    for (std::size_t i = first; i < told; ++i)
                      read += static_cast<std::int64_t>(so_far.questions[i].tokens.size());
                    progress.sample(read, static_cast<std::int64_t>(told - first));
                    if (on.evaluation.questions.empty() && request.look) request.look(so_far);
                  });
}

/// Another round of the same policies.
void append(Evaluation& all, Evaluation round) {
  const auto add = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  add(all.questions, round.questions);
  add(all.full, round.full);
  for (std::size_t i = 0; i < all.judged.size(); ++i) add(all.judged[i], round.judged[i]);
  all.prefill_seconds += round.prefill_seconds;
  all.decode_seconds += round.decode_seconds;
  all.interrupted += round.interrupted;
}

}  // namespace

bool is_policy_document(const std::string& text) {
  // "pod:blocks=policy.json" is a policy as text.
  const bool named_so = text.ends_with(".json") && text.find('=') == text.npos;
  return named_so || std::filesystem::is_regular_file(text);
}

Evaluated evaluate_request(EvaluateRequest request, const MoreSeeds& more) {
  Evaluated out;
  out.model = model::ModelFile::open(request.run.model);
  gather_policies(request, out);
  const bool generated = !request.run.has_own_prompts();
  if (generated) {
    capture::note_bare_prompts(request.run.chat, *out.model);
    if (request.prompts.tasks.empty()) request.prompts.tasks = {"needle", "passkey"};
    if (request.prompts.lengths.empty() && !request.prompts.quick) request.prompts.lengths = {1024};
  }
  if (request.prompts.seed < 0) request.prompts.seed = out.calibrated_by.first_fresh_seed();
  request.prompts.new_tokens = request.questions.max_new;
  out.evaluation = evaluate_round(request, out);
  while (more && generated && out.evaluation.interrupted == 0 &&
         !out.evaluation.questions.empty()) {
    const std::int64_t seeds = more(out.evaluation);
    if (seeds == 0) break;
    for (const auto& question : out.evaluation.questions)
      request.prompts.seed = std::max(request.prompts.seed, question.prompt.seed + 1);
    request.prompts.seeds = seeds;
    request.time_steps = 0;
    append(out.evaluation, evaluate_round(request, out));
  }
  return out;
}

void require_all(const Evaluation& evaluation) {
  if (evaluation.interrupted > 0)
    fail(ErrorCode::cancelled, "interrupted: the result is of ",
         count_of(std::ssize(evaluation.questions), "prompt", "prompts"), ", ",
         evaluation.interrupted, evaluation.interrupted == 1 ? " was" : " were", " not run");
}

/// What the reader of the scores should know.
void print_notes(const Evaluation& evaluation) {
  std::vector<std::string> groups, tasks;
  for (const auto& question : evaluation.questions) {
    groups.push_back(question.prompt.group);
    tasks.push_back(question.prompt.task);
  }
  std::size_t scored = 0;
  const auto scores_of = [&](const std::vector<Judged>& judged) {
    std::vector<double> scores;
    for (const auto& one : judged) scores.push_back(one.score);
    scored = scores.size() - std::count_if(scores.begin(), scores.end(),
                                           [](double score) { return std::isnan(score); });
    return scores;
  };
  const auto means = [&](const std::vector<Judged>& judged) {
    return group_means(scores_of(judged), groups);
  };
  const auto scores = means(evaluation.full);
  if (scores.empty()) return;
  const std::size_t texts = scores.size();
  const double full_score = task_means(scores_of(evaluation.full), groups, tasks).mean;
  if (texts < kLeastTexts) {
    std::optional<std::int64_t> needed = values_for_width(scores, kScoreRange, 0.05);
    for (const auto& policy : evaluation.judged)
      needed = std::max(needed, values_for_width(means(policy), kScoreRange, 0.05));
    std::cerr << "kvatlas: note: prompts with answers: " << scored << of_texts(scored, texts);
    if (needed) std::cerr << "; " << *needed << " texts make an interval of about +-5 points";
    std::cerr << '\n';
  }
  for (std::size_t p = 0; p < evaluation.judged.size(); ++p) {
    const auto& judged = evaluation.judged[p];
    bool cuts = false;
    for (std::size_t q = 0; q < judged.size(); ++q)
      // What is not known of a server compares as nothing does.
      cuts = cuts || !(judged[q].outcome.kept_bytes >= evaluation.full[q].outcome.kept_bytes) ||
             judged[q].outcome.read_bytes < evaluation.full[q].outcome.read_bytes ||
             judged[q].outcome.prompt_read < 1;
    if (!cuts && !judged.empty())
      std::cerr << "kvatlas: note: " << evaluation.policies[p]
                << " cuts nothing of prompts so short: it needs smaller settings or longer "
                   "prompts\n";
  }
  const auto at_once = std::count_if(evaluation.full.begin(), evaluation.full.end(),
                                     [](const Judged& one) { return one.right_at_once; });
  if (static_cast<std::size_t>(2 * at_once) >= scored && at_once > 0)
    std::cerr << "kvatlas: note: of " << at_once << " of "
              << count_of(static_cast<std::int64_t>(scored), "prompt", "prompts")
              << " the first generated token is the whole answer, and it is chosen before "
                 "anything is cut: no policy can lose these scores, so look at the KL divergence\n";
  if (full_score < kLeastFullScore)
    std::cerr << "kvatlas: note: the full cache scores " << fixed_text(full_score, 2)
              << ": what a policy loses drowns in what the model fails anyway\n";
}

void add_request_options(CLI::App& command, EvaluateRequest& request) {
  capture::add_model_options(command, request.run);
  add_option(command, "--as", request.runtime, "RUNTIME",
             "judge what this runtime would do with the policies");
  command.add_flag("--compress-context", request.questions.compress_context,
                   "cut the cache before the question is read");
  command.add_flag("--conversation", request.prompts.conversation,
                   "questions on one context follow each other, behind the right answers of the "
                   "earlier ones; the cache is cut once, behind the first question");
  capture::add_prompt_options(command, request.prompts, request.run);
  command.get_option("--seed")->default_str("behind those that calibrated the document");
  request.prompts.seed = -1;
  command.get_option("--task")->default_str("needle and passkey");
  command.get_option("--lengths")->default_str("1024");
  command.option_defaults()->group("Prompts");
  add_number(command, "--new", request.questions.max_new, "N",
             "tokens to generate; 0: as many as the task's answers need", 0, std::int64_t{1} << 20);
  command.add_flag("--ignore-eos", request.run.ignore_eos, "go on after an end-of-sequence token");
  command.option_defaults()->group("Options");
}

}  // namespace kvatlas::calibrate
