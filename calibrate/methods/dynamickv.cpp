// SPDX-License-Identifier: Apache-2.0
#include "calibrate/methods/dynamickv.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "analyzer/profile/checked_arrays.hpp"
#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/options.hpp"
#include "base/plain_text.hpp"
#include "base/text_count.hpp"
#include "calibrate/methods/budget_sweep.hpp"
#include "calibrate/methods/judging.hpp"
#include "calibrate/methods/method_command.hpp"
#include "calibrate/methods/score_options.hpp"
#include "calibrate/policy/policy_settings.hpp"
#include "calibrate/policy/setting_option.hpp"
#include "calibrate/rules/cache_bytes.hpp"
#include "calibrate/runtimes/runtimes.hpp"

namespace kvatlas::calibrate {
namespace {

namespace name = profile::name;

using Counts = std::vector<std::int64_t>;

/// Budgets of some samples as the document gives them.
DynamicKvReport::Budgets budgets_of(const BudgetSummary& summary) {
  return {summary.mean, summary.deviation, summary.least, summary.most, summary.budgets};
}

/// What the layers' budgets are found from.
enum class Found : std::uint8_t { all_samples, task, prompt };

class Budgeting {
 public:
  Budgeting(const Evidence& evidence, const DynamicRequest& request, const RunTrials& run)
      : evidence_(evidence), request_(request), run_(run), select_(request.policy.select) {}

  Calibrated calibrate();

 private:
  /// One budget of the sweep.
  struct Level : BudgetsOfSamples {
    std::int64_t budget = 0;
  };
  void read_levels();
  const Level& chosen_level() const {
    return *std::find_if(levels_.begin(), levels_.end(),
                         [&](const Level& level) { return level.budget == select_.budget; });
  }
  std::map<std::string, std::vector<std::size_t>> by_task(
      const std::vector<std::size_t>& positions) const;
  DynamicKv part_of_level(const Level& level, const std::vector<std::size_t>& of) const;
  Part part(const Level& level, Found found, const std::string& task) const;
  std::vector<BudgetWay> ways();
  bool try_budgets();
  void report_level(const Level& level);
  void report_budgets(const Level& level);
  void report_retention(std::int64_t kind);
  BudgetReport& report_of(Found found);

  const Evidence& evidence_;
  const DynamicRequest& request_;
  const RunTrials& run_;
  WindowBudget select_;        // its budget becomes the document's
  std::vector<Level> levels_;  // never of a text that is held out
  Split split_;
  DynamicKvReport report_;
  Calibrated out_;
};

/// As tables name them.
const char* name_of(Found found) {
  switch (found) {
    case Found::task:
      return "per task";
    case Found::prompt:
      return "per prompt";
    case Found::all_samples:
      break;
  }
  return "one for all";
}

BudgetReport& Budgeting::report_of(Found found) {
  if (found == Found::all_samples) return report_;
  auto& control = found == Found::prompt ? report_.by_prompt : report_.by_task;
  return control ? *control : control.emplace();
}

void Budgeting::read_levels() {
  std::vector<std::int64_t> budgets = request_.budgets.empty()
                                          ? profile::axis_of(evidence_.header(), "budget").values
                                          : request_.budgets;
  if (request_.budget || !run_)
    budgets.push_back(select_.budget = request_.budget.value_or(select_.budget));
  std::sort(budgets.begin(), budgets.end());
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  for (const auto budget : budgets) {
    if (budget <= select_.window)
      fail(ErrorCode::usage, "a budget of ", budget, " tokens leaves none beside the window of ",
           select_.window);
    DynamicKv part = request_.policy;
    part.select.budget = budget;
    levels_.push_back({read_budgets(evidence_, part), budget});
  }
}

std::map<std::string, std::vector<std::size_t>> Budgeting::by_task(
    const std::vector<std::size_t>& positions) const {
  std::map<std::string, std::vector<std::size_t>> tasks;
  for (const auto position : positions) tasks[evidence_.sample(position).task].push_back(position);
  return tasks;
}

DynamicKv Budgeting::part_of_level(const Level& level, const std::vector<std::size_t>& of) const {
  DynamicKv part = request_.policy;
  part.select.budget = level.budget;
  part.fixed = level.summary(of).budgets;
  return part;
}

void Budgeting::report_level(const Level& level) {
  auto& entry = report_.sweep.emplace_back();
  static_cast<DynamicKvReport::Budgets&>(entry) = budgets_of(level.summary(level.positions));
  entry.budget = level.budget;
  entry.raw = summarise_budgets(level.raw).mean;
  entry.scaled = summarise_budgets(level.scaled).mean;
  for (const auto& [task, members] : by_task(level.positions))
    entry.tasks[task] = budgets_of(level.summary(members));
  for (const auto length : evidence_.lengths()) {
    Saving& saving = entry.savings.emplace_back();
    saving.length = length;
    saving.kv_ratio = kv_ratio(part_of_level(level, level.positions), evidence_.shape(), length);
  }
}

/// The document's budgets.
void Budgeting::report_budgets(const Level& level) {
  const auto& entry =
      *std::find_if(report_.sweep.begin(), report_.sweep.end(),
                    [&](const auto& of_level) { return of_level.budget == level.budget; });
  report_.savings = entry.savings;
  Table table{
      str("DynamicKV: tokens kept a layer beside the window of ", select_.window, ", budget ",
          level.budget, " (", count_of(std::ssize(level.positions), "sample", "samples"), ")"),
      {"layer", "budget", "mean", "spread", "least", "most", "raw", "scaled"},
      {}};
  const BudgetSummary summary = level.summary(level.positions);
  std::vector<BudgetSummary> of_tasks;
  if (by_task(level.positions).size() > 1)
    for (const auto& [task, members] : by_task(level.positions)) {
      table.columns.push_back(printable(task));
      of_tasks.push_back(level.summary(members));
    }
  for (std::size_t l = 0; l < summary.budgets.size(); ++l) {
    table.rows.push_back({str(l), str(summary.budgets[l]), fixed_text(summary.mean[l], 1),
                          fixed_text(summary.deviation[l], 1), str(summary.least[l]),
                          str(summary.most[l]), fixed_text(entry.raw[l], 1),
                          fixed_text(entry.scaled[l], 1)});
    for (const auto& of_task : of_tasks) table.rows.back().push_back(str(of_task.budgets[l]));
  }
  out_.tables.push_back(std::move(table));
}

void Budgeting::report_retention(std::int64_t kind) {
  if (!evidence_.profile().has(name::kRetention)) return;
  std::map<std::string, std::vector<Counts>> counts;
  for (const auto position : evidence_.positions()) {
    const Counts of_sample =
        profile::layer_integers(evidence_.profile(), position, name::kRetention, {kind});
    if (std::any_of(of_sample.begin(), of_sample.end(), [](auto count) { return count < 0; }))
      continue;
    counts[evidence_.sample(position).task].push_back(of_sample);
  }
  if (counts.empty()) return;
  Table table{"DynamicKV: where the highest scores lie (128 a layer in the mean)", {"layer"}, {}};
  table.rows.resize(static_cast<std::size_t>(evidence_.header().n_layers));
  for (std::size_t l = 0; l < table.rows.size(); ++l) table.rows[l] = {str(l)};
  for (const auto& [task, of_task] : counts) {
    const auto shares = retention_shares(of_task);
    report_.retention[task] = shares;
    table.columns.push_back(task.empty() ? "share" : printable(task));
    for (std::size_t l = 0; l < table.rows.size() && l < shares.size(); ++l)
      table.rows[l].push_back(percent_text(shares[l]));
  }
  out_.tables.push_back(std::move(table));
}

/// The policy that takes its budgets so, for samples of a task.
Part Budgeting::part(const Level& level, Found found, const std::string& task) const {
  DynamicKv out = part_of_level(level, level.positions);
  if (found == Found::prompt) out.fixed.reset();
  // A task all of whose samples are held out has no budgets of its own.
  if (const auto tasks = by_task(level.positions); found == Found::task && tasks.contains(task))
    out = part_of_level(level, tasks.at(task));
  return out;
}

/// The document's own come first. Budgets of the only task are those of all samples.
std::vector<BudgetWay> Budgeting::ways() {
  std::vector<Found> forms = {Found::all_samples};
  if (by_task(levels_.front().positions).size() > 1) forms.push_back(Found::task);
  if (!request_.fixed_alone) forms.push_back(Found::prompt);
  std::vector<BudgetWay> out;
  for (const Found found : forms)
    out.push_back({name_of(found), &report_of(found),
                   [this, found](std::size_t budget, const std::string& task) {
                     return part(levels_[budget], found, task);
                   }});
  return out;
}

/// Every budget of the sweep on the samples of the choice, and the document's on others. False if
/// none of them is to be the document's.
bool Budgeting::try_budgets() {
  BudgetSweep sweep{evidence_,
                    run_,
                    method::kDynamicKv,
                    {},
                    "its layers' budgets are found",
                    "Layers' budgets found otherwise, on the same",
                    request_.budget,
                    request_.tolerance};
  for (const Level& level : levels_) sweep.budgets.push_back(level.budget);
  const auto of_ways = ways();
  const auto choice = sweep.choose(of_ways, split_.choice, out_);
  report_.full = choice.full;
  if (choice.full) report_.tolerance = sweep.tolerance;
  if (!choice.smallest.empty()) {
    const auto budget = sweep.settle(choice.smallest.front(), out_);
    if (!budget) return false;
    select_.budget = *budget;
  }
  sweep.measure(of_ways, select_.budget, split_, out_);
  return true;
}

Calibrated Budgeting::calibrate() {
  require_captured(evidence_.profile(), name::kCounts, "scores");
  const std::int64_t kind = window_kind_row(evidence_.profile(), select_);
  read_levels();
  require_samples(evidence_.count(levels_.front().positions), "with window scores",
                  evidence_.request().force, out_);
  report_retention(kind);
  if (run_) {
    const auto answered = evidence_.answered(levels_.front().positions);
    require_samples(evidence_.count(answered), "with answers", evidence_.request().force, out_);
    split_ = evidence_.split(answered);
    for (Level& level : levels_) level.keep(evidence_.apart_from(split_.held_out, level.positions));
  }
  for (const Level& level : levels_) report_level(level);
  if (run_) {
    if (!try_budgets()) return without_policy(method::kDynamicKv, std::move(out_));
  } else {
    out_.notes.push_back("without --model nothing was tried: what the budgets cost is unknown");
  }
  const Level& chosen = chosen_level();
  report_budgets(chosen);
  report_.samples = std::ssize(chosen.positions);
  auto section = section_of(part_of_level(chosen, chosen.positions));
  for (const auto& [task, members] : by_task(chosen.positions))
    if (!task.empty()) section["result"]["tasks"][task] = chosen.summary(members).budgets;
  return with_section(std::move(section), report_json(report_), std::move(out_));
}

/// The method's options.
class DynamicKvCommand : public MethodCommand {
 public:
  void add_options(CLI::App& command) override {
    auto& select = request_.policy.select;
    limit_to_setting(add_option(command, "--budget", request_.budget, "TOKENS",
                                setting_named(method::kDynamicKv.name, "budget").meaning +
                                    "; of the policy that is written (default: the smallest "
                                    "that keeps the score, which needs --model; without, " +
                                    default_text(method::kDynamicKv.name, "budget") + ")"),
                     method::kDynamicKv.name, "budget");
    limit_to_setting(
        add_option(command, "--budgets", request_.budgets, "TOKENS,...",
                   "budgets that are tried (default: the profile's that leave something out)"),
        method::kDynamicKv.name, "budget")
        ->delimiter(',');
    scores_.add_options(command, method::kDynamicKv.name, select);
    as_setting(add_option(command, "--r-max", request_.policy.r_max, "NUMBER"),
               method::kDynamicKv.name, "r_max");
  }
  Shared shared() override { return {nullptr, &request_.tolerance}; }
  void settle() override { scores_.settle(request_.policy.select); }
  std::vector<std::string> suit(const Evidence& evidence) override {
    auto& select = request_.policy.select;
    std::vector<std::string> said = scores_.suit(evidence, select);
    if (request_.budgets.empty()) take(fitting_budgets(evidence), request_.budgets, said);
    take(fitting_budget(evidence, select.budget), select.budget, said);
    return said;
  }
  bool fit(const Runtime& runtime) override {
    request_.fixed_alone = true;  // it gets the document's budgets
    return runtime.takes(Form::dynamickv);
  }
  Calibrated calibrate(const Evidence& evidence, const RunTrials& run) override {
    return calibrate_dynamickv(evidence, request_, run);
  }

 private:
  DynamicRequest request_;
  ScoreOptions scores_;
};

}  // namespace

void BudgetsOfSamples::keep(const std::vector<std::size_t>& of) {
  BudgetsOfSamples kept;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    if (std::find(of.begin(), of.end(), positions[i]) == of.end()) continue;
    kept.positions.push_back(positions[i]);
    kept.raw.push_back(std::move(raw[i]));
    kept.scaled.push_back(std::move(scaled[i]));
    kept.exact.push_back(std::move(exact[i]));
  }
  *this = std::move(kept);
}

BudgetSummary BudgetsOfSamples::summary(const std::vector<std::size_t>& of) const {
  std::vector<Counts> some;
  for (std::size_t i = 0; i < positions.size(); ++i)
    if (std::find(of.begin(), of.end(), positions[i]) != of.end()) some.push_back(exact[i]);
  return summarise_budgets(some);
}

BudgetsOfSamples read_budgets(const Evidence& evidence, const DynamicKv& part) {
  const CountsOfSamples found = read_counts(evidence.profile(), evidence.positions(), part.select);
  BudgetsOfSamples out;
  out.positions = found.positions;
  for (std::size_t i = 0; i < found.positions.size(); ++i) {
    LayerBudgets budgets = found.budgets(i, part.r_max);
    out.raw.push_back(std::move(budgets.raw));
    out.scaled.push_back(std::move(budgets.scaled));
    out.exact.push_back(std::move(budgets.exact));
  }
  return out;
}

Calibrated calibrate_dynamickv(const Evidence& evidence, const DynamicRequest& request,
                               const RunTrials& run) {
  return Budgeting(evidence, request, run).calibrate();
}

CalibratedMethod dynamickv_command() {
  return {method::kDynamicKv, "How many tokens each layer needs",
          "  kvatlas calibrate dynamickv -p p.h5 --model M -o policy.json\n"
          "  kvatlas calibrate dynamickv -p p.h5 --budget 256 -o policy.json",
          []() -> std::unique_ptr<MethodCommand> { return std::make_unique<DynamicKvCommand>(); }};
}

}  // namespace kvatlas::calibrate
