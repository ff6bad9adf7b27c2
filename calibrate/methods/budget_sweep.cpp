// SPDX-License-Identifier: Apache-2.0
#include "calibrate/methods/budget_sweep.hpp"

#include <algorithm>
#include <map>

#include "base/text_count.hpp"

namespace kvatlas::calibrate {

/// The policies are those of the first way at each of the places, then of the second, and so on.
/// Each sample is tried under what the ways have for its own task.
Verdict BudgetSweep::try_ways(std::span<const BudgetWay> ways, std::span<const std::size_t> places,
                              const std::vector<std::size_t>& samples) const {
  const RunTrials by_task = [&](std::span<const Policy> policies, std::span<const std::size_t> all,
                                Measure measure) {
    std::map<std::string, std::vector<std::size_t>> tasks;
    for (const auto position : all) tasks[evidence.sample(position).task].push_back(position);
    std::vector<std::vector<Trial>> out(policies.size(), std::vector<Trial>(all.size()));
    for (const auto& [task, of_task] : tasks) {
      std::vector<Policy> theirs(policies.begin(), policies.end());
      for (std::size_t w = 0; w < ways.size(); ++w)
        for (std::size_t i = 0; i < places.size(); ++i)
          theirs[1 + w * places.size() + i].parts = {ways[w].part(places[i], task)};
      const auto found = run(theirs, of_task, measure);
      for (std::size_t p = 0; p < policies.size(); ++p)
        for (std::size_t s = 0; s < of_task.size(); ++s)
          out[p][std::find(all.begin(), all.end(), of_task[s]) - all.begin()] = found.at(p).at(s);
    }
    return out;
  };
  std::vector<Policy> policies;
  for (std::size_t w = 0; w < ways.size(); ++w)
    for (const auto place : places)
      policies.push_back({.name = str(method.name, ":budget=", budgets[place]), .parts = {}});
  return {evidence, by_task, policies, samples};
}

BudgetSweep::Choice BudgetSweep::choose(std::span<const BudgetWay> ways,
                                        const std::vector<std::size_t>& samples,
                                        Calibrated& out) const {
  const Verdict full_alone(evidence, run, {}, samples);
  // A budget that was asked for needs no choice; that nothing is measured is said elsewhere.
  if (asked && full_alone.samples().empty()) return {};
  full_alone.require_answers(evidence.request().force, out);
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < budgets.size(); ++i) places.push_back(i);
  const Verdict verdict = try_ways(ways, places, samples);
  const Estimate full = verdict.full_score();
  Choice choice;
  choice.full = full;
  Table table{str(method.title, ": score against the budget (", verdict.count().text(),
                  ", full cache ", fixed_text(full.mean, 3), "), and how ", spread),
              {"budget"},
              {}};
  for (const auto budget : budgets) table.rows.push_back({str(budget)});
  for (std::size_t w = 0; w < ways.size(); ++w) {
    table.columns.push_back(ways[w].title);
    BudgetReport& report = *ways[w].report;
    for (std::size_t i = 0; i < budgets.size(); ++i) {
      const std::size_t policy = w * budgets.size() + i;
      const Estimate score = verdict.score(policy);
      auto& point = report.curve.emplace_back();
      point.setting = static_cast<double>(budgets[i]);
      point.score = score;
      point.kept_share = verdict.kept_share(policy);
      table.rows[i].push_back(estimate_text(score));
    }
    const auto chosen = verdict.least_that_holds(tolerance, w * budgets.size(), budgets.size());
    if (chosen) table.rows[*chosen].back().text += " *";
    if (chosen) report.recommended = budgets[*chosen];
    choice.smallest.push_back(chosen);
  }
  table.columns.push_back({"KV kept", "share"});
  for (std::size_t i = 0; i < budgets.size(); ++i)
    table.rows[i].push_back(ways.front().report->curve[i].kept_share);
  out.tables.push_back(std::move(table));
  return choice;
}

std::optional<std::int64_t> BudgetSweep::settle(std::optional<std::size_t> smallest,
                                                Calibrated& out) const {
  if (!asked) {
    if (!smallest) return std::nullopt;
    return budgets[*smallest];
  }
  if (!smallest || *asked < budgets[*smallest])
    out.notes.push_back(str(
        "the budget asked for, ", *asked,
        ", does not keep the score there and at every larger one; ",
        smallest ? str("the smallest that does is ", budgets[*smallest]) : "none that saves does"));
  return *asked;
}

void BudgetSweep::measure(std::span<const BudgetWay> ways, std::int64_t budget, const Split& split,
                          Calibrated& out) const {
  const std::size_t place[] = {static_cast<std::size_t>(
      std::find(budgets.begin(), budgets.end(), budget) - budgets.begin())};
  const bool held_out = !split.held_out.empty();
  const Verdict verdict = try_ways(ways, place, held_out ? split.held_out : split.choice);
  if (verdict.samples().empty()) {
    out.notes.push_back("no sample to judge by has a score: the loss is not measured");
    return;
  }
  const std::string where = held_out ? "held-out samples" : "the samples of the choice";
  for (std::size_t w = 0; w < ways.size(); ++w)
    ways[w].report->measured = verdict.measured(w, held_out);
  out.tables.push_back(measured_table(
      str(method.title, " at budget ", budget, ", ", ways.front().title, ", on ", where),
      *ways.front().report->measured));
  if (ways.size() > 1) {
    Table controls{others, {"budgets", "score"}, {}};
    for (std::size_t w = 0; w < ways.size(); ++w)
      controls.rows.push_back({ways[w].title, estimate_text(verdict.score(w))});
    out.tables.push_back(std::move(controls));
  }
  note_precision(evidence, split, verdict, 0, out);
}

}  // namespace kvatlas::calibrate
