// SPDX-License-Identifier: Apache-2.0
#include "calibrate/certify/gate.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/markup.hpp"
#include "base/text_count.hpp"
#include "base/whole_file.hpp"
#include "calibrate/rules/calibrated.hpp"
#include "calibrate/rules/evidence.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;
using Kind = LossVerdict::Kind;

void say_forced(const Calibrated& forced) {
  for (const auto& note : forced.notes) std::cerr << "kvatlas: note: " << note << '\n';
}

}  // namespace

const char* GateVerdict::word() const {
  return loss.kind == Kind::passed ? "passed" : loss.kind == Kind::failed ? "FAILED" : "undecided";
}

GateVerdict judge(std::string name, Measured measured, std::size_t tasks,
                  std::span<const double> losses, Estimate mean, const Gate& gate) {
  GateVerdict verdict;
  verdict.name = std::move(name);
  verdict.measured = std::move(measured);
  verdict.tasks = tasks;
  verdict.rounds = losses.size();
  if (gate.by_mean) {
    verdict.loss.loss = mean;
    verdict.loss.kind = mean.mean <= gate.max_loss ? Kind::passed : Kind::failed;
  } else {
    verdict.loss = judge_losses(losses, kPointRange, gate.max_loss, gate.confidence);
  }
  return verdict;
}

namespace {

/// Of two verdicts on one policy: it fails where it fails once, and passes where it passes twice.
Kind both_of(Kind a, Kind b) {
  if (a == Kind::failed || b == Kind::failed) return Kind::failed;
  return a == Kind::passed && b == Kind::passed ? Kind::passed : Kind::undecided;
}

constexpr double kMedianShare = 0.5;

}  // namespace

void judge_likeness(GateVerdict& verdict, const Likeness& likeness, const Gate& gate) {
  if (!gate.by_loss) verdict.loss = {Kind::passed, {}, {}};
  const auto add = [&](std::string name, std::string sentence, bool mean_keeps,
                       std::span<const double> losses, double limit) {
    LossVerdict found = judge_losses(losses, kScoreRange, limit, gate.confidence);
    if (gate.by_mean) found.kind = mean_keeps ? Kind::passed : Kind::failed;
    if (found.kind == Kind::undecided)
      verdict.loss.more = std::max(verdict.loss.more.value_or(0), found.more.value_or(0));
    verdict.loss.kind = both_of(verdict.loss.kind, found.kind);
    if (!gate.by_loss) verdict.rounds = losses.size();
    verdict.besides.push_back({std::move(sentence), std::move(name), found.kind});
  };
  if (!std::isnan(gate.max_kl)) {
    std::vector<double> above;
    for (const double kl : likeness.kl) above.push_back(kl > gate.max_kl ? 1 : 0);
    const Quantile& median = verdict.measured.kl.median;
    add("kl",
        str("the median KL divergence is ", quantile_text(median), " nats, at most ",
            exact_text(gate.max_kl), " allowed"),
        median.value <= gate.max_kl, above, kMedianShare);
  }
  if (!std::isnan(gate.min_agreement)) {
    std::vector<double> differs;
    for (const double agreement : likeness.agreement) differs.push_back(1 - agreement);
    const Estimate& mean = verdict.measured.agreement;
    add("agreement",
        str("the agreement is ", estimate_text(mean), ", at least ", exact_text(gate.min_agreement),
            " asked"),
        mean.mean >= gate.min_agreement, differs, 1 - gate.min_agreement);
  }
}

std::vector<std::string> likeness_needs(const Gate& gate) {
  std::vector<std::string> out;
  const auto texts_for = [&](double limit) {
    std::vector<double> none = {0};
    while (none.size() < 10000 &&
           judge_losses(none, kScoreRange, limit, gate.confidence).kind == Kind::undecided)
      none.resize(none.size() + 1 + none.size() / 20);
    return none.size();
  };
  if (!std::isnan(gate.max_kl))
    out.push_back(str("a median of at most ", exact_text(gate.max_kl), " nats is sure after ",
                      texts_for(kMedianShare), " texts that all lie below"));
  if (!std::isnan(gate.min_agreement) && gate.min_agreement < 1)
    out.push_back(str("an agreement of at least ", exact_text(gate.min_agreement),
                      " is sure after about ", texts_for(1 - gate.min_agreement),
                      " texts that agree in all tokens"));
  return out;
}

void put_in_hashed_order(std::vector<ScorePair>& pairs) {
  std::vector<std::string> names;
  for (const auto& pair : pairs) names.push_back(pair.task + '\n' + pair.group);
  std::vector<ScorePair> in_order;
  for (const auto place : hashed_order(names)) in_order.push_back(std::move(pairs[place]));
  pairs = std::move(in_order);
}

namespace {

/// What is measured of pairs, and the losses of their rounds in points.
struct MeasuredPairs {
  Measured measured;
  TaskMeans losses;
  Estimate loss;  // in points
};
MeasuredPairs measure(std::span<const ScorePair> pairs) {
  std::vector<double> full, scores, losses;
  std::vector<std::string> groups, tasks;
  for (const auto& pair : pairs) {
    full.push_back(pair.full);
    scores.push_back(pair.score);
    losses.push_back(100 * (pair.full - pair.score));
    groups.push_back(pair.task + '\n' + pair.group);
    tasks.push_back(pair.task);
  }
  MeasuredPairs out;
  out.measured.samples = std::ssize(pairs);
  out.measured.texts = static_cast<std::int64_t>(count_texts(groups));
  const auto mean_of_scores = [&](const std::vector<double>& values) {
    const TaskMeans means = task_means(values, groups, tasks);
    return about_tasks(score_mean(means.rounds), means);
  };
  out.measured.full = mean_of_scores(full);
  out.measured.score = mean_of_scores(scores);
  out.losses = task_means(losses, groups, tasks);
  out.loss = about_tasks(betting_mean(out.losses.rounds, kPointRange), out.losses);
  out.measured.loss = {out.loss.mean / 100, out.loss.low / 100, out.loss.high / 100};
  return out;
}

}  // namespace

GateVerdict judge_pairs(std::string name, std::span<const ScorePair> pairs, const Gate& gate) {
  MeasuredPairs all = measure(pairs);
  std::map<std::string, std::vector<ScorePair>> of_tasks;
  for (const auto& pair : pairs) of_tasks[pair.task].push_back(pair);
  if (of_tasks.size() > 1)
    for (const auto& [task, own] : of_tasks) all.measured.tasks[task] = measure(own).measured;
  return judge(std::move(name), std::move(all.measured), all.losses.tasks, all.losses.rounds,
               all.loss, gate);
}

std::string verdict_of_all(std::span<const GateVerdict> verdicts) {
  const auto any = [&](Kind kind) {
    return std::any_of(verdicts.begin(), verdicts.end(),
                       [&](const GateVerdict& verdict) { return verdict.loss.kind == kind; });
  };
  return any(Kind::failed) ? "failed" : any(Kind::undecided) ? "undecided" : "passed";
}

std::string line_of(const GateVerdict& verdict, const Gate& gate) {
  const auto& loss = verdict.loss;
  const auto samples = static_cast<std::size_t>(verdict.measured.samples);
  std::string line = str(verdict.word(), ": ", printable(verdict.name, 200),
                         gate.by_loss ? str(" loses ", estimate_text(loss.loss, 1), " points") : "",
                         " on ", count_of(verdict.measured.samples, "prompt", "prompts"),
                         of_texts(samples, static_cast<std::size_t>(verdict.measured.texts)));
  if (gate.by_loss) line += str(", at most ", fixed_text(gate.max_loss, 1), " allowed");
  const char* separator = gate.by_loss ? "; " : ": ";
  for (const auto& beside : verdict.besides)
    line += str(std::exchange(separator, "; "), beside.sentence);
  if (gate.by_mean) line += " (by the mean alone)";
  if (loss.kind != Kind::undecided) return line;
  const std::int64_t more = loss.more.value_or(0) * static_cast<std::int64_t>(verdict.tasks);
  line += loss.more
              ? str("; about ", count_of(more, "more text is needed", "more texts are needed"))
              : "; its loss is too near to that for any number of texts to tell";
  // A limit of nearly 100 points allows everything.
  if (!verdict.besides.empty() || loss.loss.high > 99) return line;
  return line + str(", and --max-loss ", limit_text(loss.loss.high), " passes with these");
}

json verdicts_json(std::span<const GateVerdict> verdicts, std::span<const LeftOut> left_out,
                   const Gate& gate) {
  const std::string all = verdict_of_all(verdicts);
  json list = json::array();
  for (const auto& verdict : verdicts) {
    json one = report_json(verdict.measured);
    one[gate.one] = verdict.name;
    one["passed"] = verdict.loss.kind == Kind::passed;
    one["verdict"] = verdict_of_all({&verdict, 1});
    if (gate.by_loss) one["judged_loss_points"] = estimate_json(verdict.loss.loss);
    for (const auto& beside : verdict.besides)
      one["judged"][beside.name] = beside.kind == Kind::passed   ? "passed"
                                   : beside.kind == Kind::failed ? "failed"
                                                                 : "undecided";
    if (verdict.loss.more)
      one["more_texts"] = *verdict.loss.more * static_cast<std::int64_t>(verdict.tasks);
    list.push_back(std::move(one));
  }
  for (const auto& [policy, reason] : left_out)
    list.push_back(
        {{gate.one, policy}, {"passed", false}, {"verdict", "not judged"}, {"reason", reason}});
  json out = {{"passed", all == "passed"},
              {"verdict", all},
              {"surely", !gate.by_mean},
              {gate.many, std::move(list)}};
  if (gate.by_loss) out["max_loss_points"] = gate.max_loss;
  if (!std::isnan(gate.max_kl)) out["max_kl"] = gate.max_kl;
  if (!std::isnan(gate.min_agreement)) out["min_agreement"] = gate.min_agreement;
  return out;
}

std::string junit_text(std::span<const GateVerdict> verdicts, std::span<const LeftOut> not_judged,
                       bool run_failed, const Gate& gate) {
  std::size_t failures = 0, errors = 0;
  std::string cases;
  const auto add = [&](const std::string& policy, const std::string& element,
                       const std::string& message) {
    cases += str("    <testcase classname=\"", markup_text(printable(gate.subject, 400)),
                 "\" name=\"", markup_text(printable(policy, 200)), "\"");
    cases += element.empty() ? "/>\n"
                             : str(">\n      <", element, " message=\"", markup_text(message),
                                   "\"/>\n    </testcase>\n");
  };
  for (const auto& verdict : verdicts) {
    failures += verdict.loss.kind == Kind::failed;
    errors += verdict.loss.kind == Kind::undecided;
    add(verdict.name,
        verdict.loss.kind == Kind::passed   ? ""
        : verdict.loss.kind == Kind::failed ? "failure"
                                            : "error type=\"undecided\"",
        line_of(verdict, gate));
  }
  for (const auto& [policy, reason] : not_judged)
    add(policy, run_failed ? "error type=\"not judged\"" : "skipped", reason);
  const std::size_t skipped = run_failed ? 0 : not_judged.size();
  errors += not_judged.size() - skipped;
  const std::string counts = str(" tests=\"", verdicts.size() + not_judged.size(), "\" failures=\"",
                                 failures, "\" errors=\"", errors, "\" skipped=\"", skipped, "\"");
  return str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites", counts,
             ">\n  <testsuite name=\"kvatlas ", gate.command, "\"", counts, ">\n", cases,
             "  </testsuite>\n</testsuites>\n");
}

void prepare_junit(const std::string& path, bool remove_old) {
  if (std::filesystem::is_directory(path))
    fail(ErrorCode::usage, quoted(path, 400), " is a folder, --junit writes a file");
  check_output(path, true);
  std::error_code not_there;
  if (remove_old) std::filesystem::remove(path, not_there);
}

std::string limit_text(double points) { return fixed_text(std::ceil(10 * points) / 10, 1); }

void require_gate_texts(std::size_t prompts, std::size_t texts, bool force, const std::string& more,
                        const std::string& which) {
  if (texts < kLeastTexts && !force)
    fail(ErrorCode::usage, "prompts ", which, which.empty() ? "" : " ", "of ",
         count_of(static_cast<std::int64_t>(texts), "text", "texts"), ": a gate needs ",
         kLeastTexts, " at least (", more, "; --force judges all the same)");
  Calibrated forced;
  require_samples({prompts, texts}, which, force, forced);
  say_forced(forced);
}

void require_gate_score(std::span<const double> scores, std::span<const std::string> groups,
                        std::span<const std::string> tasks, bool force) {
  Calibrated forced;
  require_score(task_means(scores, groups, tasks).mean, force, forced);
  say_forced(forced);
}

}  // namespace kvatlas::calibrate
