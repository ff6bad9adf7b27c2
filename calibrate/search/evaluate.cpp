// SPDX-License-Identifier: Apache-2.0
#include "calibrate/search/evaluate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <span>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/text_count.hpp"
#include "calibrate/policy/read_apart.hpp"
#include "calibrate/rules/certainty.hpp"
#include "calibrate/search/repeat_request.hpp"
#include "data/call_scores.hpp"
#include "data/scores.hpp"

namespace kvatlas::calibrate {
namespace {

/// The means over the lists that are so long.
std::vector<double> means_by_place(const std::vector<const std::vector<double>*>& lists) {
  std::vector<double> sums;
  std::vector<std::size_t> counts;
  for (const auto* list : lists) {
    sums.resize(std::max(sums.size(), list->size()));
    counts.resize(sums.size());
    for (std::size_t i = 0; i < list->size(); ++i) {
      sums[i] += (*list)[i];
      ++counts[i];
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] /= static_cast<double>(counts[i]);
  return sums;
}

}  // namespace

Judged mean_of_draws(std::vector<Judged> draws) {
  Judged mean = draws.front();
  if (draws.size() == 1) return mean;
  const auto take_mean = [&](const auto& member) {
    double sum = 0;
    for (Judged& draw : draws) sum += member(draw);
    member(mean) = sum / static_cast<double>(draws.size());
  };
  take_mean([](Judged& of) -> double& { return of.score; });
  if (mean.digits) {
    take_mean([](Judged& of) -> double& { return of.digits->prefix; });
    take_mean([](Judged& of) -> double& { return of.digits->in_place; });
  }
  for (double Outcome::*member :
       {&Outcome::kept_bytes, &Outcome::read_bytes, &Outcome::prompt_read, &Outcome::kl,
        &Outcome::agreement, &Outcome::skipped, &Outcome::seconds_per_token})
    take_mean([member](Judged& of) -> double& { return of.outcome.*member; });
  std::vector<const std::vector<double>*> held;
  for (const Judged& draw : draws) held.push_back(&draw.outcome.held_bytes);
  mean.outcome.held_bytes = means_by_place(held);
  mean.right_at_once = std::all_of(draws.begin(), draws.end(),
                                   [](const Judged& draw) { return draw.right_at_once; });
  return mean;
}

Evaluation evaluate(capture::Engine& engine, std::vector<Question> questions,
                    std::span<const Policy> policies, const SimulateOptions& options,
                    const QuestionDone& done, bool scores_alone) {
  const model::Tokenizer* tokenizer = engine.model().tokenizer().get();
  Evaluation out;
  out.questions = std::move(questions);
  out.judged.resize(policies.size());
  for (const auto& policy : policies) out.policies.push_back(policy.name);
  const auto judge = [&](const Question& question, Outcome& outcome) {
    Judged judged;
    if (tokenizer) {
      judged.text = tokenizer->decode(outcome.tokens, true);
      judged.score = data::score(question.prompt, judged.text);
      judged.digits = data::pass_key_digits(question.prompt, judged.text);
      judged.right_at_once =
          judged.score > 0 &&
          data::score(question.prompt, tokenizer->decode({outcome.tokens.data(), 1}, true)) >=
              judged.score;
    }
    judged.outcome = std::move(outcome);
    return judged;
  };
  const std::vector<Policy> tried = draws_of(policies);
  const bool repeats = std::any_of(policies.begin(), policies.end(), repetition_of);
  while (out.full.size() < out.questions.size()) {
    const auto together =
        std::span(out.questions)
            .subspan(out.full.size(),
                     std::min(options.prompts_together, out.questions.size() - out.full.size()));
    std::vector<SimulateOptions> of_questions(together.size(), options);
    std::vector<std::string> names;
    for (const auto& question : together) names.push_back(printable(question.prompt.id));
    std::vector<SimulatedPrompt> prompts;
    for (std::size_t i = 0; i < together.size(); ++i) {
      const Question& question = together[i];
      SimulateOptions& of_question = of_questions[i];
      of_question.max_new = question.max_new;
      of_question.context_tokens = question.context_tokens;
      if (!out.full.empty() || i > 0) of_question.time_steps = 0;
      if (repeats)
        of_question.repeat = repeat_request(engine.model(), question.chat, question.tokens);
      if (scores_alone && tokenizer)
        of_question.settled = [tokenizer, &question](std::span<const std::int64_t> tokens) {
          return data::is_settled(question.prompt, tokenizer->decode(tokens, true));
        };
      prompts.push_back({question.tokens, of_question, names[i]});
    }
    std::vector<Simulated> simulated;
    try {
      simulated = simulate(engine, prompts, tried);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::cancelled || out.full.empty()) throw;
      out.interrupted = out.questions.size() - out.full.size();
      break;
    }
    for (std::size_t i = 0; i < together.size(); ++i) {
      out.prefill_seconds += simulated[i].prefill_seconds;
      out.decode_seconds += simulated[i].decode_seconds;
      out.full.push_back(judge(together[i], simulated[i].full));
      auto of_draw = simulated[i].policies.begin();
      for (std::size_t p = 0; p < policies.size(); ++p) {
        std::vector<Judged> draws(draws_of(policies.subspan(p, 1)).size());
        for (Judged& draw : draws) draw = judge(together[i], *of_draw++);
        out.judged[p].push_back(mean_of_draws(std::move(draws)));
      }
    }
    if (done) done(out);
  }
  out.questions.resize(out.full.size());
  return out;
}

double held_mean_bytes(const Outcome& outcome) {
  return outcome.held_bytes.empty() ? outcome.kept_bytes : mean_of(outcome.held_bytes);
}

double held_peak_bytes(const Outcome& outcome) {
  return outcome.held_bytes.empty()
             ? outcome.kept_bytes
             : *std::max_element(outcome.held_bytes.begin(), outcome.held_bytes.end());
}

namespace {

/// Values that are numbers, one a question.
class Values {
 public:
  void add(double value, const data::Prompt& prompt) {
    if (std::isnan(value)) return;
    values_.push_back(value);
    groups_.push_back(prompt.group);
    tasks_.push_back(prompt.task);
  }
  TaskMeans of_tasks() const { return task_means(values_, groups_, tasks_); }
  /// The estimate over tasks, made of rounds of groups as `of_rounds` does it.
  template <class OfRounds>
  Estimate over_tasks(const OfRounds& of_rounds) const {
    const TaskMeans means = of_tasks();
    return about_tasks(of_rounds(means.rounds), means);
  }
  Divergence divergence() const { return divergence_over(values_, groups_, tasks_); }
  std::vector<double> of_texts() const { return group_means(values_, groups_); }
  double mean() const { return mean_of(values_); }
  std::size_t count() const { return values_.size(); }
  std::size_t texts() const { return count_texts(groups_); }

 private:
  std::vector<double> values_;
  std::vector<std::string> groups_, tasks_;
};

Summary summarise_one(const Evaluation& evaluation, const std::string& policy,
                      const std::vector<Judged>& judged, const std::string& task) {
  Values score, full_score, loss, kl, agreement, prefix, in_place;
  Values kept, full_bytes, read, full_read, prompt_read, held_mean, held_peak;
  std::vector<const std::vector<double>*> held;
  Summary out;
  out.policy = policy;
  for (std::size_t i = 0; i < judged.size(); ++i) {
    const data::Prompt& prompt = evaluation.questions[i].prompt;
    if (!task.empty() && prompt.task != task) continue;
    const Judged &one = judged[i], &full = evaluation.full[i];
    score.add(one.score, prompt);
    full_score.add(full.score, prompt);
    loss.add(100 * (full.score - one.score), prompt);
    kl.add(one.outcome.kl, prompt);
    agreement.add(one.outcome.agreement, prompt);
    if (one.digits) {
      prefix.add(one.digits->prefix, prompt);
      in_place.add(one.digits->in_place, prompt);
    }
    kept.add(one.outcome.kept_bytes, prompt);
    full_bytes.add(one.outcome.full_bytes, prompt);
    read.add(one.outcome.read_bytes, prompt);
    full_read.add(full.outcome.read_bytes, prompt);
    prompt_read.add(one.outcome.prompt_read, prompt);
    held_mean.add(held_mean_bytes(one.outcome), prompt);
    held_peak.add(held_peak_bytes(one.outcome), prompt);
    held.push_back(&one.outcome.held_bytes);
    if (!std::isnan(one.outcome.seconds_per_token)) {
      out.ms_per_token = 1000 * one.outcome.seconds_per_token;
      out.full_ms_per_token = 1000 * full.outcome.seconds_per_token;
    }
  }
  out.scored = score.count();
  out.texts = score.texts();
  const auto of_scores = [](const auto& rounds) { return score_mean(rounds); };
  out.score = score.over_tasks(of_scores);
  out.score_over_prompts = score.mean();
  out.full_score = full_score.over_tasks(of_scores);
  TaskMeans losses = loss.of_tasks();
  out.tasks = losses.tasks;
  out.loss = about_tasks(betting_mean(losses.rounds, kPointRange), losses);
  out.losses = std::move(losses.rounds);
  out.kl = kl.divergence();
  out.text_kls = kl.of_texts();
  out.agreement = agreement.over_tasks(of_scores);
  out.agreements = agreement.of_tasks().rounds;
  out.digits_prefix = prefix.over_tasks(of_scores);
  out.digits_in_place = in_place.over_tasks(of_scores);
  out.kept_bytes = kept.mean();
  out.full_bytes = full_bytes.mean();
  out.read_bytes = read.mean();
  out.full_read_bytes = full_read.mean();
  out.prompt_read = prompt_read.mean();
  out.held_mean_bytes = held_mean.mean();
  out.held_peak_bytes = held_peak.mean();
  out.held_bytes = means_by_place(held);
  return out;
}

std::size_t texts_of(const Evaluation& evaluation) {
  std::vector<std::string> groups;
  for (const auto& question : evaluation.questions) groups.push_back(question.prompt.group);
  return count_texts(groups);
}

std::vector<std::string> tasks_of(const Evaluation& evaluation) {
  std::vector<std::string> tasks;
  for (const auto& question : evaluation.questions)
    if (std::find(tasks.begin(), tasks.end(), question.prompt.task) == tasks.end())
      tasks.push_back(question.prompt.task);
  return tasks;
}

}  // namespace

std::vector<Summary> summarise(const Evaluation& evaluation, const std::string& task) {
  std::vector<Summary> out;
  out.push_back(summarise_one(evaluation, "full", evaluation.full, task));
  for (std::size_t i = 0; i < evaluation.policies.size(); ++i)
    out.push_back(summarise_one(evaluation, evaluation.policies[i], evaluation.judged[i], task));
  return out;
}

std::vector<DepthScore> depth_scores(const Evaluation& evaluation,
                                     const std::vector<Judged>& judged) {
  struct Cell {
    Values score, prefix, in_place;
  };
  std::map<std::pair<std::int64_t, double>, Cell> cells;
  for (std::size_t i = 0; i < judged.size(); ++i) {
    const auto& prompt = evaluation.questions[i].prompt;
    if (prompt.length <= 0 || prompt.depth < 0) continue;
    Cell& cell = cells[{prompt.length, prompt.depth}];
    cell.score.add(judged[i].score, prompt);
    if (!judged[i].digits) continue;
    cell.prefix.add(judged[i].digits->prefix, prompt);
    cell.in_place.add(judged[i].digits->in_place, prompt);
  }
  std::vector<DepthScore> out;
  for (const auto& [at, cell] : cells)
    if (cell.score.count() > 0)
      out.push_back({at.first, at.second, static_cast<std::int64_t>(cell.score.count()),
                     cell.score.of_tasks().mean, cell.prefix.of_tasks().mean,
                     cell.in_place.of_tasks().mean});
  return out;
}

std::vector<TurnScore> turn_scores(const Evaluation& evaluation,
                                   const std::vector<Judged>& judged) {
  std::map<std::int64_t, Values> turns;
  for (std::size_t i = 0; i < judged.size(); ++i)
    if (const auto& prompt = evaluation.questions[i].prompt; prompt.turn > 0)
      turns[prompt.turn].add(judged[i].score, prompt);
  std::vector<TurnScore> out;
  for (const auto& [turn, values] : turns)
    if (values.count() > 0)
      out.push_back({turn, static_cast<std::int64_t>(values.count()),
                     values.over_tasks([](const auto& rounds) { return score_mean(rounds); })});
  return out;
}

std::vector<Estimate> call_part_means(const Evaluation& evaluation,
                                      const std::vector<Judged>& judged) {
  std::array<Values, data::kCallParts.size()> values;
  for (std::size_t i = 0; i < judged.size(); ++i) {
    const auto& prompt = evaluation.questions[i].prompt;
    if (const auto parts = data::prompt_call_parts(prompt, judged[i].text))
      for (std::size_t p = 0; p < values.size(); ++p)
        values[p].add((*parts).*data::kCallParts[p].value, prompt);
  }
  std::vector<Estimate> out;
  for (const auto& part : values)
    if (part.count() > 0)
      out.push_back(part.over_tasks([](const auto& rounds) { return score_mean(rounds); }));
  return out;
}

namespace {

using nlohmann::json;

json summary_json(const Summary& s) {
  json out = report_json(measured_of(s));
  out["full_bytes"] = count_json(s.full_bytes);
  out["kept_bytes"] = count_json(s.kept_bytes);
  out["compression"] = number_json(s.full_bytes / s.kept_bytes);
  out["score_over_prompts"] = number_json(s.score_over_prompts);
  return out;
}

/// How often each layer is trimmed, where layers are.
json lazy_rates(const std::vector<Judged>& judged, std::size_t layers) {
  std::vector<double> rates(layers, 0);
  bool any = false;
  for (const auto& one : judged)
    for (const auto layer : one.outcome.lazy) {
      any = true;
      rates[layer] += 1 / static_cast<double>(judged.size());
    }
  return any ? json(rates) : json();
}

/// Of what was held at each token, as many points as a chart shows, the first and the last among
/// them.
HeldOverTokens over_tokens(const std::vector<double>& held) {
  constexpr std::size_t kMostPoints = 256;
  const std::size_t points = std::min(held.size(), kMostPoints);
  HeldOverTokens out;
  for (std::size_t i = 0; i < points; ++i) {
    const std::size_t at = points == 1 ? 0 : i * (held.size() - 1) / (points - 1);
    out.tokens.push_back(static_cast<std::int64_t>(at + 1));
    out.bytes.push_back(held[at]);
  }
  return out;
}

std::string task_key(const std::string& task) { return task.empty() ? "your own" : task; }

}  // namespace

Measured measured_of(const Summary& s) {
  Measured out;
  out.samples = static_cast<std::int64_t>(s.scored);
  out.texts = static_cast<std::int64_t>(s.texts);
  out.full = s.full_score;
  out.score = s.score;
  out.loss = {s.loss.mean / 100, s.loss.low / 100, s.loss.high / 100};
  if (s.full_bytes > 0) out.kept_share = 1 - s.saved();
  out.kl = s.kl;
  out.agreement = s.agreement;
  out.digits_prefix = s.digits_prefix;
  out.digits_in_place = s.digits_in_place;
  out.read_bytes = s.read_bytes;
  out.full_read_bytes = s.full_read_bytes;
  out.prompt_read_share = s.prompt_read;
  out.held_mean_bytes = s.held_mean_bytes;
  out.held_peak_bytes = s.held_peak_bytes;
  out.ms_per_token = s.ms_per_token;
  out.full_ms_per_token = s.full_ms_per_token;
  return out;
}

std::vector<Measured> measured_of(const Evaluation& evaluation) {
  std::vector<Measured> out;
  const auto summaries = summarise(evaluation);
  const auto turns = turn_scores(evaluation, evaluation.full);
  for (std::size_t i = 0; i < summaries.size(); ++i) {
    const auto& judged = i == 0 ? evaluation.full : evaluation.judged[i - 1];
    Measured& one = out.emplace_back(measured_of(summaries[i]));
    one.held = over_tokens(summaries[i].held_bytes);
    one.full_held = over_tokens(summaries.front().held_bytes);
    one.depths = depth_scores(evaluation, judged);
    one.full_depths = depth_scores(evaluation, evaluation.full);
    if (turns.size() < 2) continue;
    one.turns = turn_scores(evaluation, judged);
    one.full_turns = turns;
  }
  const auto tasks = tasks_of(evaluation);
  if (tasks.size() > 1)
    for (const auto& task : tasks) {
      const auto of_task = summarise(evaluation, task);
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i].tasks[task_key(task)] = measured_of(of_task[i]);
    }
  return out;
}

json evaluation_json(const Evaluation& evaluation) {
  json out = {{"samples", evaluation.questions.size()},
              {"texts", texts_of(evaluation)},
              {"prefill_seconds", evaluation.prefill_seconds},
              {"decode_seconds", evaluation.decode_seconds},
              {"policies", json::array()}};
  const auto all = summarise(evaluation);
  std::map<std::string, std::vector<Summary>> by_task;
  for (const auto& task : tasks_of(evaluation)) by_task[task] = summarise(evaluation, task);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& judged = i == 0 ? evaluation.full : evaluation.judged[i - 1];
    json one = summary_json(all[i]);
    one["policy"] = all[i].policy;
    one["held_over_tokens"] = report_json(over_tokens(all[i].held_bytes));
    for (const auto& [task, summaries] : by_task)
      one["tasks"][task_key(task)] = summary_json(summaries[i]);
    for (auto& cell : depth_scores(evaluation, judged))
      one["by_length_and_depth"].push_back(report_json(std::move(cell)));
    for (auto& cell : turn_scores(evaluation, judged))
      one["by_turn"].push_back(report_json(std::move(cell)));
    if (const auto parts = call_part_means(evaluation, judged); !parts.empty())
      for (std::size_t p = 0; p < parts.size(); ++p)
        one["calls"][data::kCallParts[p].name] = estimate_json(parts[p]);
    if (!judged.empty())
      if (json rates = lazy_rates(judged, judged.front().outcome.cache_lengths.size());
          !rates.is_null())
        one["lazy_rates"] = std::move(rates);
    Values skipped;
    for (std::size_t q = 0; q < judged.size(); ++q)
      skipped.add(judged[q].outcome.skipped, evaluation.questions[q].prompt);
    if (skipped.count() > 0) one["gate_skipped"] = skipped.mean();
    out["policies"].push_back(std::move(one));
  }
  return out;
}

namespace {

std::string interval_text(const Estimate& estimate, int digits) {
  return std::isnan(estimate.mean) ? "-" : estimate_text(estimate, digits);
}

Table summary_table(const Evaluation& evaluation, const std::vector<Summary>& summaries,
                    const std::string& task, const std::string& title) {
  // Servers do not say what they hold.
  const bool held = summaries.front().full_bytes > 0;
  Table table{
      title, {"policy", "KV saved", "score", "loss (points)", "KV read a token", "ms a token"}, {}};
  if (!held) table.columns = {"server", "score", "loss (points)"};
  // Over several tasks they would be those of the pass keys among the prompts.
  const bool digits = !std::isnan(summaries.front().digits_prefix.mean) &&
                      (!task.empty() || tasks_of(evaluation).size() == 1);
  if (digits) {
    table.columns.emplace_back("digits to the first wrong");
    table.columns.emplace_back("digits in place");
  }
  const bool sparse = std::any_of(summaries.begin(), summaries.end(),
                                  [](const Summary& s) { return s.prompt_read < 1; });
  if (sparse) table.columns.emplace_back("prompt read");
  for (const auto& s : summaries) {
    const double mib = 1024.0 * 1024.0;
    // The first row is the full cache's: beside itself it loses nothing, and surely so.
    const std::string score = interval_text(s.score, 2), loss = table.rows.empty()
                                                                    ? fixed_text(s.loss.mean, 1)
                                                                    : interval_text(s.loss, 1);
    if (held)
      table.rows.push_back({s.policy, percent_text(s.saved()), score, loss,
                            fixed_text(s.read_bytes / mib, 2) + " MiB",
                            fixed_text(s.ms_per_token, 1)});
    else
      table.rows.push_back({s.policy, score, loss});
    if (digits)
      for (const auto& one : {s.digits_prefix, s.digits_in_place})
        table.rows.back().push_back(interval_text(one, 2));
    if (sparse) table.rows.back().push_back(percent_text(s.prompt_read));
  }
  return table;
}

/// How far policies are from the full model along its own answers; none where that was not
/// compared.
std::optional<Table> divergence_table(const std::vector<Summary>& summaries) {
  Table table{str("KL divergence from the full cache in nats, over texts; agreement of top tokens"),
              {"policy", "mean", "median", "90th percentile"},
              {}};
  for (const double limit : kDivergenceLimits)
    table.columns.push_back(str("above ", limit, limit < 1 ? " nats" : " nat"));
  table.columns.emplace_back("agreement");
  for (const auto& s : std::span(summaries).subspan(1)) {
    if (std::isnan(s.kl.mean)) continue;
    table.rows.push_back(
        {s.policy, fixed_text(s.kl.mean, 3), quantile_text(s.kl.median), quantile_text(s.kl.p90)});
    for (const auto& share : s.kl.above) table.rows.back().push_back(interval_text(share, 2));
    table.rows.back().push_back(interval_text(s.agreement, 2));
  }
  return table.rows.empty() ? std::nullopt : std::optional(std::move(table));
}

/// "Task dureader: ROUGE-L by character": what is scored is said where all its prompts agree.
std::string task_title(const Evaluation& evaluation, const std::string& task) {
  std::string title = task.empty() ? "Your own prompts" : "Task " + printable(task);
  std::set<std::string> metrics;
  for (const auto& question : evaluation.questions)
    if (question.prompt.task == task) metrics.insert(data::metric_name(question.prompt));
  return metrics.size() == 1 && *metrics.begin() != "none" ? title + ": " + *metrics.begin()
                                                           : title;
}

struct DepthFigure {
  const char* title;
  double (*of)(const DepthScore&);
};
constexpr DepthFigure kDepthFigures[] = {
    {"Score", [](const DepthScore& cell) { return cell.score; }},
    {"Digits right up to the first wrong one",
     [](const DepthScore& cell) { return cell.digits_prefix; }},
    {"Digits right at their place", [](const DepthScore& cell) { return cell.digits_in_place; }}};

/// A figure over length and depth of one policy: a row a depth.
Table depth_table(const std::string& policy, const DepthFigure& figure,
                  const std::vector<DepthScore>& scores) {
  std::map<double, std::map<std::int64_t, double>> rows;
  std::map<std::int64_t, bool> lengths;
  for (const auto& cell : scores) {
    rows[cell.depth][cell.length] = figure.of(cell);
    lengths[cell.length] = true;
  }
  Table table{str(figure.title, " over depth and length: ", policy), {"depth"}, {}};
  for (const auto& [length, there] : lengths) table.columns.push_back(std::to_string(length));
  for (const auto& [depth, cells] : rows) {
    Table::Row row{fixed_text(depth, 2)};
    for (const auto& [length, there] : lengths)
      row.push_back(cells.contains(length) ? fixed_text(cells.at(length), 2) : "-");
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// The scores of all policies by turn, where contexts have several.
std::optional<Table> turn_table(const Evaluation& evaluation) {
  const auto full = turn_scores(evaluation, evaluation.full);
  if (full.size() < 2) return std::nullopt;
  Table table{str("Score by turn, ",
                  count_of(static_cast<std::int64_t>(texts_of(evaluation)), "text", "texts")),
              {"policy"},
              {}};
  for (const auto& cell : full) table.columns.push_back(str("turn ", cell.turn));
  const auto add_row = [&](const std::string& policy, const std::vector<TurnScore>& scores) {
    table.rows.push_back({policy});
    for (const auto& cell : scores) table.rows.back().push_back(interval_text(cell.score, 2));
  };
  add_row("full", full);
  for (std::size_t i = 0; i < evaluation.policies.size(); ++i)
    add_row(evaluation.policies[i], turn_scores(evaluation, evaluation.judged[i]));
  return table;
}

/// What is right of the calls of functions, where prompts ask for some.
std::optional<Table> call_table(const Evaluation& evaluation) {
  Table table{"Calls of functions, part by part", {"policy"}, {}};
  for (const auto& part : data::kCallParts) table.columns.emplace_back(part.title);
  const auto add_row = [&](const std::string& policy, const std::vector<Judged>& judged) {
    const auto parts = call_part_means(evaluation, judged);
    if (parts.empty()) return;
    table.rows.push_back({policy});
    for (const auto& part : parts) table.rows.back().push_back(interval_text(part, 2));
  };
  add_row("full", evaluation.full);
  for (std::size_t i = 0; i < evaluation.policies.size(); ++i)
    add_row(evaluation.policies[i], evaluation.judged[i]);
  return table.rows.empty() ? std::nullopt : std::optional(std::move(table));
}

/// What policies hold while answers are generated that are long enough for it to matter.
std::optional<Table> held_table(const std::vector<Summary>& summaries) {
  constexpr std::size_t kLongAnswer = 64;
  std::size_t longest = 0;
  for (const auto& s : summaries) longest = std::max(longest, s.held_bytes.size());
  if (longest < kLongAnswer) return std::nullopt;
  Table table{str("KV cache held while generating up to ", longest + 1, " tokens"),
              {"policy", "after the prompt", "mean", "peak", "peak of the full cache's"},
              {}};
  for (const auto& s : summaries) {
    const auto mib = [](double bytes) { return fixed_text(bytes / (1024.0 * 1024.0), 2) + " MiB"; };
    table.rows.push_back({s.policy, mib(s.kept_bytes), mib(s.held_mean_bytes),
                          mib(s.held_peak_bytes),
                          percent_text(s.held_peak_bytes / summaries.front().held_peak_bytes)});
  }
  return table;
}

std::string prompts_text(const Evaluation& evaluation) {
  const std::size_t prompts = evaluation.questions.size();
  return str(count_of(static_cast<std::int64_t>(prompts), "prompt", "prompts"),
             of_texts(prompts, texts_of(evaluation)));
}

}  // namespace

std::vector<Table> evaluation_tables(const Evaluation& evaluation) {
  std::vector<Table> tables;
  const auto tasks = tasks_of(evaluation);
  if (tasks.size() > 1)
    for (const auto& task : tasks)
      tables.push_back(summary_table(evaluation, summarise(evaluation, task), task,
                                     task_title(evaluation, task)));
  const auto cells = depth_scores(evaluation, evaluation.full);
  const bool grid = cells.size() > 1 && cells.front().length != cells.back().length;
  for (const auto& figure : kDepthFigures) {
    const bool known = std::any_of(cells.begin(), cells.end(), [&](const DepthScore& cell) {
      return !std::isnan(figure.of(cell));
    });
    if (!grid || !known) continue;
    tables.push_back(depth_table("full", figure, cells));
    for (std::size_t i = 0; i < evaluation.policies.size(); ++i)
      tables.push_back(depth_table(evaluation.policies[i], figure,
                                   depth_scores(evaluation, evaluation.judged[i])));
  }
  if (auto turns = turn_table(evaluation)) tables.push_back(std::move(*turns));
  if (auto calls = call_table(evaluation)) tables.push_back(std::move(*calls));
  std::string all = "All " + prompts_text(evaluation);
  if (tasks.size() > 1) all += str(": means of the means of ", tasks.size(), " tasks");
  const auto summaries = summarise(evaluation);
  if (auto divergences = divergence_table(summaries)) tables.push_back(std::move(*divergences));
  tables.push_back(summary_table(evaluation, summaries, {}, all));
  if (auto held = held_table(summaries)) tables.push_back(std::move(*held));
  return tables;
}

}  // namespace kvatlas::calibrate
