// SPDX-License-Identifier: Apache-2.0
#include "calibrate/search/candidates.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "analyzer/profile/checked_arrays.hpp"
#include "analyzer/profile/statistics.hpp"
#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/text_count.hpp"
#include "calibrate/methods/dynamickv.hpp"
#include "calibrate/methods/headkv.hpp"
#include "calibrate/methods/pod.hpp"
#include "calibrate/methods/simlayerkv.hpp"
#include "calibrate/methods/trial_journal.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/policy/policy_settings.hpp"
#include "calibrate/report/lazy_report.hpp"
#include "calibrate/runtimes/runtimes.hpp"

namespace kvatlas::calibrate {
namespace {

namespace name = profile::name;

/// Thresholds tried for each window, and those tried in compositions.
constexpr int kThresholds = 8, kComposedThresholds = 4;
constexpr double kDeltas[] = {0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};
/// Attention that 4 bits count as: a share that ranks them behind a policy that loses less.
constexpr double kLostByFourBits = 0.01;

/// A share of the full cache. A policy that keeps more than this saves next to nothing.
constexpr double kKeepsAll = 0.99;

/// The share of attention on what is kept.
using Kept = std::vector<Masses>;  // [sample][layer][KV head]

std::string family_of(const Policy& policy) {
  const std::string family = join(policy.parts, "+", name_of);
  return family.empty() ? kFourBits : family;
}

/// The layers that a SimLayerKV part trims in a sample: [layer][KV head].
HeadFlags trimmed_in(const SimLayerKv& part, const SampleMasses& masses, std::size_t sample) {
  HeadFlags out;
  for (std::size_t l = 0; l < masses.layers[sample].size(); ++l) {
    const auto& heads = masses.heads[sample][l];
    out.emplace_back(heads.size(), 0);
    for (std::size_t g = 0; g < heads.size(); ++g) {
      if (part.fixed)
        out[l][g] = (*part.fixed)[l][(*part.fixed)[l].size() == 1 ? 0 : g];
      else
        out[l][g] = is_lazy(part.per_head ? heads[g] : masses.layers[sample][l], part.threshold);
    }
  }
  return out;
}

class Listing {
 public:
  Listing(const Evidence& evidence, const std::vector<std::size_t>& samples,
          const SearchSpace& space, const CacheLoad& load)
      : evidence_(evidence),
        samples_(samples),
        space_(space),
        load_(load),
        model_(model_info(evidence.header())) {
    if (!space.runtime.empty()) load_.runtime = &runtime_named(space.runtime);
    full_bytes_ = cache_bytes({.name = "full", .parts = {}}, load_).total();
  }

  Candidates list() {
    read_selections();
    if (evidence_.profile().has(name::kDecodeMass)) add_simlayerkv();
    if (space_.has(method::kPod.name) && evidence_.profile().has(name::kDivergence) &&
        evidence_.profile().has(name::kDecodeMass))
      add_pod();
    for (const auto& [part, kept] : selections_)
      if (space_.has(name_of(part))) add({part}, {}, lost_of(kept));
    if (space_.has(method::kHeadKv.name) && evidence_.profile().has(name::kKeptMass) &&
        evidence_.profile().has(name::kDecodeMass))
      add_headkv();
    for (const auto& [part, lost] : others_)
      if (space_.has(name_of(part))) add({part}, {}, lost);
    for (const auto& formats : space_.formats) add({formats.part}, {}, std::min(1.0, formats.kl));
    if (space_.has(kFourBits)) {
      const std::size_t plain = out_.all.size();
      for (std::size_t i = 0; i < plain; ++i)
        if (out_.all[i].family != method::kPrecision.name) add_in_four_bits(out_.all[i]);
      add_in_four_bits({.policy = {}, .real = {}, .family = {}, .lazy_rates = {}});
    }
    return std::move(out_);
  }

 private:
  struct KeptSelection {
    Part part;
    Kept kept;
  };

  static double lost_of(const Kept& kept) {
    double sum = 0;
    std::size_t count = 0;
    for (const auto& sample : kept)
      for (const auto& layer : sample)
        for (const double share : layer) {
          sum += 1 - share;
          ++count;
        }
    return count > 0 ? sum / static_cast<double>(count) : 0;
  }

  /// Adds it unless the runtime refuses it or the same is there already.
  void add(std::vector<Part> parts, std::optional<LazyRates> rates, double lost, int bits = 16) {
    Candidate one;
    one.policy.parts = std::move(parts);
    one.policy.kv_bits = bits;
    one.policy.name = policy_text(one.policy);
    one.policy.section =
        one.policy.parts.size() == 1 ? section_name(one.policy.parts[0]) : kComposition;
    if (!seen_.insert(policy_key(one.policy)).second) return;
    one.real = one.policy;
    try {
      check_cache(one.policy, model_);
      if (!space_.runtime.empty())
        one.real = simulated_in_runtime(one.policy, space_.runtime, model_).policy;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::usage) throw;
      ++out_.refused[refusal(error.what(), one.policy.name)];
      out_.refused_families.insert(family_of(one.policy));
      return;
    }
    if (one.real.kv_bits != bits) return;  // the runtime stores nothing in so few bits
    one.family = family_of(one.policy);
    one.lazy_rates = std::move(rates);
    CacheLoad load = load_;
    load.lazy_rates = one.lazy_rates;
    Policy plain = one.real;
    plain.kv_bits = 16;
    const bool keeps_all = cache_bytes(plain, load).total() > kKeepsAll * full_bytes_;
    if (keeps_all && (bits == 16 || !one.policy.parts.empty())) return;  // the full cache's like
    one.bytes = cache_bytes(one.real, load).total();
    one.kept_share = one.bytes / full_bytes_;
    one.lost = lost;
    // Formats by layer are no settings: the text alone is the same for all of them.
    if (one.family == method::kPrecision.name)
      one.policy.name += str(" (by layer, ", percent_text(one.kept_share), " of the cache)");
    out_.all.push_back(std::move(one));
  }

  /// The reason without the policy's own text, so that reasons can be counted.
  static std::string refusal(std::string text, const std::string& policy) {
    if (const auto at = text.find("'" + policy + "'"); at != std::string::npos)
      text.replace(at, policy.size() + 2, "some policies");
    return text;
  }

  void add_in_four_bits(const Candidate& plain) {
    add(plain.policy.parts, plain.lazy_rates, plain.lost + kLostByFourBits, 4);
  }

  /// The selections of other papers at SnapKV's budget and window, with what SnapKV loses.
  void add_others(const SnapKv& snapkv, double lost) {
    for (const PartName* selection : selections()) {
      Part part = selection->standard;
      if (auto* select = window_budget(part)) {
        *select = snapkv.select;
      } else {
        setting_named(selection->name, "budget").set(part, snapkv.select.budget);
      }
      others_.push_back({std::move(part), lost});
    }
  }

  /// What the profile's selections keep: the settings that DynamicKV and LagKV are tried at.
  void read_selections() {
    if (!evidence_.profile().has(name::kKeptMass)) return;
    const auto& labels = profile::axis_of(evidence_.header(), "selection").labels;
    for (std::size_t row = 0; row < labels.size(); ++row) {
      Policy policy = parse_policy(labels[row]);
      if (policy.parts.size() != 1) continue;
      Part& part = policy.parts.at(0);
      const auto* snapkv = std::get_if<SnapKv>(&part);
      if (auto* dynamic = std::get_if<DynamicKv>(&part)) {
        if (!evidence_.profile().has(name::kCounts)) continue;
        dynamic->fixed = read_budgets(evidence_, *dynamic).summary(samples_).budgets;
        if (dynamic->fixed->empty()) continue;
      } else if (const auto* lag = std::get_if<LagKv>(&part)) {
        if (lag->variant != LagVariant::lag) continue;  // baselines
      } else if (!snapkv) {
        continue;
      }
      Kept kept;
      for (const auto position : samples_) {
        auto masses =
            read_kept_masses(evidence_.profile(), position, static_cast<std::int64_t>(row));
        kept.push_back(masses.empty() ? whole() : std::move(masses));
      }
      if (snapkv) {
        add_others(*snapkv, lost_of(kept));
      } else {
        selections_.push_back({part, std::move(kept)});
      }
    }
  }

  /// Budgets of heads by both rules, at every budget of the profile.
  void add_headkv() {
    HeadKv part;
    const SnapKv* snapkv = nullptr;
    std::vector<Policy> selections;
    for (const auto& label : profile::axis_of(evidence_.header(), "selection").labels)
      selections.push_back(parse_policy(label));
    for (const auto& one : selections)
      if (one.parts.size() == 1 && !snapkv) snapkv = std::get_if<SnapKv>(&one.parts[0]);
    if (!snapkv) return;
    part.select = snapkv->select;
    const HeadEvidence heads(evidence_.profile(), part);
    const auto telling = heads.telling(samples_);
    if (telling.empty()) return;
    for (const auto budget : heads.budgets())
      for (const HeadRule rule : kHeadRules) {
        part.select.budget = budget;
        part.fixed = heads.find(rule, budget, telling);
        add({part}, {}, heads.lost(*part.fixed, telling));
      }
  }

  Masses whole() const {
    return Masses(static_cast<std::size_t>(model_.layers),
                  std::vector<double>(static_cast<std::size_t>(model_.kv_heads), 1));
  }

  std::vector<Proximity> proximities() const {
    std::vector<Proximity> out;
    const auto& values = profile::axis_of(evidence_.header(), "proximity").values;
    for (std::size_t i = 0; i + 1 < values.size(); i += 2)
      out.push_back({values[i], values[i + 1]});
    return out;
  }

  /// A layer policy and a selection on what it leaves full. `masses` are those of samples_.
  void add_lazy(const SimLayerKv& part, const SampleMasses& masses, bool composed) {
    std::vector<HeadFlags> trimmed;
    LazyRates rates(static_cast<std::size_t>(model_.layers),
                    std::vector<double>(static_cast<std::size_t>(model_.kv_heads), 0));
    for (std::size_t s = 0; s < masses.layers.size(); ++s) {
      trimmed.push_back(trimmed_in(part, masses, s));
      for (std::size_t l = 0; l < rates.size(); ++l)
        for (std::size_t g = 0; g < rates[l].size(); ++g)
          rates[l][g] += trimmed[s][l][g] / static_cast<double>(masses.layers.size());
    }
    const auto with = [&](const KeptSelection* selection) {
      Kept kept;
      for (std::size_t s = 0; s < trimmed.size(); ++s) {
        kept.push_back(selection ? selection->kept[s] : whole());
        for (std::size_t l = 0; l < rates.size(); ++l)
          for (std::size_t g = 0; g < rates[l].size(); ++g)
            if (trimmed[s][l][g] != 0) kept[s][l][g] = masses.heads[s][l][g];
      }
      std::vector<Part> parts = {part};
      if (selection) parts.push_back(selection->part);
      add(std::move(parts), part.fixed ? std::nullopt : std::optional(rates), lost_of(kept));
    };
    if (space_.has(method::kSimLayerKv.name)) with(nullptr);
    if (composed && space_.has(kCompose))
      for (const auto& selection : selections_) with(&selection);
  }

  void add_simlayerkv() {
    const bool fixed =
        !space_.runtime.empty() && !runtime_named(space_.runtime).takes(Form::lazy_by_input);
    for (const auto& keep : proximities()) {
      SimLayerKv part;
      part.keep = keep;
      const auto masses = read_masses(evidence_.profile(), samples_, part);
      if (masses.positions.size() != samples_.size()) continue;
      for (const bool per_head : {false, true}) {
        part.per_head = per_head;
        std::vector<double> all;
        for (const auto& sample : masses.decided(per_head))
          all.insert(all.end(), sample.begin(), sample.end());
        const auto thresholds = nearest_rank_quantiles(all, kThresholds + 1);
        for (std::size_t i = 0; i + 1 < thresholds.size(); ++i) {
          part.threshold = readable_threshold(thresholds[i]);
          part.fixed = fixed ? std::optional(fixed_lazy(masses, part.threshold, {per_head, true}))
                             : std::nullopt;
          add_lazy(part, masses, !per_head && i % (kThresholds / kComposedThresholds) == 1);
        }
      }
    }
  }

  void add_pod() {
    const auto similarity = read_similarity(evidence_.profile(), samples_);
    if (similarity.positions.size() != samples_.size()) return;
    for (const auto& keep : proximities()) {
      SimLayerKv window;
      window.keep = keep;
      const auto masses = read_masses(evidence_.profile(), samples_, window);
      if (masses.positions.size() != samples_.size()) continue;
      for (const bool per_query_head : {false, true})
        for (const double delta : kDeltas) {
          Pod part;
          part.proximal = keep;
          part.delta = delta;
          part.per_query_head = per_query_head;
          part.lowest = pod_blocks(similarity, model_.kv_heads, per_query_head, delta);
          add({part}, {}, lost_by_sharing(part, similarity, masses));
        }
    }
  }

  /// The distant attention of heads that read another layer's keys, by how much the two differ.
  double lost_by_sharing(const Pod& part, const Similarity& similarity,
                         const SampleMasses& masses) const {
    double lost = 0;
    const std::int64_t group = model_.heads / model_.kv_heads;
    for (const auto& sample : masses.heads)
      for (std::int64_t h = 0; h < model_.heads; ++h)
        for (std::int64_t l = 0; l < model_.layers; ++l) {
          const auto lowest = part.lowest[h][l];
          const double distant = 1 - sample[l][h / group];
          lost += distant * (1 - similarity.at(h, l, lowest));
        }
    return lost / static_cast<double>(masses.heads.size() *
                                      static_cast<std::size_t>(model_.heads * model_.layers));
  }

  const Evidence& evidence_;
  const std::vector<std::size_t>& samples_;
  const SearchSpace& space_;
  CacheLoad load_;
  ModelInfo model_;
  double full_bytes_ = 0;
  std::vector<KeptSelection> selections_;
  std::vector<std::pair<Part, double>>
      others_;  // with the attention that they are expected to lose
  std::set<std::string> seen_;
  Candidates out_;
};

}  // namespace

std::vector<std::string> searched_names() {
  std::vector<std::string> names;
  for (const Method& method : kMethods) names.emplace_back(method.name);
  for (const PartName* selection : selections()) names.push_back(selection->name);
  names.insert(names.end(), {kFourBits, kCompose});
  return names;
}

bool SearchSpace::has(std::string_view method) const {
  return std::find(methods.begin(), methods.end(), method) != methods.end();
}

Candidates list_candidates(const Evidence& evidence, const std::vector<std::size_t>& samples,
                           const SearchSpace& space, const CacheLoad& load) {
  return Listing(evidence, samples, space, load).list();
}

std::vector<std::string> refused_lines(const Candidates& candidates, const std::string& runtime) {
  std::vector<std::string> lines;
  std::size_t all = 0;
  for (const auto& [reason, count] : candidates.refused) {
    lines.push_back(str(count_of(count, "candidate is", "candidates are"), " left out: ", reason));
    all += count;
  }
  if (runtime.empty() || all == 0) return lines;
  return {str(count_of(all, "candidate", "candidates"), " of ",
              count_of(candidates.refused_families.size(), "family", "families"),
              all == 1 ? " is" : " are", " left out: ", runtime_named(runtime).title,
              all == 1 ? " does not take it" : " takes none of them",
              " (kvatlas export --list says what it takes)")};
}

Document document_of(const Candidate& candidate, const Evidence& evidence,
                     const std::vector<std::size_t>& samples) {
  Document document;
  document.model = model_info(evidence.header());
  document.provenance = provenance(evidence);
  document.kv_bits = candidate.policy.kv_bits;
  for (const auto& part : candidate.policy.parts) {
    const std::string section = section_name(part);
    document.sections[section] = section_of(part);
    if (candidate.policy.parts.size() > 1) document.compose.push_back(section);
    const auto* lazy = std::get_if<SimLayerKv>(&part);
    if (!lazy) continue;
    const auto masses = read_masses(evidence.profile(), samples, *lazy);
    SimLayerKvReport report;
    add_lazy_report({masses, {}, evidence.shape(), lazy->keep}, lazy->threshold,
                    {lazy->per_head, lazy->fixed.has_value()}, evidence.lengths(), report);
    document.sections[section].update(report_json(std::move(report)));
  }
  return document;
}

}  // namespace kvatlas::calibrate
