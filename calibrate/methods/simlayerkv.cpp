// SPDX-License-Identifier: Apache-2.0
#include "calibrate/methods/simlayerkv.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/options.hpp"
#include "base/text_count.hpp"
#include "calibrate/methods/judging.hpp"
#include "calibrate/methods/method_command.hpp"
#include "calibrate/policy/policy_settings.hpp"
#include "calibrate/policy/setting_option.hpp"
#include "calibrate/report/lazy_report.hpp"
#include "calibrate/runtimes/runtimes.hpp"

namespace kvatlas::calibrate {
namespace {

namespace name = profile::name;

LazyHeads rows_of_one(const LayerFlags& lazy) {
  LazyHeads rows;
  for (const auto flag : lazy) rows.push_back({flag});
  return rows;
}

LayerFlags flags_of(const LazyHeads& rows) {
  LayerFlags flags;
  for (const auto& row : rows) flags.push_back(row.front());
  return flags;
}

class Thresholding {
 public:
  Thresholding(const Evidence& evidence, const SimLayerRequest& request, const RunTrials& run)
      : evidence_(evidence), request_(request), run_(run) {}

  Calibrated calibrate();

 private:
  LazyChoice choice() const {
    return {request_.policy.per_head, request_.fixed, request_.static_share};
  }
  LazyHeads fixed_at(double threshold) const { return fixed_lazy(sighted_, threshold, choice()); }
  SimLayerKv part_at(double threshold) const {
    SimLayerKv part = request_.policy;
    part.threshold = threshold;
    if (request_.fixed) part.fixed = fixed_at(threshold);
    return part;
  }
  double lazy_layers_at(double threshold) const {
    const auto shares = lazy_shares(sighted_, threshold, choice());
    return std::accumulate(shares.begin(), shares.end(), 0.0);
  }
  Savings savings_at(double threshold, std::int64_t length) const {
    return layer_savings(lazy_shares(sighted_, threshold, choice()), evidence_.shape(), length,
                         request_.policy.keep);
  }

  void collect();
  std::optional<double> choose(const Split& split);
  void measure(const Split& split, double threshold);
  void report(double threshold);

  const Evidence& evidence_;
  const SimLayerRequest& request_;
  const RunTrials& run_;
  MassesOfSamples sighted_;  // what the decisions are made of: never of a held-out text
  SimLayerKvReport report_;
  Calibrated out_;
};

void Thresholding::collect() {
  const SimLayerKv& policy = request_.policy;
  const bool prefill = policy.identify == SimLayerKv::Identify::prefill;
  require_captured(evidence_.profile(), prefill ? name::kMass : name::kDecodeMass, "lazy");
  const std::int64_t proximal = policy.keep.initial + policy.keep.recent;
  const auto longer = evidence_.longer_than(proximal);
  const std::size_t all = evidence_.positions().size();
  if (longer.empty())
    fail(ErrorCode::usage, "no prompt has more than the ", proximal,
         " tokens that are kept anyway (initial ", policy.keep.initial, " + recent ",
         policy.keep.recent, "): choose a smaller --recent, or profile longer prompts");
  if (longer.size() < all)
    out_.notes.push_back(str(all - longer.size(), " of ", all, " prompts have at most the ",
                             proximal, " tokens that are kept anyway, and are left out"));
  sighted_ = read_masses(evidence_.profile(), longer, policy);
  require_samples(evidence_.count(sighted_.positions), "with more tokens than are kept",
                  evidence_.request().force, out_);
}

std::optional<double> Thresholding::choose(const Split& split) {
  std::vector<double> thresholds;
  if (request_.threshold) {
    thresholds = {*request_.threshold};
  } else {
    for (const double mass : threshold_candidates(sighted_.decided(request_.policy.per_head)))
      thresholds.push_back(readable_threshold(mass));
    thresholds.erase(std::unique(thresholds.begin(), thresholds.end()), thresholds.end());
  }
  std::vector<Policy> policies;
  for (const double threshold : thresholds) policies.push_back(policy_of(part_at(threshold)));
  Verdict(evidence_, run_, {}, split.choice).require_answers(evidence_.request().force, out_);
  const Verdict verdict(evidence_, run_, policies, split.choice);
  const auto chosen = request_.threshold
                          ? std::optional<std::size_t>(0)
                          : verdict.least_that_holds(request_.tolerance, 0, thresholds.size());
  const std::int64_t length = evidence_.lengths().back();
  Table table{str("SimLayerKV: score against the threshold (", verdict.count().text(),
                  ", full cache ", fixed_text(verdict.full_score().mean, 3), ")"),
              {"threshold", "score", "lazy layers", str("KV ratio at ", length)},
              {}};
  for (std::size_t i = 0; i < thresholds.size(); ++i) {
    const Estimate score = verdict.score(i);
    const double lazy = lazy_layers_at(thresholds[i]);
    const double ratio = savings_at(thresholds[i], length).kv_ratio;
    auto& point = report_.curve.emplace_back();
    point.setting = thresholds[i];
    point.score = score;
    point.lazy_layers = lazy;
    point.kv_ratio = ratio;
    const bool starred = !request_.threshold && chosen == i;
    table.rows.push_back({fixed_text(thresholds[i], 5) + (starred ? " *" : ""),
                          estimate_text(score), fixed_text(lazy, 1), fixed_text(ratio, 2)});
  }
  report_.full = verdict.full_score();
  report_.tolerance = request_.tolerance;
  out_.tables.push_back(std::move(table));
  if (!chosen) return std::nullopt;
  return thresholds[*chosen];
}

void Thresholding::measure(const Split& split, double threshold) {
  const SimLayerKv part = part_at(threshold);
  SimLayerKv fixed = part, opposite = part;
  fixed.fixed = fixed_at(threshold);
  if (request_.fixed && !part.per_head)
    opposite.fixed =
        rows_of_one(opposite_layers(mean_masses(sighted_.layers), flags_of(*part.fixed)));
  else
    opposite.opposite = true;
  std::vector<Policy> policies = {policy_of(part), policy_of(fixed)};
  if (!part.per_head) policies.push_back(policy_of(opposite));
  const bool held_out = !split.held_out.empty();
  const Verdict verdict(evidence_, run_, policies, held_out ? split.held_out : split.choice);
  if (verdict.samples().empty()) {
    out_.notes.push_back("no held-out sample has a score: the loss is not measured");
    return;
  }
  const std::string where = held_out ? "held-out samples" : "the samples of the choice";
  report_.measured = verdict.measured(0, held_out);
  report_.for_all.emplace().measured = verdict.measured(1, held_out);
  out_.tables.push_back(
      measured_table(str("SimLayerKV at threshold ", fixed_text(threshold, 5), ", on ", where),
                     *report_.measured));
  Table controls{"Controls, on the same", {"policy", "score"}, {}};
  controls.rows.push_back({"as chosen", estimate_text(verdict.score(0))});
  controls.rows.push_back({"the same layers for every input", estimate_text(verdict.score(1))});
  if (!part.per_head) {
    report_.opposite.emplace().measured = verdict.measured(2, held_out);
    controls.rows.push_back(
        {"as many layers, of the smallest mass", estimate_text(verdict.score(2))});
  }
  out_.tables.push_back(std::move(controls));
  note_precision(evidence_, split, verdict, 0, out_);
}

void Thresholding::report(double threshold) {
  const auto& header = evidence_.header();
  const StepMasses steps =
      read_steps(evidence_.profile(), sighted_.positions, request_.policy.keep);
  const bool generated = !steps.empty();
  add_lazy_report({sighted_, steps, evidence_.shape(), request_.policy.keep}, threshold, choice(),
                  evidence_.lengths(), report_);
  if (generated && report_.consistency.empty())
    out_.notes.push_back(
        "the profile has the first generated token alone, so how consistent layers stay is not "
        "known; 'kvatlas profile --new 16' takes more");
  else if (generated && request_.policy.identify == SimLayerKv::Identify::prefill)
    out_.notes.push_back("consistency is that of the generated tokens, not of the prompt's rows");

  const auto& rates = report_.lazy_rates;
  const auto& heads = report_.per_head->lazy_heads;
  const StaticView view = static_view(sighted_.layers, threshold, request_.static_share);
  Table layers{str("SimLayerKV: layers at threshold ", fixed_text(threshold, 5)),
               {"layer", "mass", "lazy rate", "static", "streaming KV heads", "consistency"},
               {}};
  const auto means = mean_masses(sighted_.layers);
  // Heads that share one latent cannot be streaming ones by themselves.
  const bool of_heads = header.latent_rank == 0;
  for (std::size_t l = 0; l < rates.size(); ++l) {
    const auto streaming = std::count(heads[l].begin(), heads[l].end(), true);
    layers.rows.push_back(
        {str(l), fixed_text(means[l], 4), percent_text(rates[l]), view.lazy[l] ? "lazy" : "full",
         of_heads ? str(streaming, " of ", heads[l].size()) : "-",
         percent_text(report_.consistency.empty() ? kNotKnown : report_.consistency[l])});
  }
  out_.tables.push_back(std::move(layers));

  Table table{str("SimLayerKV: savings with ", fixed_text(lazy_layers_at(threshold), 1), " of ",
                  header.n_layers,
                  " layers lazy; the static view differs from the "
                  "input's own decision in ",
                  percent_text(view.disagreement)),
              {"tokens", "layer ratio", "KV ratio", "with 4 bits", "full MiB", "kept MiB"},
              {}};
  for (const Saving& at : report_.savings) {
    constexpr double kMiB = 1 << 20;
    table.rows.push_back({str(at.length), fixed_text(at.layer_ratio, 2), fixed_text(at.kv_ratio, 2),
                          fixed_text(at.kv_ratio_4bit, 2), fixed_text(at.full_bytes / kMiB, 1),
                          fixed_text(at.kept_bytes / kMiB, 1)});
  }
  out_.tables.push_back(std::move(table));
}

Calibrated Thresholding::calibrate() {
  collect();
  std::optional<double> threshold = request_.threshold.value_or(SimLayerKv{}.threshold);
  if (run_) {
    const auto answered = evidence_.answered(sighted_.positions);
    require_samples(evidence_.count(answered), "with answers and more tokens than are kept",
                    evidence_.request().force, out_);
    const Split split = evidence_.split(answered);
    sighted_ =
        read_masses(evidence_.profile(), evidence_.apart_from(split.held_out, sighted_.positions),
                    request_.policy);
    threshold = choose(split);
    if (!threshold) return without_policy(method::kSimLayerKv, std::move(out_));
    measure(split, *threshold);
  } else {
    out_.notes.push_back(str("without --model nothing was tried: what the threshold of ",
                             fixed_text(*threshold, 2), " costs is unknown"));
  }
  report(*threshold);
  return with_section(section_of(part_at(*threshold)), report_json(report_), std::move(out_));
}

/// The method's options.
class SimLayerCommand : public MethodCommand {
 public:
  void add_options(CLI::App& command) override {
    limit_to_setting(add_option(command, "--threshold", request_.threshold, "SHARE",
                                setting_named(method::kSimLayerKv.name, "threshold").meaning +
                                    ", 0 to 1 (default: searched for, which needs --model; "
                                    "without, " +
                                    default_text(method::kSimLayerKv.name, "threshold") + ")"),
                     method::kSimLayerKv.name, "threshold");
    as_setting(add_option(command, "--identify", identify_, "WHEN",
                          "when lazy layers are told apart: decode (at the first generated token) "
                          "or prefill (at the last prompt rows)"),
               method::kSimLayerKv.name, "identify");
    as_setting(add_option(command, "--w-last", request_.policy.w_last, "N",
                          "last prompt rows, which prefill looks at"),
               method::kSimLayerKv.name, "w_last");
    add_number(command, "--static-share", request_.static_share, "SHARE",
               "share of samples from which a layer is lazy in the static view, 0 to 1", 0.0, 1.0);
    command.add_flag("--per-head", request_.policy.per_head,
                     "decide for each KV head, not for each layer");
    command.add_flag("--fixed", request_.fixed,
                     "make the static view the policy: the same lazy layers for every input");
  }
  Shared shared() override { return {&request_.policy.keep, &request_.tolerance}; }
  void settle() override {
    request_.policy.identify =
        identify_ == "prefill" ? SimLayerKv::Identify::prefill : SimLayerKv::Identify::decode;
  }
  bool fit(const Runtime& runtime) override {
    const bool by_input = runtime.takes(Form::lazy_by_input);
    const bool per_head = request_.policy.per_head;
    // A runtime that cannot tell layers by input gets the same ones for every input.
    if (!by_input || per_head) request_.fixed = true;
    return by_input || runtime.takes(per_head ? Form::lazy_heads : Form::lazy_layers);
  }
  Calibrated calibrate(const Evidence& evidence, const RunTrials& run) override {
    return calibrate_simlayerkv(evidence, request_, run);
  }

 private:
  SimLayerRequest request_;
  std::string identify_;
};

}  // namespace

Calibrated calibrate_simlayerkv(const Evidence& evidence, const SimLayerRequest& request,
                                const RunTrials& run) {
  return Thresholding(evidence, request, run).calibrate();
}

CalibratedMethod simlayerkv_command() {
  return {method::kSimLayerKv, "Which layers are lazy, and need only initial and recent tokens",
          "  kvatlas calibrate simlayerkv -p p.h5 --model M -o policy.json\n"
          "  kvatlas calibrate simlayerkv -p p.h5 --threshold 0.8 --recent 256",
          []() -> std::unique_ptr<MethodCommand> { return std::make_unique<SimLayerCommand>(); }};
}

}  // namespace kvatlas::calibrate
