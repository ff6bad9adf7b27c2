// SPDX-License-Identifier: Apache-2.0
#include "calibrate/methods/judging.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.hpp"
#include "base/text_count.hpp"
#include "calibrate/rules/certainty.hpp"

namespace kvatlas::calibrate {

using nlohmann::json;

Policy policy_of(Part part) {
  Policy policy{.name = {}, .parts = {std::move(part)}};
  policy.name = policy_text(policy);
  return policy;
}

double divergence_of(const Trial& trial) { return std::isnan(trial.kl) ? 100 : trial.kl; }

Calibrated with_section(json section, const json& report, Calibrated found) {
  section.update(report);
  section.update(found.section);
  found.section = std::move(section);
  return found;
}

Calibrated without_policy(const Method& method, Calibrated found) {
  found.section = nullptr;
  found.tables.push_back(
      {str(method.title, ": found no ", method.setting ? method.setting : "setting",
           " that saves and keeps the score"),
       {},
       {}});
  return found;
}

Verdict::Verdict(const Evidence& evidence, const RunTrials& run, std::span<const Policy> policies,
                 const std::vector<std::size_t>& positions, Measure measure) {
  const auto samples = evidence.in_hashed_order(positions);
  std::vector<Policy> all = {Policy{.name = "full", .parts = {}}};
  all.insert(all.end(), policies.begin(), policies.end());
  const auto found = run(all, samples, measure);
  const auto complete = [&](const auto& of_policy) { return of_policy.size() == samples.size(); };
  if (found.size() != all.size() || !std::all_of(found.begin(), found.end(), complete))
    fail(ErrorCode::internal, "trials of ", all.size(), " policies on ", samples.size(),
         " samples came back in another number");
  trials_.resize(policies.size());
  scores_.resize(policies.size());
  for (std::size_t s = 0; s < samples.size(); ++s) {
    if (std::isnan(found[0][s].score)) continue;
    samples_.push_back(samples[s]);
    groups_.push_back(evidence.sample(samples[s]).group);
    tasks_.push_back(evidence.sample(samples[s]).task);
    full_.push_back(found[0][s].score);
    for (std::size_t p = 0; p < policies.size(); ++p) {
      trials_[p].push_back(found[p + 1][s]);
      scores_[p].push_back(found[p + 1][s].score);
    }
  }
}

namespace {

Estimate score_over_tasks(const std::vector<double>& scores, const std::vector<std::string>& groups,
                          const std::vector<std::string>& tasks) {
  const TaskMeans of_tasks = task_means(scores, groups, tasks);
  return about_tasks(score_mean(of_tasks.rounds), of_tasks);
}

}  // namespace

Estimate Verdict::score(std::size_t policy) const {
  return score_over_tasks(scores_[policy], groups_, tasks_);
}

Estimate Verdict::full_score() const { return score_over_tasks(full_, groups_, tasks_); }

double Verdict::kept_share(std::size_t policy) const {
  std::vector<double> shares;
  for (const Trial& trial : trials_[policy]) shares.push_back(trial.kept_share);
  return mean_of(shares);
}

std::optional<std::size_t> Verdict::least_that_holds(double tolerance, std::size_t first,
                                                     std::size_t policies) const {
  std::vector<double> means;
  for (std::size_t p = 0; p < policies; ++p) means.push_back(score(first + p).mean);
  const auto chosen = choose_threshold(means, full_score().mean, tolerance);
  if (!chosen || kept_share(first + *chosen) > 1 - kLeastSaving) return std::nullopt;
  return chosen;
}

SampleCount Verdict::count() const { return {groups_.size(), count_texts(groups_)}; }

void Verdict::require_answers(bool force, Calibrated& out) const {
  require_samples(count(), "with a score", force, out);
  require_score(full_score().mean, force, out);
}

Measured Verdict::measured(std::size_t policy, bool held_out) const {
  const auto judge = [&](const std::vector<std::size_t>& which) {
    std::vector<std::string> groups, tasks;
    std::vector<double> full, score, loss, kept;
    for (const auto s : which) {
      groups.push_back(groups_[s]);
      tasks.push_back(tasks_[s]);
      full.push_back(full_[s]);
      score.push_back(scores_[policy][s]);
      loss.push_back(full_[s] - scores_[policy][s]);
      kept.push_back(trials_[policy][s].kept_share);
    }
    const TaskMeans losses = task_means(loss, groups, tasks);
    Measured out;
    out.samples = std::ssize(which);
    out.texts = static_cast<std::int64_t>(count_texts(groups));
    out.full = score_over_tasks(full, groups, tasks);
    out.score = score_over_tasks(score, groups, tasks);
    out.loss = about_tasks(betting_mean(losses.rounds, kDifferenceRange), losses);
    out.kept_share = mean_of(kept);
    return out;
  };
  std::vector<std::size_t> all;
  std::map<std::string, std::vector<std::size_t>> by_task;
  for (std::size_t s = 0; s < samples_.size(); ++s) {
    all.push_back(s);
    by_task[tasks_[s]].push_back(s);
  }
  Measured out = judge(all);
  out.held_out = held_out;
  for (const auto& [task, members] : by_task) out.tasks[task] = judge(members);
  return out;
}

void note_precision(const Evidence& evidence, const Split& split, const Verdict& verdict,
                    std::size_t policy, Calibrated& out) {
  if (split.held_out.empty())
    out.notes.push_back(str("nothing was held out of ", evidence.count(split.choice).text(),
                            ": the loss is measured on those that the choice was made on, and so "
                            "too small (",
                            kLeastToHoldOut,
                            " texts or more, with --held-out above 0, are split)"));
  std::vector<double> losses;
  for (std::size_t s = 0; s < verdict.samples().size(); ++s)
    losses.push_back(verdict.full()[s] - verdict.scores(policy)[s]);
  const TaskMeans of_tasks = task_means(losses, verdict.groups(), verdict.tasks());
  if (of_tasks.rounds.empty()) return;
  const auto needed = values_for_width(of_tasks.rounds, kDifferenceRange, 0.05);
  if (needed && std::ssize(of_tasks.rounds) < *needed)
    out.notes.push_back(str("the loss is measured on ", verdict.count().text(), "; ", *needed,
                            of_tasks.tasks > 1 ? " texts of each task" : " texts",
                            " like these make its interval about +-5 points"));
}

}  // namespace kvatlas::calibrate
