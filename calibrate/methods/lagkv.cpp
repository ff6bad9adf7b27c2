// SPDX-License-Identifier: Apache-2.0
#include "calibrate/methods/lagkv.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "analyzer/profile/checked_arrays.hpp"
#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/options.hpp"
#include "calibrate/methods/judging.hpp"
#include "calibrate/methods/method_command.hpp"
#include "calibrate/policy/policy_settings.hpp"
#include "calibrate/policy/setting_option.hpp"
#include "calibrate/rules/cache_bytes.hpp"
#include "calibrate/rules/fitting.hpp"
#include "calibrate/runtimes/runtimes.hpp"
#include "data/scores.hpp"

namespace kvatlas::calibrate {
namespace {

namespace name = profile::name;

constexpr double kWantedUntried = 0.5;  // compression

/// One setting of the sweep, and what is known of it.
struct Candidate {
  LagKv part;
  std::vector<std::size_t> positions;  // of the samples that it cuts
  double compression = 0;              // of those, the mean
  double attention = std::nan("");     // kept by it at the first generated token
  Estimate score{std::nan(""), std::nan(""), std::nan("")};
  double full = std::nan("");                             // of the same samples
  double prefix = std::nan(""), in_place = std::nan("");  // digits of passkeys
  /// What is weighed against the compression: the score lost, or the attention.
  double gain() const { return std::isnan(score.mean) ? attention : score.mean - full; }
};

class Sweep {
 public:
  Sweep(const Evidence& evidence, const LagRequest& request, const RunTrials& run)
      : evidence_(evidence), request_(request), run_(run) {}

  Calibrated calibrate();

 private:
  LagShape shape_of(const LagKv& part) const { return {part.sink, part.lag, part.keep()}; }
  double compression_at(const LagKv& part, std::int64_t n_tokens) const {
    const std::int64_t layers = evidence_.header().n_layers;
    const std::int64_t cut_layers =
        std::max<std::int64_t>(0, layers - kernels::first_layer_cut(part.variant));
    return lag_compression(n_tokens, shape_of(part)) * static_cast<double>(cut_layers) /
           static_cast<double>(layers);
  }
  void list_candidates();
  void read_attention();
  void judge(const Split& split);
  void judge_candidate(const Verdict& verdict, std::size_t number);
  void measure(const Split& split, const LagKv& chosen);
  bool holds(const Candidate& candidate) const;
  std::optional<std::size_t> choose();
  void report(std::optional<std::size_t> chosen);

  const Evidence& evidence_;
  const LagRequest& request_;
  const RunTrials& run_;
  std::vector<Candidate> candidates_;
  LagKvReport report_;
  Calibrated out_;
};

void Sweep::list_candidates() {
  std::vector<std::size_t> samples;  // of the smallest lag, which are the most
  for (const auto variant : {LagVariant::lag, LagVariant::local, LagVariant::l2})
    for (const auto lag : request_.lags)
      for (const auto& ratio : request_.ratios) {
        Candidate candidate;
        candidate.part = {request_.sink, lag, ratio, variant};
        candidate.positions = evidence_.longer_than(request_.sink + 2 * lag - 1);
        if (candidate.positions.size() > samples.size()) samples = candidate.positions;
        if (candidate.positions.empty()) continue;
        std::vector<double> compressions;
        for (const auto position : candidate.positions)
          compressions.push_back(
              compression_at(candidate.part, evidence_.sample(position).n_tokens));
        candidate.compression = mean_of(compressions);
        candidates_.push_back(std::move(candidate));
      }
  if (candidates_.empty())
    fail(ErrorCode::usage, "no prompt is long enough for any of the partition sizes ",
         list_str(request_.lags),
         ": a prompt is cut from sink + 2 lag tokens on; choose smaller "
         "--lags, or profile longer prompts");
  require_samples(evidence_.count(samples), "of sink + 2 lag tokens or more",
                  evidence_.request().force, out_);
  for (const auto lag : request_.lags) {
    const auto cut = evidence_.longer_than(request_.sink + 2 * lag - 1).size();
    if (cut < evidence_.positions().size())
      out_.notes.push_back(str("lag ", lag, " cuts prompts of ", request_.sink + 2 * lag,
                               " tokens or more: ", cut, " of ", evidence_.positions().size(),
                               cut == 0 ? ", so it is left out" : ", which it is judged by"));
  }
}

/// The attention that the profile says is kept, for those candidates that it has.
void Sweep::read_attention() {
  if (!run_) require_captured(evidence_.profile(), name::kKeptMass, "kept");
  if (!evidence_.profile().has(name::kKeptMass)) return;
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, LagVariant>, std::int64_t> rows;
  const auto& labels = profile::axis_of(evidence_.header(), "selection").labels;
  std::string there;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    if (labels[row].rfind("lagkv:", 0) != 0) continue;
    const Policy policy = parse_policy(labels[row]);
    const LagKv& part = std::get<LagKv>(policy.parts.at(0));
    rows[{part.sink, part.lag, part.keep(), part.variant}] = static_cast<std::int64_t>(row);
  }
  for (Candidate& candidate : candidates_) {
    const LagKv& part = candidate.part;
    const auto row = rows.find({part.sink, part.lag, part.keep(), part.variant});
    if (row == rows.end()) {
      if (run_) continue;
      fail(ErrorCode::usage, "the profile does not say what sink=", part.sink, ",lag=", part.lag,
           ",ratio=", printable(part.ratio),
           " keeps: choose of its --lags and --ratios ('kvatlas inspect' lists them), or run "
           "'kvatlas profile --sink ",
           part.sink, " --lags ", part.lag, " --ratios ", printable(part.ratio), "'");
    }
    std::vector<double> shares;
    for (const auto position : candidate.positions)
      for (const auto& of_layer : read_kept_masses(evidence_.profile(), position, row->second))
        shares.insert(shares.end(), of_layer.begin(), of_layer.end());
    candidate.attention = mean_of(shares);
  }
}

void Sweep::judge_candidate(const Verdict& verdict, std::size_t number) {
  Candidate& candidate = candidates_[number];
  std::vector<std::string> groups, tasks;
  std::vector<double> scores, full, prefix, in_place;
  for (std::size_t s = 0; s < verdict.samples().size(); ++s) {
    const std::size_t position = verdict.samples()[s];
    if (!std::binary_search(candidate.positions.begin(), candidate.positions.end(), position))
      continue;
    groups.push_back(verdict.groups()[s]);
    scores.push_back(verdict.scores(number)[s]);
    full.push_back(verdict.full()[s]);
    tasks.push_back(verdict.tasks()[s]);
    const auto& digits = verdict.trials(number)[s].digits;
    if (!digits) continue;
    prefix.push_back(digits->prefix);
    in_place.push_back(digits->in_place);
  }
  const TaskMeans of_tasks = task_means(scores, groups, tasks);
  candidate.score = about_tasks(score_mean(of_tasks.rounds), of_tasks);
  candidate.full = task_means(full, groups, tasks).mean;
  candidate.prefix = mean_of(prefix);
  candidate.in_place = mean_of(in_place);
}

void Sweep::judge(const Split& split) {
  std::vector<Policy> policies;
  for (const auto& candidate : candidates_) policies.push_back(policy_of(candidate.part));
  Verdict(evidence_, run_, {}, split.choice).require_answers(evidence_.request().force, out_);
  const Verdict verdict(evidence_, run_, policies, split.choice);
  report_.full = verdict.full_score();
  for (std::size_t i = 0; i < candidates_.size(); ++i) judge_candidate(verdict, i);
}

void Sweep::measure(const Split& split, const LagKv& chosen) {
  std::vector<Policy> policies;
  Table controls{"Beside it, with the same lag and ratio", {"variant", "score"}, {}};
  for (const auto variant : {LagVariant::lag, LagVariant::local, LagVariant::l2}) {
    LagKv part = chosen;
    part.variant = variant;
    policies.push_back({.name = variant_word(variant), .parts = {part}});
  }
  const bool held_out = !split.held_out.empty();
  const Verdict verdict(evidence_, run_, policies, held_out ? split.held_out : split.choice);
  if (verdict.samples().empty()) {
    out_.notes.push_back("no held-out sample has a score: the loss is not measured");
    return;
  }
  report_.measured = verdict.measured(0, held_out);
  report_.local = {verdict.measured(1, held_out)};
  report_.l2 = {verdict.measured(2, held_out)};
  out_.tables.push_back(
      measured_table(str("LagKV at lag ", chosen.lag, ", ratio ", printable(chosen.ratio), ", on ",
                         held_out ? "held-out samples" : "the samples of the choice"),
                     *report_.measured));
  for (std::size_t i = 0; i < policies.size(); ++i)
    controls.rows.push_back({policies[i].name, estimate_text(verdict.score(i))});
  out_.tables.push_back(std::move(controls));
  note_precision(evidence_, split, verdict, 0, out_);
}

/// Whether it keeps the score, and so does all that keeps more of partitions of the same size.
bool Sweep::holds(const Candidate& candidate) const {
  return std::all_of(candidates_.begin(), candidates_.end(), [&](const Candidate& other) {
    const bool gentler = other.part.variant == candidate.part.variant &&
                         other.part.lag == candidate.part.lag &&
                         other.part.keep() >= candidate.part.keep();
    return !gentler || other.gain() >= -request_.tolerance - 1e-9;
  });
}

/// The one of LagKV's own candidates that compresses most and keeps the score. Where that cannot be
/// tried, or a compression is wanted, the best of those that compress so much.
std::optional<std::size_t> Sweep::choose() {
  std::vector<std::size_t> own;
  std::vector<double> compression, gain, tokens, kept_share;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (candidates_[i].part.variant != LagVariant::lag) continue;
    own.push_back(i);
    compression.push_back(candidates_[i].compression);
    kept_share.push_back(1 - candidates_[i].compression);
    gain.push_back(candidates_[i].gain());
    tokens.push_back(static_cast<double>(candidates_[i].part.keep()));
  }
  const auto indices = [&](const std::vector<std::size_t>& front) {
    std::vector<std::int64_t> list;
    for (const auto i : front) list.push_back(static_cast<std::int64_t>(own[i]));
    return list;
  };
  report_.front = {indices(pareto_front(kept_share, gain)), indices(pareto_front(tokens, gain))};
  if (run_ && !request_.compression) {
    std::optional<std::size_t> most;
    for (const auto i : own)
      if (holds(candidates_[i]) && candidates_[i].compression > kLeastSaving &&
          (!most || candidates_[i].compression > candidates_[*most].compression))
        most = i;
    return most;
  }
  const double wanted = request_.compression.value_or(kWantedUntried);
  auto chosen = recommend_lag(compression, gain, wanted);
  if (!chosen) {
    const auto most = std::max_element(compression.begin(), compression.end());
    chosen = static_cast<std::size_t>(most - compression.begin());
    out_.notes.push_back(str("nothing of the sweep compresses by ", percent_text(wanted),
                             "; the most is ", percent_text(*most), ", and that is taken"));
  }
  return own[*chosen];
}

void Sweep::report(std::optional<std::size_t> chosen) {
  const bool tried = run_ != nullptr;
  const auto on = [&](const std::vector<std::int64_t>& front, std::size_t i) {
    return std::find(front.begin(), front.end(), static_cast<std::int64_t>(i)) != front.end();
  };
  Table table{tried ? "LagKV: score against compression (front: of C, of rL)"
                    : "LagKV: attention kept against compression; no model was run, so that stands "
                      "in for a score (front: of C, of rL)",
              {"variant", "lag", "ratio", "compression"},
              {}};
  if (tried) table.columns.insert(table.columns.end(), {"full", "score", "digits", "in place"});
  table.columns.insert(table.columns.end(), {"attention", "front"});
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& c = candidates_[i];
    report_.sweep.push_back({.variant = variant_word(c.part.variant),
                             .ratio = c.part.ratio,
                             .lag = c.part.lag,
                             .keep = c.part.keep(),
                             .samples = std::ssize(c.positions),
                             .compression = c.compression,
                             .full = c.full,
                             .attention = c.attention,
                             .score = c.score,
                             .digits_prefix = c.prefix,
                             .digits_in_place = c.in_place});
    table.rows.push_back({report_.sweep.back().variant + (i == chosen ? " *" : ""), str(c.part.lag),
                          printable(c.part.ratio), percent_text(c.compression)});
    auto& row = table.rows.back();
    if (tried)
      row.insert(row.end(), {fixed_text(c.full, 3), estimate_text(c.score), fixed_text(c.prefix, 3),
                             fixed_text(c.in_place, 3)});
    row.push_back(percent_text(c.attention));
    row.push_back(std::string(on(report_.front->compression, i) ? "C" : "") +
                  (on(report_.front->tokens, i) ? " rL" : ""));
  }
  out_.tables.push_back(std::move(table));

  if (!chosen) return;
  const Candidate& best = candidates_[*chosen];
  report_.recommended = report_.sweep[*chosen];
  report_.recommended->wanted_compression = request_.compression.value_or(kNotKnown);
  Table lengths{
      str("LagKV: savings at lag ", best.part.lag, ", ratio ", printable(best.part.ratio)),
      {"tokens", "kept", "compression", "KV ratio"},
      {}};
  for (const auto length : evidence_.lengths()) {
    Saving& saving = report_.savings.emplace_back();
    saving.length = length;
    saving.kept = lag_kept_tokens(length, shape_of(best.part));
    saving.compression = compression_at(best.part, length);
    saving.kv_ratio = kv_ratio(best.part, evidence_.shape(), length);
    lengths.rows.push_back({str(length), str(saving.kept), percent_text(saving.compression),
                            fixed_text(saving.kv_ratio, 2)});
  }
  out_.tables.push_back(std::move(lengths));
}

Calibrated Sweep::calibrate() {
  list_candidates();
  read_attention();
  Split split;
  if (run_) {
    const auto shortest = *std::min_element(request_.lags.begin(), request_.lags.end());
    const auto answered =
        evidence_.answered(evidence_.longer_than(request_.sink + 2 * shortest - 1));
    require_samples(evidence_.count(answered), "with answers and of sink + 2 lag tokens or more",
                    evidence_.request().force, out_);
    split = evidence_.split(answered);
    judge(split);
  } else {
    out_.notes.push_back(
        "without --model nothing was tried: the attention that the profile says is kept stands in "
        "for the score");
  }
  const std::optional<std::size_t> chosen = choose();
  report(chosen);
  if (!chosen) return without_policy(method::kLagKv, std::move(out_));
  const Candidate& best = candidates_[*chosen];
  if (run_) measure(split, best.part);
  report_.samples = std::ssize(best.positions);
  return with_section(section_of(best.part), report_json(report_), std::move(out_));
}

/// The method's options.
class LagKvCommand : public MethodCommand {
 public:
  void add_options(CLI::App& command) override {
    sink_ = as_setting(add_option(command, "--sink", request_.sink, "TOKENS"), method::kLagKv.name,
                       "sink");
    lags_ = limit_to_setting(
                add_option(command, "--lags", request_.lags, "TOKENS,...",
                           "partition sizes that are tried, in tokens; by default others where the "
                           "profile or its prompts' lengths do not allow these"),
                method::kLagKv.name, "lag")
                ->delimiter(',')
                ->default_str("128,512,1024");
    ratios_ = add_option(command, "--ratios", request_.ratios, "R,...",
                         "shares of a partition kept, as 0.25 or 1/4")
                  ->delimiter(',')
                  ->default_str("1/2,1/4,1/6,1/8");
    add_option(command, "--compression", request_.compression, "SHARE",
               "share of the cache that the recommended setting saves at least, 0 to 1 (default: "
               "with --model the most that keeps the score, else 0.5)")
        ->check(real_range(0.0, 1.0));
  }
  Shared shared() override { return {nullptr, &request_.tolerance}; }
  std::vector<std::string> suit(const Evidence& evidence) override {
    std::vector<std::string> said;
    if (sink_->count() == 0) take(fitting_sink(evidence, request_.sink), request_.sink, said);
    if (ratios_->count() == 0)
      take(fitting_ratios(evidence, request_.ratios), request_.ratios, said);
    if (lags_->count() == 0)
      take(fitting_lags(evidence, request_.sink, request_.lags), request_.lags, said);
    return said;
  }
  bool fit(const Runtime& runtime) override { return runtime.takes(Form::lagkv); }
  Calibrated calibrate(const Evidence& evidence, const RunTrials& run) override {
    return calibrate_lagkv(evidence, request_, run);
  }

 private:
  LagRequest request_;
  const CLI::Option *sink_ = nullptr, *lags_ = nullptr, *ratios_ = nullptr;
};

}  // namespace

Calibrated calibrate_lagkv(const Evidence& evidence, const LagRequest& request,
                           const RunTrials& run) {
  return Sweep(evidence, request, run).calibrate();
}

CalibratedMethod lagkv_command() {
  return {method::kLagKv, "How many tokens may be evicted by the range of those that follow",
          "  kvatlas calibrate lagkv -p p.h5 --model M -o policy.json\n"
          "  kvatlas calibrate lagkv -p p.h5 --model M --lags 64,128 --compression 0.6",
          []() -> std::unique_ptr<MethodCommand> { return std::make_unique<LagKvCommand>(); }};
}

}  // namespace kvatlas::calibrate
