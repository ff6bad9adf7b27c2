// SPDX-License-Identifier: Apache-2.0
#include "calibrate/methods/pod.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "analyzer/profile/checked_arrays.hpp"
#include "analyzer/profile/statistics.hpp"
#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/options.hpp"
#include "base/text_count.hpp"
#include "calibrate/methods/judging.hpp"
#include "calibrate/methods/method_command.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/policy/policy_settings.hpp"
#include "calibrate/policy/setting_option.hpp"
#include "calibrate/runtimes/runtimes.hpp"

namespace kvatlas::calibrate {
namespace {

namespace name = profile::name;

/// first / per, (first + 1) / per, ... last / per.
std::vector<double> steps(int first, int last, double per) {
  std::vector<double> out;
  for (int i = first; i <= last; ++i) out.push_back(i / per);
  return out;
}

class Grouping {
 public:
  Grouping(const Evidence& evidence, const PodRequest& request, const RunTrials& run)
      : evidence_(evidence), request_(request), run_(run) {}

  Calibrated calibrate();

 private:
  std::int64_t kv_heads() const { return evidence_.header().n_kv_heads; }
  bool per_query_head() const {
    return request_.policy.per_query_head || kv_heads() == evidence_.header().n_heads;
  }
  PodPoint point_at(double delta) const {
    return pod_point(similarity_, kv_heads(), request_.policy.per_query_head, delta);
  }
  double saved_at(const PodPoint& point, std::int64_t length) const {
    return pod_saved(point.layers, evidence_.shape(), length, request_.policy.proximal);
  }
  Pod part_at(double delta, double tau, Proximity proximal) const {
    Pod part = request_.policy;
    part.delta = delta;
    part.tau = tau;
    part.proximal = proximal;
    part.lowest = pod_blocks(similarity_, kv_heads(), request_.policy.per_query_head, delta);
    return part;
  }
  Policy policy_at(double delta, double tau, Proximity proximal) const {
    return policy_of(part_at(delta, tau, proximal));
  }

  void read();
  std::optional<double> delta_from_saving();
  std::optional<double> delta_from_trials(const Split& split);
  void measure(const Split& split, double delta);
  void report_sweep(std::optional<double> delta);
  void report_batches(const PodPoint& chosen);
  void report_gate(double delta);
  void report_agreement();
  void report_values();

  const Evidence& evidence_;
  const PodRequest& request_;
  const RunTrials& run_;
  SimilarityOfSamples similarity_;  // of which blocks are made: never of a held-out text
  std::vector<double> deltas_;
  PodReport report_;
  Calibrated out_;
};

void Grouping::read() {
  similarity_ = read_similarity(evidence_.profile(), evidence_.positions());
  require_samples(evidence_.count(similarity_.positions), "with layer similarities",
                  evidence_.request().force, out_);
  // The gate is reported last. Whether the profile has its sums is known before anything is tried.
  read_gate_sums(evidence_.profile(), evidence_.positions().front(), request_.policy.proximal);
}

std::optional<double> Grouping::delta_from_saving() {
  if (!request_.wanted_saving) return std::nullopt;
  const std::int64_t length = evidence_.lengths().back();
  const double wanted = *request_.wanted_saving;
  const auto delta =
      delta_for(pod_hundredths(similarity_, kv_heads(), request_.policy.per_query_head),
                evidence_.shape(), length, request_.policy.proximal, wanted);
  if (!delta)
    fail(ErrorCode::usage, "no delta saves ", percent_text(wanted), " of the cache at ", length,
         " tokens; ", percent_text(saved_at(point_at(0), length)), " is the most");
  return delta;
}

/// Scores of every delta; the smallest that saves, and keeps the score there and at every larger
/// one.
std::optional<double> Grouping::delta_from_trials(const Split& split) {
  std::vector<Policy> policies;
  for (const double delta : deltas_)
    policies.push_back(policy_at(delta, request_.policy.tau, request_.policy.proximal));
  Verdict(evidence_, run_, {}, split.choice).require_answers(evidence_.request().force, out_);
  const Verdict verdict(evidence_, run_, policies, split.choice);
  for (std::size_t i = 0; i < deltas_.size(); ++i) {
    auto& point = report_.curve.emplace_back();
    point.setting = deltas_[i];
    point.score = verdict.score(i);
  }
  report_.full = verdict.full_score();
  report_.tolerance = request_.tolerance;
  const auto chosen = verdict.least_that_holds(request_.tolerance, 0, deltas_.size());
  if (!chosen) return std::nullopt;
  return deltas_[*chosen];
}

void Grouping::measure(const Split& split, double delta) {
  const Pod& base = request_.policy;
  std::vector<Policy> policies = {policy_at(delta, base.tau, base.proximal)};
  const auto taus = steps(0, 10, 10);
  for (const double tau : taus) policies.push_back(policy_at(delta, tau, base.proximal));
  const bool held_out = !split.held_out.empty();
  const auto& samples = held_out ? split.held_out : split.choice;
  std::int64_t longest = 0;
  for (const auto position : samples)
    longest = std::max(longest, evidence_.sample(position).n_tokens);
  std::vector<std::int64_t> counts;
  for (std::int64_t count = 64; count < longest; count *= 2) counts.push_back(count);
  for (const auto count : counts) {
    const std::int64_t initial = std::min(base.proximal.initial, count / 4);
    policies.push_back(policy_at(delta, base.tau, {initial, count - initial}));
  }
  const Verdict verdict(evidence_, run_, policies, samples);
  if (verdict.samples().empty()) {
    out_.notes.push_back("no held-out sample has a score: the loss is not measured");
    return;
  }
  report_.measured = verdict.measured(0, held_out);
  const std::string where = held_out ? "held-out samples" : "the samples of the choice";
  out_.tables.push_back(
      measured_table(str("PoD at delta ", fixed_text(delta, 2), ", without adaptation, on ", where),
                     *report_.measured));
  const auto draw = [&](const char* against, const char* key, const auto& values, std::size_t first,
                        auto& curve) {
    Table table{str("PoD: score against ", against), {key, "score"}, {}};
    for (std::size_t i = 0; i < values.size(); ++i) {
      auto& point = curve.emplace_back();
      point.setting = static_cast<double>(values[i]);
      point.score = verdict.score(first + i);
      table.rows.push_back({str(values[i]), estimate_text(point.score)});
    }
    out_.tables.push_back(std::move(table));
  };
  draw("PoD's gate", searched::kTau, taus, 1, report_.gate.emplace().curve);
  draw("the proximal tokens", searched::kTokens, counts, 1 + taus.size(), report_.proximal);
  note_precision(evidence_, split, verdict, 0, out_);
}

void Grouping::report_sweep(std::optional<double> delta) {
  auto shown = deltas_;
  const auto is_chosen = [&](double other) { return delta && std::abs(other - *delta) < 1e-9; };
  if (delta && std::none_of(shown.begin(), shown.end(), is_chosen)) shown.push_back(*delta);
  std::sort(shown.begin(), shown.end());
  Table table{str("PoD: blocks by the similarity that joins layers, for ",
                  per_query_head() ? "query heads" : "KV heads", " (",
                  count_of(std::ssize(similarity_.positions), "sample", "samples"), ")"),
              {"delta", "blocks", "keys dropped"},
              {}};
  for (const auto length : evidence_.lengths())
    table.columns.push_back(str("KV saved at ", length));
  if (!report_.curve.empty()) table.columns.push_back("score");
  for (const double value : shown) {
    const PodPoint point = point_at(value);
    Table::Row row = {fixed_text(value, 2) + (is_chosen(value) ? " *" : ""), str(point.blocks),
                      percent_text(point.dropped)};
    auto& at_delta = report_.sweep.emplace_back();
    at_delta.delta = value;
    at_delta.blocks = point.blocks;
    at_delta.keys_dropped = point.dropped;
    for (const auto length : evidence_.lengths()) {
      Saving& saving = at_delta.savings.emplace_back();
      saving.length = length;
      saving.saved = saved_at(point, length);
      row.push_back(percent_text(saving.saved));
    }
    if (!report_.curve.empty()) {
      const auto at = std::find(deltas_.begin(), deltas_.end(), value);
      row.push_back(at == deltas_.end()
                        ? "-"
                        : fixed_text(report_.curve[at - deltas_.begin()].score.mean, 3));
    }
    table.rows.push_back(std::move(row));
  }
  out_.tables.push_back(std::move(table));
}

void Grouping::report_batches(const PodPoint& chosen) {
  const CacheShape shape = evidence_.shape();
  const std::int64_t fresh = request_.new_tokens;
  Table table{
      str("PoD: greatest batch in ", bytes_str(static_cast<std::int64_t>(request_.memory_bytes)),
          " of KV cache, prompt and ", fresh, " generated tokens"),
      {"prompt", "KV saved", "full cache", "PoD"},
      {}};
  for (const auto length : evidence_.lengths()) {
    Saving& saving = report_.savings.emplace_back();
    saving.length = length;
    saving.new_tokens = fresh;
    saving.saved = saved_at(chosen, length);
    saving.kv_ratio = 1 / (1 - saving.saved);
    saving.full_bytes = shape.full_bytes(length);
    saving.kept_bytes = shape.full_bytes(length) * (1 - saving.saved);
    saving.full_batch = greatest_batch(request_.memory_bytes, shape, length + fresh);
    saving.batch = greatest_batch(request_.memory_bytes, shape, length + fresh,
                                  saved_at(chosen, length + fresh));
    table.rows.push_back(
        {str(length), percent_text(saving.saved), str(*saving.full_batch), str(*saving.batch)});
  }
  report_.memory_bytes = request_.memory_bytes;
  out_.tables.push_back(std::move(table));
}

void Grouping::report_gate(double delta) {
  if (!evidence_.profile().has(name::kProximalLse)) {
    out_.notes.push_back(
        "the profile has no log-sum-exps for PoD's gate; 'kvatlas profile --capture lazy' takes "
        "them");
    return;
  }
  GateCurve curve(pod_blocks(similarity_, kv_heads(), request_.policy.per_query_head, delta));
  for (const auto position : similarity_.positions)
    curve.add(read_gate_sums(evidence_.profile(), position, request_.policy.proximal).view());
  if (curve.rows() == 0) {
    const auto& proximal = request_.policy.proximal;
    const bool all_near = std::all_of(
        similarity_.positions.begin(), similarity_.positions.end(), [&](const auto position) {
          return evidence_.sample(position).n_tokens <= proximal.initial + proximal.recent;
        });
    out_.notes.push_back(
        all_near ? str("no prompt has more than the ", proximal.initial, " + ", proximal.recent,
                       " proximal tokens: nothing is distant, nothing is saved, and PoD's gate "
                       "has nothing to skip (choose --initial and --recent smaller)")
                 : "the windows of the layers whose keys are shared hold no distant token, so that "
                   "PoD's gate has nothing to skip");
    return;
  }
  auto& gate = report_.gate ? *report_.gate : report_.gate.emplace();
  Table table{"PoD: distant parts skipped by PoD's gate", {"tau", "skipped"}, {}};
  for (const double tau : steps(0, 20, 20)) {
    gate.skipped.push_back({tau, curve.skipped(tau)});
    table.rows.push_back({fixed_text(tau, 2), percent_text(curve.skipped(tau))});
  }
  out_.tables.push_back(std::move(table));
}

void Grouping::report_agreement() {
  const auto& counts = profile::axis_of(evidence_.header(), "proximal_count").values;
  if (!evidence_.profile().has(name::kAgreement)) {
    out_.notes.push_back(
        "proximal agreement was not captured; 'kvatlas profile --capture default,agreement' takes "
        "it, a forward pass a count");
    return;
  }
  std::vector<std::vector<double>> shares(counts.size());
  for (const auto position : similarity_.positions) {
    const auto of_sample =
        profile::floats_of(evidence_.profile(), position, name::kAgreement, {}, {});
    for (std::size_t i = 0; i < counts.size() && i < of_sample.size(); ++i)
      if (!std::isnan(of_sample[i])) shares[i].push_back(of_sample[i]);
  }
  Table table{"PoD: next tokens that stay the same under proximal attention alone",
              {"tokens", "agreement"},
              {}};
  for (std::size_t i = 0; i < counts.size(); ++i) {
    report_.agreement.push_back({counts[i], mean_of(shares[i])});
    table.rows.push_back({str(counts[i]), percent_text(mean_of(shares[i]))});
  }
  out_.tables.push_back(std::move(table));
}

/// What layers could share of their values, too, if they were that alike.
void Grouping::report_values() {
  if (!evidence_.profile().has(name::kValueCosine)) return;
  const std::int64_t layers = evidence_.header().n_layers;
  std::vector<std::vector<float>> samples;
  for (const auto position : similarity_.positions)
    samples.push_back(profile::floats_of(evidence_.profile(), position, name::kValueCosine, {},
                                         {kv_heads(), layers, layers}));
  const Similarity cosines = mean_similarity(samples, kv_heads(), layers);
  double most = -1;
  for (std::int64_t g = 0; g < kv_heads(); ++g)
    for (std::int64_t a = 1; a < layers; ++a)
      for (std::int64_t b = 0; b < a; ++b) most = std::max(most, cosines.at(g, a, b));
  out_.notes.push_back(str("the values of no two layers have a mean cosine of more than ",
                           fixed_text(most, 2), " (1: they point the same way)"));
  Table table{str("PoD: values that layers could share, by their cosine (",
                  count_of(std::ssize(similarity_.positions), "sample", "samples"), ")"),
              {"delta", "blocks", "values shared"},
              {}};
  for (const double delta : steps(1, 9, 10)) {
    const auto blocks = count_blocks(layer_blocks(cosines, delta));
    table.rows.push_back(
        {fixed_text(delta, 1), str(blocks),
         percent_text(1 - static_cast<double>(blocks) / static_cast<double>(kv_heads() * layers))});
  }
  out_.tables.push_back(std::move(table));
}

Calibrated Grouping::calibrate() {
  read();
  deltas_ = request_.deltas.empty() ? steps(1, 19, 20) : request_.deltas;
  std::sort(deltas_.begin(), deltas_.end());
  std::optional<double> delta = request_.delta;
  const Proximity proximal = request_.policy.proximal;
  const auto long_enough = evidence_.longer_than(proximal.initial + proximal.recent);
  const auto answered = evidence_.answered(long_enough);
  std::optional<Split> split;
  if (!run_) {
    out_.notes.push_back("without --model nothing was tried: what the blocks cost is unknown");
  } else if (answered.empty()) {
    out_.notes.push_back(
        str("no prompt with answers has more than the ", proximal.initial, " + ", proximal.recent,
            " proximal tokens: nothing was tried (choose --initial and --recent smaller)"));
  } else {
    require_samples(evidence_.count(answered), "with answers and distant tokens",
                    evidence_.request().force, out_);
    split = evidence_.split(answered);
    similarity_ = read_similarity(evidence_.profile(),
                                  evidence_.apart_from(split->held_out, similarity_.positions));
  }
  if (!delta) delta = delta_from_saving();
  if (split) {
    const auto found = delta_from_trials(*split);
    if (!delta) delta = found;
    if (delta) measure(*split, *delta);
  } else if (!delta && saved_at(point_at(Pod{}.delta), evidence_.lengths().back()) > kLeastSaving) {
    delta = Pod{}.delta;
  }
  report_sweep(delta);
  if (delta) {
    report_batches(point_at(*delta));
    report_gate(*delta);
  }
  report_agreement();
  report_values();
  if (!delta) return without_policy(method::kPod, std::move(out_));
  report_.keys_dropped = point_at(*delta).dropped;
  report_.samples = std::ssize(similarity_.positions);
  return with_section(section_of(part_at(*delta, request_.policy.tau, proximal)),
                      report_json(report_), std::move(out_));
}

/// The method's options.
class PodCommand : public MethodCommand {
 public:
  void add_options(CLI::App& command) override {
    auto* delta = limit_to_setting(
        add_option(command, "--delta", request_.delta, "SHARE",
                   "least similarity of a block's layers, 0 to 1 (default: with --model the "
                   "least that keeps the score, else " +
                       default_text(method::kPod.name, "delta") + ")"),
        method::kPod.name, "delta");
    add_option(
        command, "--save", request_.wanted_saving, "SHARE",
        "or take the greatest delta that saves this share of the cache at the longest of --lengths")
        ->check(real_range(0.0, 0.5))
        ->excludes(delta);
    limit_to_setting(add_option(command, "--deltas", request_.deltas, "SHARE,...",
                                "deltas that are tried (default: 0.05 to 0.95)"),
                     method::kPod.name, "delta")
        ->delimiter(',');
    as_setting(add_option(command, "--granularity", granularity_, "WHAT",
                          "what has blocks of its own: kv-head or head (query heads)"),
               method::kPod.name, "granularity");
    as_setting(add_option(command, "--tau", request_.policy.tau, "SHARE",
                          "PoD's gate from which a head skips the distant part, 0 to 1; 1: never"),
               method::kPod.name, "tau");
    add_option(command, "--memory", memory_, "SIZE",
               "memory for KV caches, for which the greatest batch is computed")
        ->capture_default_str();
    add_number(command, "--new-tokens", request_.new_tokens, "TOKENS",
               "tokens generated after each prompt of that batch", 0, std::int64_t{1} << 24);
  }
  Shared shared() override { return {&request_.policy.proximal, &request_.tolerance}; }
  void settle() override {
    request_.policy.per_query_head = granularity_ == "head";
    request_.memory_bytes = static_cast<double>(parse_bytes(memory_));
  }
  bool fit(const Runtime& runtime) override { return runtime.takes(Form::pod); }
  Calibrated calibrate(const Evidence& evidence, const RunTrials& run) override {
    return calibrate_pod(evidence, request_, run);
  }

 private:
  PodRequest request_;
  std::string granularity_, memory_ = "24GiB";
};

}  // namespace

Calibrated calibrate_pod(const Evidence& evidence, const PodRequest& request,
                         const RunTrials& run) {
  return Grouping(evidence, request, run).calibrate();
}

CalibratedMethod pod_command() {
  return {method::kPod, "Which layers can share the keys of distant tokens",
          "  kvatlas calibrate pod -p p.h5 --model M -o policy.json\n"
          "  kvatlas calibrate pod -p p.h5 --save 0.35 --lengths 8192,32768",
          []() -> std::unique_ptr<MethodCommand> { return std::make_unique<PodCommand>(); }};
}

}  // namespace kvatlas::calibrate
