// SPDX-License-Identifier: Apache-2.0
#include "calibrate/methods/headkv.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

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

const char* word_of(HeadRule rule) { return rule == HeadRule::gain ? "gain" : "distance"; }
HeadRule other_than(HeadRule rule) {
  return rule == HeadRule::gain ? HeadRule::distance : HeadRule::gain;
}

/// The tokens that a sample has before the window of the scores.
std::int64_t longest_before(const profile::Reader& profile, const std::vector<std::size_t>& samples,
                            std::int64_t window) {
  std::int64_t longest = 1;
  for (const auto position : samples)
    longest = std::max(longest, profile.samples()[position].n_tokens - window);
  return longest;
}

class HeadBudgeting {
 public:
  HeadBudgeting(const Evidence& evidence, const HeadRequest& request, const RunTrials& run)
      : evidence_(evidence),
        request_(request),
        run_(run),
        heads_(evidence.profile(), request.policy),
        rule_(request.rule.value_or(HeadRule::gain)),
        budget_(request.budget.value_or(
            std::min(request.policy.select.budget, heads_.budgets().back()))) {}

  Calibrated calibrate();

 private:
  void list_budgets();
  Part part_of(HeadRule rule, std::int64_t budget) const;
  bool try_budgets();
  void report_budgets();

  const Evidence& evidence_;
  const HeadRequest& request_;
  const RunTrials& run_;
  HeadEvidence heads_;
  HeadRule rule_;  // becomes the document's, as the budget does
  std::int64_t budget_;
  std::vector<std::int64_t> budgets_;  // ascending
  std::vector<std::size_t> samples_;   // never of a text that is held out
  Split split_;
  std::map<HeadRule, BudgetReport> found_;  // what is reported of each rule
  BudgetReport even_;                       // and of SnapKV
  HeadKvReport report_;
  Calibrated out_;
};

void HeadBudgeting::list_budgets() {
  const auto& known = heads_.budgets();
  budgets_ = request_.budgets.empty() ? known : request_.budgets;
  if (request_.budget || !run_) budgets_.push_back(budget_);
  std::sort(budgets_.begin(), budgets_.end());
  budgets_.erase(std::unique(budgets_.begin(), budgets_.end()), budgets_.end());
  for (const auto budget : budgets_)
    if (budget <= request_.policy.select.window || budget > known.back())
      fail(ErrorCode::usage, "a budget of ", budget, " tokens: expected more than the window of ",
           request_.policy.select.window, " and at most ", known.back(),
           ", the greatest that the profile was taken with ('kvatlas profile --budgets')");
}

Part HeadBudgeting::part_of(HeadRule rule, std::int64_t budget) const {
  HeadKv part = request_.policy;
  part.select.budget = budget;
  part.fixed = heads_.find(rule, budget, samples_);
  return part;
}

/// Every budget by both rules and evenly on the samples of the choice; then the document's on
/// others. False if none of them is to be the document's.
bool HeadBudgeting::try_budgets() {
  const BudgetSweep sweep{evidence_,
                          run_,
                          method::kHeadKv,
                          budgets_,
                          "it is shared among the heads",
                          "Shared otherwise, on the same",
                          request_.budget,
                          request_.tolerance};
  const auto snapkv = [this](std::size_t budget, const std::string&) -> Part {
    SnapKv part{request_.policy.select};
    part.select.budget = budgets_[budget];
    return part;
  };
  const auto way_of = [this](HeadRule rule) {
    std::vector<Part> parts;
    for (const auto budget : budgets_) parts.push_back(part_of(rule, budget));
    return BudgetWay{
        str("by ", word_of(rule)), &found_[rule],
        [parts = std::move(parts)](std::size_t place, const std::string&) { return parts[place]; }};
  };
  const HeadRule other = other_than(rule_);
  const BudgetWay even = {"evenly", &even_, snapkv};
  std::vector<BudgetWay> ways = {way_of(rule_), way_of(other), even};
  const auto choice = sweep.choose(ways, split_.choice, out_);
  if (const auto& smallest = choice.smallest; !smallest.empty()) {
    const auto place = [&](std::size_t way) { return smallest[way].value_or(budgets_.size()); };
    const bool swaps = !request_.rule && place(1) < place(0);
    if (swaps) {
      rule_ = other;
      std::swap(ways[0], ways[1]);
    }
    const std::size_t chosen = swaps ? 1 : 0;
    const auto budget = sweep.settle(smallest[chosen], out_);
    if (place(2) < place(chosen))
      out_.notes.push_back(str("shared evenly (snapkv), a budget of ", budgets_[place(2)],
                               " keeps the score: nothing is won by budgets of heads here"));
    if (!budget) return false;
    budget_ = *budget;
  }
  sweep.measure(ways, budget_, split_, out_);
  found_[rule_].full = choice.full;
  if (choice.full) found_[rule_].tolerance = sweep.tolerance;
  report_.even = even_;
  report_.other = found_[other_than(rule_)];
  return true;
}

void HeadBudgeting::report_budgets() {
  const HeadKv part = std::get<HeadKv>(part_of(rule_, budget_));
  static_cast<BudgetReport&>(report_) = found_[rule_];
  for (const auto length : evidence_.lengths()) {
    Saving& saving = report_.savings.emplace_back();
    saving.length = length;
    saving.kv_ratio = kv_ratio(part, evidence_.shape(), length);
  }
  report_.rule = word_of(rule_);
  report_.samples = std::ssize(samples_);
  const Masses distant = heads_.distant(samples_);
  report_.distant = distant;
  Table table{str("HeadKV: tokens kept a KV head beside the window of ", part.select.window,
                  ", budget ", budget_, ", by ", word_of(rule_), " (",
                  count_of(std::ssize(samples_), "sample", "samples"), ")"),
              {"layer", "mean", "least", "most", "distant attention"},
              {}};
  for (std::size_t l = 0; l < part.fixed->size(); ++l) {
    const auto& row = (*part.fixed)[l];
    const auto [least, most] = std::minmax_element(row.begin(), row.end());
    const double sum =
        static_cast<double>(std::accumulate(row.begin(), row.end(), std::int64_t{0}));
    table.rows.push_back({str(l), fixed_text(sum / static_cast<double>(row.size()), 1), str(*least),
                          str(*most), percent_text(mean_of(distant[l]))});
  }
  out_.tables.push_back(std::move(table));
}

Calibrated HeadBudgeting::calibrate() {
  list_budgets();
  samples_ = heads_.telling(evidence_.positions());
  require_samples(evidence_.count(samples_), "with attention kept by selections",
                  evidence_.request().force, out_);
  if (samples_.empty())
    fail(ErrorCode::usage, "no sample is longer than the window of ", request_.policy.select.window,
         " tokens");
  if (run_) {
    const auto answered = evidence_.answered(samples_);
    require_samples(evidence_.count(answered), "with answers", evidence_.request().force, out_);
    split_ = evidence_.split(answered);
    samples_ = evidence_.apart_from(split_.held_out, samples_);
    if (!try_budgets()) return without_policy(method::kHeadKv, std::move(out_));
  } else {
    out_.notes.push_back("without --model nothing was tried: what the budgets cost is unknown");
  }
  report_budgets();
  return with_section(section_of(part_of(rule_, budget_)), report_json(report_), std::move(out_));
}

/// The method's options.
class HeadKvCommand : public MethodCommand {
 public:
  void add_options(CLI::App& command) override {
    constexpr const char* method = method::kHeadKv.name;
    add_option(command, "--by", rule_, "RULE",
               "gain: a token goes to the head where it keeps most attention; distance: to heads "
               "that attend to distant tokens (default: the one whose smallest budget keeps the "
               "score; gain without --model)")
        ->check(CLI::IsMember({"gain", "distance"}));
    as_setting(add_option(command, "--safeguard", request_.policy.safeguard, "SHARE"), method,
               "safeguard");
    if (command.get_option_no_throw("--budget")) return;  // of all methods, these are DynamicKV's
    limit_to_setting(
        add_option(
            command, "--budget", request_.budget, "TOKENS",
            setting_named(method, "budget").meaning +
                "; of the policy that is written (default: the smallest that keeps the score, "
                "which needs --model; without, " +
                default_text(method, "budget") + ")"),
        method, "budget");
    limit_to_setting(
        add_option(command, "--budgets", request_.budgets, "TOKENS,...",
                   "budgets that are tried (default: the profile's that leave something out)"),
        method, "budget")
        ->delimiter(',');
    scores_.add_options(command, method, request_.policy.select);
  }
  Shared shared() override { return {nullptr, &request_.tolerance}; }
  void settle() override {
    scores_.settle(request_.policy.select);
    for (const HeadRule rule : kHeadRules)
      if (rule_ == word_of(rule)) request_.rule = rule;
  }
  std::vector<std::string> suit(const Evidence& evidence) override {
    std::vector<std::string> said = scores_.suit(evidence, request_.policy.select);
    if (request_.budgets.empty()) take(fitting_budgets(evidence), request_.budgets, said);
    return said;
  }
  bool fit(const Runtime& runtime) override { return runtime.takes(Form::headkv); }
  Calibrated calibrate(const Evidence& evidence, const RunTrials& run) override {
    return calibrate_headkv(evidence, request_, run);
  }

 private:
  HeadRequest request_;
  ScoreOptions scores_;
  std::string rule_;
};

}  // namespace

HeadEvidence::HeadEvidence(const profile::Reader& profile, const HeadKv& part)
    : profile_(profile), part_(part) {
  require_captured(profile, name::kKeptMass, "kept");
  require_captured(profile, name::kDecodeMass, "lazy");
  window_kind_row(profile, part.select);
  const auto& proximities = profile::axis_of(profile.header(), "proximity").values;
  if (proximities.size() < 2)
    fail(ErrorCode::unreadable, "the profile names no initial and recent tokens");
  near_ = {proximities[0], proximities[1]};
  for (std::size_t i = 2; i + 1 < proximities.size(); i += 2)
    if (proximities[i] + proximities[i + 1] < near_.initial + near_.recent)
      near_ = {proximities[i], proximities[i + 1]};
  std::vector<std::pair<std::int64_t, std::int64_t>> known;
  const auto& labels = profile::axis_of(profile.header(), "selection").labels;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const Policy policy = parse_policy(labels[row]);
    const auto* snapkv = policy.parts.size() == 1 ? std::get_if<SnapKv>(&policy.parts[0]) : nullptr;
    if (snapkv && !snapkv->pyramid && snapkv->select.window == part.select.window &&
        snapkv->select.kernel == part.select.kernel &&
        snapkv->select.pooling == part.select.pooling)
      known.emplace_back(snapkv->select.budget, static_cast<std::int64_t>(row));
  }
  if (known.empty())
    fail(ErrorCode::usage,
         "the profile has no attention kept by SnapKV's budgets: take it with "
         "'kvatlas profile --capture default'");
  std::sort(known.begin(), known.end());
  for (const auto& [budget, row] : known) {
    budgets_.push_back(budget);
    rows_.push_back(row);
  }
}

std::vector<std::size_t> HeadEvidence::telling(const std::vector<std::size_t>& positions) const {
  std::vector<std::size_t> out;
  for (const auto position : longer_than(profile_, positions, part_.select.window)) {
    const auto finite = [&](std::int64_t row) {
      const Masses masses = read_kept_masses(profile_, position, row);
      return !masses.empty() && std::all_of(masses.begin(), masses.end(), [](const auto& layer) {
        return std::all_of(layer.begin(), layer.end(),
                           [](double share) { return std::isfinite(share); });
      });
    };
    if (std::all_of(rows_.begin(), rows_.end(), finite)) out.push_back(position);
  }
  return out;
}

std::vector<std::vector<KeptCurve>> HeadEvidence::curves(
    const std::vector<std::size_t>& samples) const {
  const auto& header = profile_.header();
  std::vector<std::vector<KeptCurve>> out(
      static_cast<std::size_t>(header.n_layers),
      std::vector<KeptCurve>(static_cast<std::size_t>(header.n_kv_heads)));
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    for (auto& layer : out)
      for (auto& curve : layer) {
        curve.tokens.push_back(budgets_[i] - part_.select.window);
        curve.kept.push_back(0);
      }
    for (const auto position : samples) {
      const Masses masses = read_kept_masses(profile_, position, rows_[i]);
      for (std::size_t l = 0; l < out.size(); ++l)
        for (std::size_t g = 0; g < out[l].size(); ++g)
          out[l][g].kept.back() += masses[l][g] / static_cast<double>(samples.size());
    }
  }
  return out;
}

Masses HeadEvidence::distant(const std::vector<std::size_t>& samples) const {
  SimLayerKv window;
  window.keep = near_;
  const auto masses = read_masses(profile_, samples, window);
  Masses out(static_cast<std::size_t>(profile_.header().n_layers),
             std::vector<double>(static_cast<std::size_t>(profile_.header().n_kv_heads), 0));
  for (const auto& sample : masses.heads)
    for (std::size_t l = 0; l < out.size(); ++l)
      for (std::size_t g = 0; g < out[l].size(); ++g)
        out[l][g] += std::max(0.0, 1 - sample[l][g]) / static_cast<double>(masses.heads.size());
  return out;
}

double HeadEvidence::lost(const HeadBudgets& budgets,
                          const std::vector<std::size_t>& samples) const {
  double lost = 0;
  const auto of_heads = curves(samples);
  for (std::size_t l = 0; l < budgets.size(); ++l)
    for (std::size_t g = 0; g < budgets[l].size(); ++g)
      lost += 1 - of_heads[l][g].at(budgets[l][g]);
  return lost / static_cast<double>(budgets.size() * budgets.front().size());
}

HeadBudgets HeadEvidence::find(HeadRule rule, std::int64_t budget,
                               const std::vector<std::size_t>& samples) const {
  HeadKv part = part_;
  part.select.budget = budget;
  const std::int64_t window = part.select.window;
  const SharedTokens tokens{budget - window, std::max<std::int64_t>(0, part.safe() - window),
                            longest_before(profile_, samples, window)};
  return rule == HeadRule::gain ? budgets_by_gain(curves(samples), tokens)
                                : budgets_by_score(distant(samples), tokens);
}

Calibrated calibrate_headkv(const Evidence& evidence, const HeadRequest& request,
                            const RunTrials& run) {
  return HeadBudgeting(evidence, request, run).calibrate();
}

CalibratedMethod headkv_command() {
  return {method::kHeadKv, "How many tokens each KV head needs",
          "  kvatlas calibrate headkv -p p.h5 --model M -o policy.json\n"
          "  kvatlas calibrate headkv -p p.h5 --budget 256 --by distance -o policy.json",
          []() -> std::unique_ptr<MethodCommand> { return std::make_unique<HeadKvCommand>(); }};
}

}  // namespace kvatlas::calibrate
