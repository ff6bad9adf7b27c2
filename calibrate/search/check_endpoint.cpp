// SPDX-License-Identifier: Apache-2.0
#include "calibrate/search/check_endpoint.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "analyzer/capture/progress.hpp"
#include "analyzer/checkpoint/gguf.hpp"
#include "analyzer/jinja/chat.hpp"
#include "base/error.hpp"
#include "base/foreign_error.hpp"
#include "base/text_count.hpp"
#include "base/whole_file.hpp"
#include "calibrate/certify/rounds.hpp"
#include "calibrate/endpoint/served_report.hpp"
#include "calibrate/policy/policy_files.hpp"
#include "calibrate/rules/cache_bytes.hpp"
#include "calibrate/rules/evidence.hpp"
#include "calibrate/runtimes/runtimes.hpp"
#include "calibrate/search/fresh_texts.hpp"
#include "data/call_scores.hpp"
#include "data/scores.hpp"
#include "data/tasks.hpp"
#include "data/tool_chat.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

/// A tokenizer where a model is wanted: it has no weights, and no limits but the server's.
class BareModel final : public model::ModelFile {
 public:
  BareModel(const std::string& path, std::int64_t longest) {
    path_ = path;
    tokenizer_ = std::filesystem::is_directory(path)
                     ? model::Tokenizer::from_folder(path)
                     : model::Tokenizer::from_gguf(model::GgufFile::open(path));
    if (!tokenizer_)
      fail(ErrorCode::usage, quoted(path, 400),
           " holds no tokenizer: give a folder with "
           "tokenizer.json or tokenizer.model, or a GGUF file");
    config_.name = path_.filename().string();
    config_.vocab_size = tokenizer_->vocab_size();
    config_.context_length = longest > 0 ? longest : data::kLongestPrompt;
  }
  const std::vector<model::StoredTensor>& tensors() const override { return none_; }
  std::string format() const override { return "a tokenizer"; }
  void require_intact() const override {}
  void will_need(const model::StoredTensor&) const override {}
  void release(const model::StoredTensor&) const override {}

 private:
  std::vector<model::StoredTensor> none_;
};

/// Prompts as they are judged and as they are sent, side by side.
struct ServedPrompts {
  std::vector<data::Prompt> prompts;
  std::vector<ServedPrompt> sent;
};

class EndpointGate {
 public:
  explicit EndpointGate(EndpointCheck check) : check_(std::move(check)), servers_(check_.endpoint) {
    auto& prompts = check_.request.prompts;
    if (!check_.policy.empty() && is_policy_document(check_.policy))
      calibrated_by_.add(check_.policy, read_document(check_.policy).provenance);
    if (prompts.seed < 0) prompts.seed = calibrated_by_.first_fresh_seed();
    own_ = check_.request.run.has_own_prompts();
    if (!own_ && check_.endpoint.tokenizer.empty())
      fail(
          ErrorCode::usage,
          "tasks make prompts of so many tokens: name the model's tokenizer with "
          "--tokenizer (its folder, or its GGUF file), or give prompts of your own with --prompts");
    if (!check_.endpoint.tokenizer.empty())
      model_ = std::make_unique<BareModel>(check_.endpoint.tokenizer, servers_.longest());
    if (!own_) {
      if (prompts.tasks.empty()) prompts.tasks = {"needle", "passkey"};
      if (prompts.lengths.empty() && !prompts.quick) prompts.lengths = {1024};
    }
    prompts.new_tokens = check_.request.questions.max_new;
    check_.gate.subject = check_.endpoint.url;
    check_.gate.one = "server";
    check_.gate.many = "servers";
  }

  bool run();
  void show();

 private:
  ServedPrompts round() const;
  ServedPrompt sent(const data::Prompt& prompt, std::vector<std::int64_t> tokens) const;
  void require_gate(const ServedPrompts& first) const;
  void say_plan(const ServedPrompts& first, bool may_go_on) const;
  void open_journal(json settings);
  void ask(const ServedPrompts& prompts);
  void ask_own(const ServedPrompts& prompts);
  GateVerdict verdict() const;
  std::int64_t more_seeds(const GateVerdict& verdict) const;
  bool may_ask(const ServedPrompts& more) const;
  void require_score_once();
  std::optional<double> expected_share(std::int64_t prompt, std::int64_t new_tokens) const;
  ServedRun observe() const;
  void report(const GateVerdict& verdict) const;
  Evaluation evaluation() const;
  std::vector<std::string> groups() const;

  EndpointCheck check_;
  ServedPair servers_;
  CalibrationTexts calibrated_by_;
  std::unique_ptr<BareModel> model_;
  bool own_ = false, is_judgeable_ = false;
  std::vector<data::Prompt> prompts_;  // that were asked, in the order in which they are looked at
  std::vector<ServedPrompt> sent_;
  std::vector<AskedPair> pairs_;
};

ServedPrompt EndpointGate::sent(const data::Prompt& prompt,
                                std::vector<std::int64_t> tokens) const {
  ServedPrompt out;
  out.id = prompt.id;
  out.max_new = check_.request.questions.max_new > 0 ? check_.request.questions.max_new
                                                     : data::answer_tokens(prompt);
  out.messages = prompt.messages();
  if (servers_.is_chat() && !prompt.tools.empty()) {
    out.tools = prompt.tools;
    out.tool_messages = data::messages_for_calls(prompt).dump();
  }
  out.text = prompt.with_answer_prefix();
  if (!prompt.tokens.empty() && !servers_.takes_ids())
    fail(ErrorCode::usage, printable(prompt.id), " is given as tokens, and ",
         servers_.full().server.title, " takes texts alone");
  const auto* tokenizer = model_ ? model_->tokenizer().get() : nullptr;
  if (auto text = tokenizer ? capture::chat_text(prompt, {check_.request.run.chat, tokenizer})
                            : std::nullopt) {
    out.text = std::move(*text);
    // The server writes it itself.
    const auto& special = tokenizer->special_tokens();
    if (const auto bos = special.find("bos_token");
        bos != special.end() && !bos->second.empty() && out.text.starts_with(bos->second))
      out.text.erase(0, bos->second.size());
  }
  if (!servers_.is_chat()) out.tokens = std::move(tokens);
  return out;
}

ServedPrompts EndpointGate::round() const {
  std::vector<capture::ProfilePrompt> given;
  if (model_) {
    given = capture::plan_prompts(check_.request.prompts, check_.request.run, *model_).prompts;
  } else {
    for (const auto& prompt : capture::collect_prompts(check_.request.run))
      given.push_back({prompt, prompt.tokens});
  }
  std::vector<std::string> names;
  for (const auto& one : given) names.push_back(one.prompt.text_name());
  ServedPrompts out;
  for (const auto place : hashed_order(names)) {
    auto& one = given[place];
    out.sent.push_back(sent(one.prompt, std::move(one.tokens)));
    out.prompts.push_back(std::move(one.prompt));
  }
  return out;
}

/// Whether a verdict can come of such prompts, before anything is asked.
void EndpointGate::require_gate(const ServedPrompts& first) const {
  std::vector<std::string> texts;
  for (const auto& prompt : first.prompts)
    if (!prompt.answers.empty()) texts.push_back(prompt.group);
  if (texts.empty())
    fail(ErrorCode::usage, "no prompt has answers: without scores there is nothing to judge by");
  require_gate_texts(texts.size(), count_texts(texts), check_.force,
                     "more --seeds, or more lines in --prompts");
}

void EndpointGate::say_plan(const ServedPrompts& first, bool may_go_on) const {
  std::int64_t tokens = 0, most_new = 0;
  for (const auto& one : first.sent) {
    tokens += std::ssize(one.tokens);
    most_new += one.max_new;
  }
  auto& out = check_.dry_run ? std::cout : std::cerr;
  const char* start = check_.dry_run ? "" : "kvatlas: ";
  out << start << servers_.compressed().name() << " beside " << servers_.full().name() << '\n';
  for (const auto& note : servers_.notes()) std::cerr << "kvatlas: note: " << note << '\n';
  if (may_go_on)
    for (const auto& sentence : limit_needs(check_.gate)) out << start << sentence << '\n';
  const auto prompts = std::ssize(first.prompts);
  const auto control = std::min<std::int64_t>(check_.endpoint.control, prompts);
  const std::int64_t sides = check_.endpoint.force_decode ? 3 : 2;
  const std::int64_t requests = sides * prompts + control;
  out << start << (own_ || !may_go_on ? "all prompts" : "the first round") << ": " << requests
      << " requests for " << count_of(prompts, "prompt", "prompts");
  if (tokens > 0)
    out << ", about " << requests * tokens / prompts << " tokens of prompts and at most "
        << requests * most_new / prompts << " of answers";
  out << '\n';
  if (may_go_on && !own_ && check_.most_samples > prompts)
    out << start << "while the verdict is open it goes on, up to " << check_.most_samples
        << " prompts (--most-samples)\n";
  const std::int64_t all = requests * (tokens + most_new) / prompts;
  if (check_.endpoint.most_tokens > 0 && all > check_.endpoint.most_tokens)
    fail(ErrorCode::usage, "these are about ", all, " tokens, more than --most-tokens allows (",
         check_.endpoint.most_tokens, ")");
}

void EndpointGate::ask(const ServedPrompts& prompts) {
  std::int64_t tokens = 0;
  for (const auto& one : prompts.sent) tokens += std::ssize(one.tokens);
  capture::Progress progress(std::ssize(prompts.sent), std::max<std::int64_t>(1, tokens), 1);
  std::size_t controls = 0;
  for (const auto& pair : pairs_) controls += pair.has_control;
  const std::size_t wanted = static_cast<std::size_t>(check_.endpoint.control);
  auto pairs =
      servers_.ask(prompts.sent, wanted - std::min(wanted, controls),
                   [&](const ServedPrompt& one) { progress.sample(std::ssize(one.tokens)); });
  const auto add = [](auto& to, auto from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  add(prompts_, prompts.prompts);
  add(sent_, prompts.sent);
  add(pairs_, std::move(pairs));
}

/// In their hashed order, some at a time, until the verdict is there. With several tasks a round of
/// texts is only known when all are there.
void EndpointGate::ask_own(const ServedPrompts& all) {
  std::set<std::string> tasks;
  for (const auto& prompt : all.prompts) tasks.insert(prompt.task);
  constexpr std::size_t kAtATime = 20;
  for (std::size_t first = 0; first < all.prompts.size();) {
    std::size_t end = std::min(first + std::max(kAtATime, first / 4), all.prompts.size());
    if (tasks.size() > 1) end = all.prompts.size();
    while (end < all.prompts.size() &&
           all.prompts[end].text_name() == all.prompts[end - 1].text_name())
      ++end;
    ServedPrompts some;
    const auto take = [&](auto& to, const auto& from) {
      to.assign(from.begin() + static_cast<std::ptrdiff_t>(first),
                from.begin() + static_cast<std::ptrdiff_t>(end));
    };
    take(some.prompts, all.prompts);
    take(some.sent, all.sent);
    if (first > 0 && !may_ask(some)) return;
    ask(some);
    first = end;
    require_score_once();
    if (first == all.prompts.size()) return;
    const GateVerdict so_far = verdict();
    const bool enough = so_far.measured.texts >= static_cast<std::int64_t>(kLeastTexts);
    if (!check_.gate.by_mean && enough && so_far.loss.kind != LossVerdict::Kind::undecided) return;
    std::cerr << "kvatlas: " << line_of(so_far, check_.gate) << '\n';
  }
}

/// Whether what was asked and what is to be asked stay within --most-tokens together.
bool EndpointGate::may_ask(const ServedPrompts& more) const {
  if (check_.endpoint.most_tokens == 0) return true;
  const std::int64_t sides = check_.endpoint.force_decode ? 3 : 2;
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < pairs_.size(); ++i)
    tokens +=
        sides * std::ssize(sent_[i].tokens) + pairs_[i].full_tokens + pairs_[i].compressed_tokens;
  for (const auto& prompt : more.sent)
    tokens += sides * (std::ssize(prompt.tokens) + prompt.max_new);
  if (tokens <= check_.endpoint.most_tokens) return true;
  std::cerr << "kvatlas: it ends here: with the next prompts these would be about " << tokens
            << " tokens, and --most-tokens allows " << check_.endpoint.most_tokens << '\n';
  return false;
}

GateVerdict EndpointGate::verdict() const {
  std::vector<ScorePair> scores;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const auto& prompt = prompts_[i];
    const auto& pair = pairs_[i];
    if (prompt.answers.empty() || !pair.full_problem.empty()) continue;
    scores.push_back(
        {prompt.task, prompt.group.empty() ? prompt.id : prompt.group,
         data::score(prompt, pair.full_text),
         pair.compressed_problem.empty() ? data::score(prompt, pair.compressed_text) : 0});
  }
  if (scores.empty())
    fail(ErrorCode::unsupported, "no prompt was answered by the full server: ",
         pairs_.empty() ? "none was asked" : pairs_.front().full_problem);
  return judge_pairs(servers_.compressed().name(), scores, check_.gate);
}

void EndpointGate::require_score_once() {
  if (is_judgeable_) return;
  std::vector<double> scores;
  std::vector<std::string> groups, tasks;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    if (prompts_[i].answers.empty() || !pairs_[i].full_problem.empty()) continue;
    scores.push_back(data::score(prompts_[i], pairs_[i].full_text));
    groups.push_back(prompts_[i].group);
    tasks.push_back(prompts_[i].task);
  }
  if (!scores.empty()) require_gate_score(scores, groups, tasks, check_.force);
  is_judgeable_ = true;
}

std::int64_t EndpointGate::more_seeds(const GateVerdict& verdict) const {
  if (verdict.loss.kind != LossVerdict::Kind::undecided) return 0;
  std::set<std::int64_t> seeds;
  for (const auto& prompt : prompts_) seeds.insert(prompt.seed);
  return seeds_for({&verdict, 1}, std::ssize(seeds), std::ssize(prompts_), check_.most_samples);
}

/// The share of the full cache that the policy keeps of such a prompt in this runtime, as `inspect
/// --as` says; none without a document of one policy that the runtime carries out.
std::optional<double> EndpointGate::expected_share(std::int64_t prompt,
                                                   std::int64_t new_tokens) const {
  if (prompt == 0 || check_.policy.empty() || !is_policy_document(check_.policy))
    return std::nullopt;
  const Document document = read_document(check_.policy);
  const auto policies = policies_of(document);
  const auto& known = runtimes();
  const auto runtime = std::find_if(known.begin(), known.end(), [&](const Runtime& one) {
    return one.name == servers_.compressed().facts.kind;
  });
  if (policies.size() != 1 || runtime == known.end()) return std::nullopt;
  try {
    const Policy given = given_to_runtime(document, policies.front(), *runtime).policy;
    CacheLoad load{cache_shape(document.model), prompt, new_tokens};
    load.runtime = &*runtime;
    const double all = cache_bytes({.name = "full", .parts = {}}, load).total();
    load.lazy_rates = lazy_rates_of(document, policies.front());
    return cache_bytes(as_runtime_behaves(given, runtime->name, document.model).policy, load)
               .total() /
           all;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::usage) throw;
    return std::nullopt;
  }
}

/// Tokens that a request generates at least while its server is looked at.
constexpr std::int64_t kProbeTokens = 64;

/// Looks at both servers while each answers the longest prompt once more, at length.
ServedRun EndpointGate::observe() const {
  ServedRun run;
  std::size_t pairs = 0, differ = 0, controls = 0, controls_differ = 0;
  std::vector<double> losses;
  std::vector<std::string> groups;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    const auto& pair = pairs_[i];
    if (!pair.full_problem.empty() || !pair.compressed_problem.empty()) continue;
    ++pairs;
    differ += !pair.same;
    if (!pair.has_control) continue;
    ++controls;
    controls_differ += !pair.control_same;
    if (prompts_[i].answers.empty()) continue;
    losses.push_back(100 * (data::score(prompts_[i], pair.full_text) -
                            data::score(prompts_[i], pair.control_text)));
    groups.push_back(prompts_[i].group);
  }
  run.control_loss = betting_mean(group_means(losses, groups), kPointRange);
  const auto longest =
      std::max_element(sent_.begin(), sent_.end(), [](const auto& a, const auto& b) {
        return a.tokens.size() + a.text.size() < b.tokens.size() + b.text.size();
      });
  ServerWatch full(servers_.full(), {}),
      compressed(servers_.compressed(), check_.endpoint.metrics_url);
  const auto full_facts = full.now(), compressed_facts = compressed.now();
  run.signs.push_back(
      format_sign(full_facts.value_or(MetricFacts{}), compressed_facts.value_or(MetricFacts{})));
  std::optional<double> full_held, compressed_held;
  ServedPrompt probe = *longest;
  probe.max_new = std::max(probe.max_new, kProbeTokens);
  if (full_facts && compressed_facts && full_facts->unit == compressed_facts->unit) {
    full.load({&probe, 1}, full_held);
    compressed.load({&probe, 1}, compressed_held);
  }
  run.signs.push_back(use_sign(full_held, compressed_held,
                               expected_share(std::ssize(probe.tokens), probe.max_new)));
  run.signs.push_back(answer_sign(pairs, differ, controls, controls_differ));
  if (!check_.endpoint.load) return run;
  const auto load = [&](ServerWatch& watch, std::vector<LoadLevel>& levels) {
    std::int64_t tokens = 0;
    for (std::int64_t at_a_time = 1; at_a_time <= check_.endpoint.most_concurrent; at_a_time *= 2) {
      std::vector<ServedPrompt> prompts;
      for (std::int64_t i = 0; i < at_a_time; ++i) {
        prompts.push_back(sent_[static_cast<std::size_t>(i) % sent_.size()]);
        prompts.back().max_new = std::max(prompts.back().max_new, kProbeTokens);
        tokens += std::ssize(prompts.back().tokens) + prompts.back().max_new;
      }
      if (check_.endpoint.most_tokens > 0 && tokens > check_.endpoint.most_tokens) return;
      std::optional<double> held;
      const LoadLevel& level = levels.emplace_back(watch.load(prompts, held));
      if (level.most_running + level.most_waiting > static_cast<double>(at_a_time))
        fail(ErrorCode::unsupported,
             "the server answers others too, who would be held up: --load "
             "wants it alone");
      if (level.refused || level.most_waiting > 0 || level.preempted > 0) return;
    }
  };
  load(full, run.full_load);
  load(compressed, run.compressed_load);
  return run;
}

std::vector<std::string> EndpointGate::groups() const {
  std::vector<std::string> out;
  for (const auto& prompt : prompts_) out.push_back(prompt.group);
  return out;
}

/// The scores of both as those of a policy beside the full cache. What the full server did not
/// answer is left out, and what is held is not known.
Evaluation EndpointGate::evaluation() const {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  Evaluation out;
  out.policies = {servers_.compressed().name()};
  out.judged.resize(1);
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    if (!pairs_[i].full_problem.empty()) continue;
    const auto judged = [&](const std::string& text, bool failed) {
      Judged one;
      one.text = text;
      one.score = data::score(prompts_[i], text);
      if (failed && !std::isnan(one.score)) one.score = 0;
      one.digits = data::pass_key_digits(prompts_[i], text);
      for (double* of : {&one.outcome.kept_bytes, &one.outcome.full_bytes, &one.outcome.read_bytes,
                         &one.outcome.prompt_read})
        *of = kNone;
      return one;
    };
    out.questions.push_back({prompts_[i], sent_[i].tokens});
    out.full.push_back(judged(pairs_[i].full_text, false));
    out.judged[0].push_back(
        judged(pairs_[i].compressed_text, !pairs_[i].compressed_problem.empty()));
  }
  if (out.questions.empty())
    fail(ErrorCode::unsupported, "no prompt was answered by the full server: ",
         pairs_.empty() ? "none was asked" : pairs_.front().full_problem);
  return out;
}

void EndpointGate::report(const GateVerdict& verdict) const {
  const ServedFigures figures = figures_of(pairs_, groups(), check_.endpoint.force_decode);
  const ServedRun run = observe();
  const Evaluation evaluated = evaluation();
  const auto full_calls = call_part_means(evaluated, evaluated.full),
             calls = call_part_means(evaluated, evaluated.judged[0]);
  const std::vector<GateVerdict> verdicts = {verdict};
  if (!check_.junit.empty())
    write_whole(junit_text(verdicts, {}, false, check_.gate), check_.junit, true);
  if (check_.as_json) {
    json out = verdicts_json(verdicts, {}, check_.gate);
    out["endpoint"] = servers_.compressed().name();
    out["full"] = servers_.full().name();
    out["served"] = figures_json(figures, run);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const char* part = data::kCallParts[i].name;
      out["served"]["calls"]["full"][part] = estimate_json(full_calls[i]);
      out["served"]["calls"]["endpoint"][part] = estimate_json(calls[i]);
    }
    if (!check_.policy.empty()) out["document"] = check_.policy;
    std::cout << canonical_json(out);
    return;
  }
  std::cout << line_of(verdict, check_.gate) << '\n';
  for (std::size_t i = 0; i < calls.size(); ++i)
    std::cout << (i == 0 ? "calls of functions: " : ", ") << data::kCallParts[i].title << ' '
              << estimate_text(calls[i], 2) << " (full " << estimate_text(full_calls[i], 2) << ')'
              << (i + 1 == calls.size() ? "\n" : "");
  for (const auto& line : figures_text(figures, run)) std::cout << line << '\n';
}

void EndpointGate::open_journal(json settings) {
  const auto& prompts = check_.request.prompts;
  settings.update({{"version", KVATLAS_VERSION}, {"chat", check_.request.run.chat}});
  if (!own_)
    settings.update(
        {{"tasks", prompts.tasks}, {"lengths", prompts.lengths}, {"seed", prompts.seed}});
  if (const auto known = servers_.open_journal(settings); known > 0)
    std::cerr << "kvatlas: "
              << count_of(static_cast<std::int64_t>(known), "answer is", "answers are")
              << " there already\n";
}

void EndpointGate::show() {
  const ServedPrompts all = round();
  say_plan(all, false);
  open_journal({});
  ask(all);
  const Evaluation evaluated = evaluation();
  const ServedFigures figures = figures_of(pairs_, groups(), check_.endpoint.force_decode);
  const ServedRun run = observe();
  if (check_.as_json) {
    json out = evaluation_json(evaluated);
    for (const char* name : {"prefill_seconds", "decode_seconds"}) out.erase(name);
    out["endpoint"] = servers_.compressed().name();
    out["full"] = servers_.full().name();
    out["served"] = figures_json(figures, run);
    std::cout << canonical_json(out);
  } else {
    for (const auto& table : evaluation_tables(evaluated)) std::cout << table_text(table) << '\n';
    for (const auto& line : figures_text(figures, run)) std::cout << line << '\n';
  }
  print_notes(evaluated);
}

bool EndpointGate::run() {
  const ServedPrompts first = round();
  require_gate(first);
  say_plan(first, true);
  if (check_.dry_run) return true;
  open_journal({{"max_loss", check_.gate.max_loss}});
  if (own_) {
    ask_own(first);
  } else {
    ask(first);
    require_score_once();
    for (GateVerdict so_far = verdict(); const std::int64_t seeds = more_seeds(so_far);
         so_far = verdict()) {
      std::cerr << "kvatlas: " << line_of(so_far, check_.gate) << '\n';
      auto& next = check_.request.prompts;
      for (const auto& prompt : prompts_) next.seed = std::max(next.seed, prompt.seed + 1);
      next.seeds = seeds;
      const ServedPrompts more = round();
      if (!may_ask(more)) break;
      ask(more);
    }
  }
  const GateVerdict judged = verdict();
  report(judged);
  return judged.loss.kind == LossVerdict::Kind::passed;
}

}  // namespace

void evaluate_endpoint(EndpointCheck check) { EndpointGate(std::move(check)).show(); }

bool check_endpoint(EndpointCheck check) {
  const std::string junit = check.dry_run ? "" : check.junit, url = check.endpoint.url;
  Gate gate = check.gate;
  gate.subject = url;
  try {
    return EndpointGate(std::move(check)).run();
  } catch (const std::exception& thrown) {
    if (!junit.empty()) {
      const std::vector<LeftOut> all = {{url, as_error(thrown).what()}};
      write_whole(junit_text({}, all, true, gate), junit, true);
    }
    throw;
  }
}

}  // namespace kvatlas::calibrate
