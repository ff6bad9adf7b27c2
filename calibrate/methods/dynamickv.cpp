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
#include "calibrate/methods/judging.hpp"
#include "calibrate/methods/method_command.hpp"
#include "calibrate/policy/policy_settings.hpp"
#include "calibrate/policy/setting_option.hpp"
#include "calibrate/runtimes/runtimes.hpp"

namespace kvatlas::calibrate {
namespace {

constexpr const char* kName = method::kDynamicKv.name;

using nlohmann::json;
namespace name = profile::name;

using Counts = std::vector<std::int64_t>;

/// Budgets of some samples as the document gives them.
json budgets_json(const BudgetSummary& summary) {
  return {{"mean", summary.mean},
          {"deviation", summary.deviation},
          {"least", summary.least},
          {"most", summary.most},
          {"exact", summary.budgets}};
}

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

  Level read_level(std::int64_t budget) const;
  std::map<std::string, std::vector<std::size_t>> by_task(const Level& level) const;
  DynamicKv part_of_level(const Level& level, const std::vector<std::size_t>& of) const;
  void report_level(const Level& level);
  void report_retention(std::int64_t kind);
  void measure(const std::vector<Level>& levels);

  const Evidence& evidence_;
  const DynamicRequest& request_;
  const RunTrials& run_;
  WindowBudget select_;
  json report_ = json::object();
  Calibrated out_;
};

Budgeting::Level Budgeting::read_level(std::int64_t budget) const {
  DynamicKv part = request_.policy;
  part.select.budget = budget;
  return {read_budgets(evidence_, part), budget};
}

std::map<std::string, std::vector<std::size_t>> Budgeting::by_task(const Level& level) const {
  std::map<std::string, std::vector<std::size_t>> tasks;
  for (const auto position : level.positions)
    tasks[evidence_.sample(position).task].push_back(position);
  return tasks;
}

DynamicKv Budgeting::part_of_level(const Level& level, const std::vector<std::size_t>& of) const {
  DynamicKv part = request_.policy;
  part.select.budget = level.budget;
  part.fixed = level.summary(of).budgets;
  return part;
}

void Budgeting::report_level(const Level& level) {
  json entry = budgets_json(level.summary(level.positions));
  entry["budget"] = level.budget;
  entry["raw"] = summarise_budgets(level.raw).mean;
  entry["scaled"] = summarise_budgets(level.scaled).mean;
  entry["tasks"] = json::object();
  for (const auto& [task, members] : by_task(level))
    entry["tasks"][task] = budgets_json(level.summary(members));
  report_["sweep"].push_back(entry);

  json savings = json::array();
  for (const auto length : evidence_.lengths()) {
    const double ratio =
        static_cast<double>(length) / static_cast<double>(std::min(length, level.budget));
    savings.push_back({{"length", length}, {"kv_ratio", ratio}});
  }
  report_["sweep"].back()["savings"] = savings;
  if (level.budget != select_.budget) return;
  report_["savings"] = savings;
  Table table{str("DynamicKV: tokens kept a layer beside the window of ", select_.window,
                  ", budget ", level.budget, " (", level.positions.size(), " samples)"),
              {"layer", "budget", "mean", "spread", "least", "most", "raw", "scaled"},
              {}};
  const BudgetSummary summary = level.summary(level.positions);
  std::vector<BudgetSummary> of_tasks;
  if (by_task(level).size() > 1)
    for (const auto& [task, members] : by_task(level)) {
      table.columns.push_back(printable(task));
      of_tasks.push_back(level.summary(members));
    }
  for (std::size_t l = 0; l < summary.budgets.size(); ++l) {
    table.rows.push_back({str(l), str(summary.budgets[l]), fixed_text(summary.mean[l], 1),
                          fixed_text(summary.deviation[l], 1), str(summary.least[l]),
                          str(summary.most[l]), fixed_text(entry["raw"][l], 1),
                          fixed_text(entry["scaled"][l], 1)});
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
  json retention = json::object();
  Table table{"DynamicKV: where the highest scores lie (128 a layer in the mean)", {"layer"}, {}};
  table.rows.resize(static_cast<std::size_t>(evidence_.header().n_layers));
  for (std::size_t l = 0; l < table.rows.size(); ++l) table.rows[l] = {str(l)};
  for (const auto& [task, of_task] : counts) {
    const auto shares = retention_shares(of_task);
    retention[task] = shares;
    table.columns.push_back(task.empty() ? "share" : printable(task));
    for (std::size_t l = 0; l < table.rows.size() && l < shares.size(); ++l)
      table.rows[l].push_back(percent_text(shares[l]));
  }
  report_["retention"] = retention;
  out_.tables.push_back(std::move(table));
}

/// Fixed budgets of the samples of the choice, tried on those held out.
void Budgeting::measure(const std::vector<Level>& levels) {
  const auto answered = evidence_.answered(evidence_.longer_than(select_.window));
  require_samples(evidence_.count(answered), "with answers", evidence_.request().force, out_);
  const Split split = evidence_.split(answered);
  const bool held_out = !split.held_out.empty();
  std::vector<Policy> policies;
  for (const Level& level : levels) {
    std::vector<std::size_t> seen;
    for (const auto position : level.positions)
      if (!std::binary_search(split.held_out.begin(), split.held_out.end(), position))
        seen.push_back(position);
    policies.push_back(
        {.name = str("dynamickv:budget=", level.budget), .parts = {part_of_level(level, seen)}});
  }
  const Verdict verdict(evidence_, run_, policies, held_out ? split.held_out : split.choice);
  if (verdict.samples().empty()) {
    out_.notes.push_back("no held-out sample has a score: the loss is not measured");
    return;
  }
  require_score(verdict.full_score().mean, evidence_.request().force, out_);
  Table table{str("DynamicKV: score against the budget, budgets fixed, on ",
                  held_out ? "held-out samples" : "the samples of the choice", " (full cache ",
                  fixed_text(verdict.full_score().mean, 3), ")"),
              {"budget", "score", "KV kept"},
              {}};
  json curve = json::array();
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const Estimate score = verdict.score(i);
    const json measured = verdict.measured(i, held_out);
    curve.push_back({{"budget", levels[i].budget},
                     {"score", score.mean},
                     {"low", score.low},
                     {"high", score.high},
                     {"kept_share", measured.at("kept_share")}});
    const bool is_chosen = levels[i].budget == select_.budget;
    table.rows.push_back({str(levels[i].budget, is_chosen ? " *" : ""), estimate_text(score),
                          percent_text(measured.at("kept_share").is_number()
                                           ? measured.at("kept_share").get<double>()
                                           : std::nan(""))});
    if (!is_chosen) continue;
    report_["measured"] = measured;
    note_precision(evidence_, split, verdict, i, out_);
  }
  report_["curve"] = curve;
  out_.tables.push_back(std::move(table));
}

Calibrated Budgeting::calibrate() {
  require_captured(evidence_.profile(), name::kCounts, "scores");
  const std::int64_t kind = window_kind_row(evidence_.profile(), select_);
  std::vector<std::int64_t> budgets = request_.budgets.empty()
                                          ? profile::axis_of(evidence_.header(), "budget").values
                                          : request_.budgets;
  if (std::find(budgets.begin(), budgets.end(), select_.budget) == budgets.end())
    budgets.push_back(select_.budget);
  std::sort(budgets.begin(), budgets.end());
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  std::vector<Level> levels;
  for (const auto budget : budgets) {
    if (budget <= select_.window)
      fail(ErrorCode::usage, "a budget of ", budget, " tokens leaves none beside the window of ",
           select_.window);
    levels.push_back(read_level(budget));
  }
  require_samples(evidence_.count(levels.front().positions), "with window scores",
                  evidence_.request().force, out_);
  report_["sweep"] = json::array();
  for (const Level& level : levels) report_level(level);
  report_retention(kind);
  if (run_)
    measure(levels);
  else
    out_.notes.push_back("without --model nothing was tried: what the budgets cost is unknown");

  const auto chosen = std::find_if(levels.begin(), levels.end(), [&](const Level& level) {
    return level.budget == select_.budget;
  });
  report_["samples"] = chosen->positions.size();
  json section = section_of(part_of_level(*chosen, chosen->positions));
  for (const auto& [task, members] : by_task(*chosen))
    if (!task.empty()) section["result"]["tasks"][task] = chosen->summary(members).budgets;
  section.update(report_);
  section.update(out_.section);
  out_.section = std::move(section);
  return std::move(out_);
}

/// The method's options.
class DynamicKvCommand : public MethodCommand {
 public:
  void add_options(CLI::App& command) override {
    auto& select = request_.policy.select;
    as_setting(add_option(command, "--budget", select.budget, "TOKENS",
                          setting_named(kName, "budget").meaning + ": the document's"),
               kName, "budget");
    limit_to_setting(add_option(command, "--budgets", request_.budgets, "TOKENS,...",
                                "of the sweep (default: those of the profile)"),
                     kName, "budget")
        ->delimiter(',');
    as_setting(add_option(command, "--window", select.window, "TOKENS",
                          "last prompt rows, which score the others"),
               kName, "window");
    as_setting(add_option(command, "--kernel", select.kernel, "N"), kName, "kernel");
    as_setting(add_option(command, "--pooling", pooling_, "HOW", "how: avg or max"), kName,
               "pooling");
    as_setting(add_option(command, "--r-max", request_.policy.r_max, "NUMBER"), kName, "r_max");
  }
  void settle() override {
    request_.policy.select.pooling = pooling_ == "max" ? Pooling::maximum : Pooling::average;
  }
  bool fit(const Runtime& runtime) override { return runtime.takes(Form::dynamickv); }
  Calibrated calibrate(const Evidence& evidence, const RunTrials& run) override {
    return calibrate_dynamickv(evidence, request_, run);
  }

 private:
  DynamicRequest request_;
  std::string pooling_;
};

}  // namespace

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
  return {method::kDynamicKv, "How many tokens each layer deserves",
          "  kvatlas calibrate dynamickv -p p.h5 --budget 256 -o policy.json",
          []() -> std::unique_ptr<MethodCommand> { return std::make_unique<DynamicKvCommand>(); }};
}

}  // namespace kvatlas::calibrate
