// SPDX-License-Identifier: Apache-2.0
#include "calibrate/methods/precision.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/options.hpp"
#include "base/text_count.hpp"
#include "calibrate/methods/judging.hpp"
#include "calibrate/methods/method_command.hpp"
#include "calibrate/policy/policy_settings.hpp"
#include "calibrate/rules/cache_bytes.hpp"
#include "calibrate/rules/certainty.hpp"
#include "calibrate/rules/precision.hpp"

namespace kvatlas::calibrate {
namespace {

/// Allocations that are tried, evenly spread over their sizes.
constexpr std::size_t kTried = 8;

std::string word_of(KvFormat format) { return std::string(facts_of(format).word); }

class FormatSearch {
 public:
  FormatSearch(const Evidence& evidence, const PrecisionRequest& request, const RunTrials& run)
      : evidence_(evidence),
        request_(request),
        run_(run),
        taken_(request.taken),
        layers_(static_cast<std::size_t>(evidence.header().n_layers)) {
    std::string lacking;
    for (const KvFormat format : taken_.formats) {
      const auto lack = lack_of_format(format, evidence.shape().head_dim);
      if (lack.empty())
        formats_.push_back(format);
      else
        lacking += str(lacking.empty() ? "" : "; ", lack);
      if (facts_of(format).pair) taken_.apart = false;
    }
    if (formats_.empty()) fail(ErrorCode::usage, lacking);
    if (!lacking.empty()) out_.notes.push_back(str("left out: ", lacking));
  }

  Calibrated calibrate();
  std::vector<ExpectedFormats> expected(const std::vector<std::size_t>& samples);

 private:
  /// What is stored in one format as a whole: sides of layers.
  struct Sides {
    std::vector<std::size_t> layers;
    bool keys = false, values = false;
  };
  void list_items();
  Precision part_of(const std::vector<KvFormat>& formats) const;
  std::vector<std::size_t> sensitivity_samples(const std::vector<std::size_t>& choice) const;
  void find_costs(const std::vector<std::size_t>& samples);
  std::vector<Allocation> tried() const;
  std::vector<Policy> uniform() const;
  std::optional<Precision> choose(const Split& split);
  void measure(const Split& split, const Precision& chosen);
  void report_sensitivity(const Precision& chosen);
  void report_savings(const Precision& chosen);

  const Evidence& evidence_;
  const PrecisionRequest& request_;
  const RunTrials& run_;
  FormatsTaken taken_;
  std::vector<KvFormat> formats_;
  std::size_t layers_;
  std::vector<Sides> sides_;  // of each item
  std::vector<StoredItem> items_;
  PrecisionReport report_;
  Calibrated out_;
};

void FormatSearch::list_items() {
  const CacheShape shape = evidence_.shape();
  const std::int64_t length = evidence_.lengths().back();
  std::vector<Sides> of_layers;
  for (std::size_t l = 0; l < layers_; ++l) {
    if (taken_.by_layer || l == 0) of_layers.push_back({});
    of_layers.back().layers.push_back(l);
  }
  for (const Sides& layers : of_layers)
    for (const bool keys : {true, false}) {
      if (!taken_.apart && !keys) continue;
      Sides item = layers;
      item.keys = keys;
      item.values = !keys || !taken_.apart;
      StoredItem stored;
      for (const auto l : item.layers)
        stored.values += static_cast<double>(item.keys + item.values) *
                         shape.share(static_cast<std::int64_t>(l)) *
                         static_cast<double>(shape.held(static_cast<std::int64_t>(l), length));
      for (const KvFormat format : formats_)
        stored.bytes.push_back(((item.keys ? shape.bytes_of_row(format, KvSide::keys) : 0) +
                                (item.values ? shape.bytes_of_row(format, KvSide::values) : 0)) /
                               static_cast<double>((item.keys + item.values) * shape.head_dim));
      sides_.push_back(std::move(item));
      items_.push_back(std::move(stored));
    }
}

Precision FormatSearch::part_of(const std::vector<KvFormat>& formats) const {
  Precision part;
  part.fixed.emplace(layers_);
  for (std::size_t i = 0; i < sides_.size(); ++i)
    for (const auto l : sides_[i].layers) {
      if (sides_[i].keys) (*part.fixed)[l].keys = formats[i];
      if (sides_[i].values) (*part.fixed)[l].values = formats[i];
    }
  return part;
}

/// As many texts as possible, in the order of the profile.
std::vector<std::size_t> FormatSearch::sensitivity_samples(
    const std::vector<std::size_t>& choice) const {
  std::vector<std::size_t> out;
  std::set<std::string> texts;
  for (const auto position : choice)
    if (const auto& text = evidence_.sample(position).group;
        out.size() < request_.texts && (text.empty() || texts.insert(text).second))
      out.push_back(position);
  return out;
}

void FormatSearch::find_costs(const std::vector<std::size_t>& samples) {
  std::vector<Policy> policies;
  std::vector<double*> costs;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    items_[i].cost.assign(formats_.size(), std::numeric_limits<double>::infinity());
    for (std::size_t f = 0; f < formats_.size(); ++f) {
      const auto layer = static_cast<std::int64_t>(sides_[i].layers.front());
      if (taken_.by_layer &&
          spares_layer(taken_, formats_[f], layer, static_cast<std::int64_t>(layers_)))
        continue;
      std::vector<KvFormat> one(items_.size(), KvFormat::f16);
      one[i] = formats_[f];
      policies.push_back(
          {.name = str("item ", i, " in ", word_of(formats_[f])), .parts = {part_of(one)}});
      costs.push_back(&items_[i].cost[f]);
    }
  }
  const auto trials = run_(policies, samples, Measure::divergence);
  for (std::size_t p = 0; p < policies.size(); ++p) {
    std::vector<double> of_samples;
    for (const Trial& trial : trials.at(p)) of_samples.push_back(divergence_of(trial));
    *costs[p] = mean_of(of_samples);
  }
}

/// The wanted size alone, or sizes evenly spread between 16 bits and the fewest bytes.
std::vector<Allocation> FormatSearch::tried() const {
  const auto all = taken_.by_ends      ? allocations_by_ends(items_, formats_)
                   : taken_.one_format ? allocations_in_one_format(items_, formats_)
                                       : allocations(items_, formats_);
  if (request_.size) {
    if (all.back().size > *request_.size)
      fail(ErrorCode::usage, "in the formats ",
           join(formats_, ", ", [](KvFormat format) { return word_of(format); }),
           " the cache takes ", percent_text(all.back().size),
           " of its bytes at least: give a "
           "larger --size, or more --formats");
    return {first_within(all, *request_.size)};
  }
  std::vector<Allocation> out;
  for (std::size_t i = kTried; i > 0; --i) {
    const double size = 1 - (1 - all.back().size) * static_cast<double>(i) / kTried;
    const Allocation& one = first_within(all, size);
    if (out.empty() || one.formats != out.back().formats) out.push_back(one);
  }
  return out;  // the smallest first
}

/// One format for all layers, to compare with.
std::vector<Policy> FormatSearch::uniform() const {
  std::vector<Policy> out;
  for (const KvFormat format : formats_) out.push_back(policy_of(Precision{{format, format}}));
  return out;
}

/// The smallest size that saves, and keeps the score there and at every larger one.
std::optional<Precision> FormatSearch::choose(const Split& split) {
  const auto candidates = tried();
  std::vector<Policy> policies;
  for (const Allocation& one : candidates) policies.push_back(policy_of(part_of(one.formats)));
  const Verdict verdict(evidence_, run_, policies, split.choice, Measure::both);
  const double full = verdict.full_score().mean;
  Table table{str("Precision: score against the size (", verdict.count().text(), ", full cache ",
                  fixed_text(full, 3), ")"),
              {"size", "score", "KL", "KL expected", {"formats", "", true}},
              {}};
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Estimate score = verdict.score(i);
    std::vector<double> kls;
    for (const Trial& trial : verdict.trials(i)) kls.push_back(divergence_of(trial));
    const double kl = mean_of(kls);
    auto& point = report_.curve.emplace_back();
    point.size = candidates[i].size;
    point.score = score;
    point.kl = kl;
    point.expected_kl = candidates[i].cost;
    const auto formats = *part_of(candidates[i].formats).fixed;
    for (const KvFormats& layer : formats) {
      point.keys.push_back(word_of(layer.keys));
      point.values.push_back(word_of(layer.values));
    }
    table.rows.push_back({percent_text(candidates[i].size), estimate_text(score), fixed_text(kl, 4),
                          fixed_text(candidates[i].cost, 4), formats_text(formats)});
  }
  report_.full = verdict.full_score();
  report_.tolerance = request_.tolerance;
  const auto chosen = request_.size
                          ? std::optional<std::size_t>(0)
                          : verdict.least_that_holds(request_.tolerance, 0, candidates.size());
  if (chosen) table.rows[*chosen].front().text += " *";
  out_.tables.push_back(std::move(table));
  if (!chosen) return std::nullopt;
  report_.size = candidates[*chosen].size;
  return part_of(candidates[*chosen].formats);
}

void FormatSearch::measure(const Split& split, const Precision& chosen) {
  std::vector<Policy> policies = uniform();
  policies.insert(policies.begin(), policy_of(chosen));
  const bool held_out = !split.held_out.empty();
  const Verdict verdict(evidence_, run_, policies, held_out ? split.held_out : split.choice);
  if (verdict.samples().empty()) {
    out_.notes.push_back("no held-out sample has a score: the loss is not measured");
    return;
  }
  report_.measured = verdict.measured(0, held_out);
  out_.tables.push_back(measured_table(
      str("Precision as chosen, on ", held_out ? "held-out samples" : "the samples of the choice"),
      *report_.measured));
  Table controls{"Beside it, one format for all layers", {"format", "score", "KV kept"}, {}};
  for (std::size_t i = 0; i < formats_.size(); ++i) {
    Measured& control = report_.uniform[word_of(formats_[i])];
    control = verdict.measured(i + 1, held_out);
    controls.rows.push_back({word_of(formats_[i]), estimate_text(verdict.score(i + 1)),
                             percent_text(control.kept_share)});
  }
  out_.tables.push_back(std::move(controls));
  note_precision(evidence_, split, verdict, 0, out_);
}

void FormatSearch::report_sensitivity(const Precision& chosen) {
  auto& sensitivity = report_.sensitivity.emplace();
  for (const KvFormat format : formats_) sensitivity.formats.push_back(word_of(format));
  Table table{
      "Precision: KL divergence, in thousandths of a nat, where one layer's keys, or values, "
      "alone have a format",
      {"layer"},
      {}};
  const bool apart = taken_.apart;
  for (const char* side : {"keys", "values"})
    for (const KvFormat format : formats_)
      if (apart || std::string_view(side) == "keys")
        table.columns.push_back(str(apart ? str(side, " ") : "", word_of(format)));
  table.columns.insert(table.columns.end(), {"keys in", "values in"});
  for (std::size_t i = 0; i < items_.size(); ++i)
    sensitivity.items.push_back({{sides_[i].layers.begin(), sides_[i].layers.end()},
                                 sides_[i].keys,
                                 sides_[i].values,
                                 items_[i].cost});
  // A layer that the runtime spares costs nothing in a format that it never has.
  for (FormatItem& item : sensitivity.items)
    for (double& kl : item.kl) kl = std::isfinite(kl) ? kl : 0;
  for (std::size_t i = 0; i < items_.size(); i += apart ? 2 : 1) {
    const std::size_t first = sides_[i].layers.front();
    Table::Row row = {sides_[i].layers.size() > 1 ? "all" : str(first)};
    for (std::size_t side = i; side < i + (apart ? 2 : 1); ++side)
      for (const double cost : items_[side].cost)
        row.push_back(std::isfinite(cost) ? fixed_text(1000 * cost, 3) : "spared");
    const KvFormats& formats = (*chosen.fixed)[first];
    row.push_back(word_of(formats.keys));
    row.push_back(word_of(formats.values));
    table.rows.push_back(std::move(row));
  }
  out_.tables.insert(out_.tables.begin(), std::move(table));
}

void FormatSearch::report_savings(const Precision& chosen) {
  Table lengths{"Precision: savings", {"tokens", "KV ratio", "full MiB", "kept MiB"}, {}};
  for (const auto length : evidence_.lengths()) {
    Saving& saving = report_.savings.emplace_back();
    saving.length = length;
    saving.kv_ratio = kv_ratio(chosen, evidence_.shape(), length);
    saving.full_bytes = evidence_.shape().full_bytes(length);
    saving.kept_bytes = saving.full_bytes / saving.kv_ratio;
    constexpr double kMiB = 1 << 20;
    lengths.rows.push_back({str(length), fixed_text(saving.kv_ratio, 2),
                            fixed_text(saving.full_bytes / kMiB, 1),
                            fixed_text(saving.kept_bytes / kMiB, 1)});
  }
  out_.tables.push_back(std::move(lengths));
}

std::vector<ExpectedFormats> FormatSearch::expected(const std::vector<std::size_t>& samples) {
  list_items();
  find_costs(sensitivity_samples(samples));
  std::vector<ExpectedFormats> out;
  for (const Allocation& one : tried()) out.push_back({part_of(one.formats), one.size, one.cost});
  return out;
}

Calibrated FormatSearch::calibrate() {
  if (!run_)
    fail(ErrorCode::usage,
         "what fewer bits cost is measured on the model: give --model, the profile's own");
  const auto answered = evidence_.answered(evidence_.positions());
  require_samples(evidence_.count(answered), "with answers", evidence_.request().force, out_);
  const Split split = evidence_.split(answered);
  Verdict(evidence_, run_, {}, split.choice).require_answers(evidence_.request().force, out_);
  list_items();
  const auto looked_at = sensitivity_samples(split.choice);
  find_costs(looked_at);
  const std::optional<Precision> chosen = choose(split);
  if (chosen) measure(split, *chosen);
  report_sensitivity(chosen.value_or(part_of(std::vector<KvFormat>(items_.size(), KvFormat::f16))));
  if (!chosen) return without_policy(method::kPrecision, std::move(out_));
  report_savings(*chosen);
  report_.sensitivity->samples = std::ssize(looked_at);
  report_.samples = std::ssize(split.choice);
  return with_section(section_of(*chosen), report_json(report_), std::move(out_));
}

/// The method's options.
class PrecisionCommand : public MethodCommand {
 public:
  void add_options(CLI::App& command) override {
    std::vector<std::string> words;
    for (const KvFormatFacts& format : kKvFormats)
      if (format.word != facts_of(KvFormat::f16).word) words.emplace_back(format.word);
    add_option(command, "--formats", formats_, "NAME,...",
               "number formats that may be chosen beside 16 bits (" + join(words) + ")")
        ->delimiter(',')
        ->check(CLI::IsMember(words))
        ->default_str("q8_0,int4,int2");
    add_option(command, "--size", request_.size, "SHARE",
               "at most this share of the bytes at 16 bits, 0 to 1 (default: the least whose score "
               "holds)")
        ->check(real_range(0.0, 1.0));
    add_number(command, "--sensitivity-texts", request_.texts, "N",
               "texts on which each layer is tried by itself", 1, 4096);
  }
  Shared shared() override { return {nullptr, &request_.tolerance}; }
  bool needs_model() const override { return true; }
  void settle() override {
    if (formats_.empty()) return;
    request_.taken.formats.clear();
    for (std::size_t f = 0; f < kKvFormats.size(); ++f)
      if (std::find(formats_.begin(), formats_.end(), kKvFormats[f].word) != formats_.end())
        request_.taken.formats.insert(static_cast<KvFormat>(f));
  }
  bool fit(const Runtime& runtime) override {
    if (!runtime.takes(Form::precision) || !runtime.formats_taken.not_simulated.empty())
      return false;
    if (runtime.runs_everything) return true;
    const auto asked = request_.taken.formats;
    request_.taken = runtime.formats_taken;
    if (formats_.empty())
      request_.taken.formats = formats_searched(runtime.formats_taken);
    else
      std::erase_if(request_.taken.formats, [&](KvFormat one) { return !asked.contains(one); });
    return !request_.taken.formats.empty();
  }
  Calibrated calibrate(const Evidence& evidence, const RunTrials& run) override {
    return calibrate_precision(evidence, request_, run);
  }

 private:
  PrecisionRequest request_;
  std::vector<std::string> formats_;
};

}  // namespace

Calibrated calibrate_precision(const Evidence& evidence, const PrecisionRequest& request,
                               const RunTrials& run) {
  return FormatSearch(evidence, request, run).calibrate();
}

std::vector<ExpectedFormats> expected_formats(const Evidence& evidence,
                                              const PrecisionRequest& request, const RunTrials& run,
                                              const std::vector<std::size_t>& samples) {
  return FormatSearch(evidence, request, run).expected(samples);
}

CalibratedMethod precision_command() {
  return {method::kPrecision, "How few bits each layer's keys and values can be stored in",
          "  kvatlas calibrate precision -p p.h5 --model M -o policy.json\n"
          "  kvatlas calibrate precision -p p.h5 --model M --formats q8_0,q4_0,int4 --size 0.3\n"
          "  kvatlas calibrate precision -p p.h5 --model M --for vllm -o policy.json",
          []() -> std::unique_ptr<MethodCommand> { return std::make_unique<PrecisionCommand>(); }};
}

}  // namespace kvatlas::calibrate
