// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/policy_reports.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/hash.hpp"
#include "base/json_text.hpp"
#include "base/str.hpp"
#include "data/tasks.hpp"

namespace kvatlas::calibrate {

using nlohmann::json;

ModelInfo model_info(const profile::Header& header) {
  return {header.model_name,        header.architecture,
          header.model_fingerprint, header.n_layers,
          header.n_heads,           header.n_kv_heads,
          header.head_dim,          own_windows(header.window),
          header.layer_numbers,     header.cached_values,
          header.latent_rank};
}

void require_fit(const Method& method, const profile::Header& header) {
  check_cache(parse_policy(method.name), model_info(header));
}

std::vector<std::int64_t> own_windows(const std::vector<std::int64_t>& of_layers) {
  const bool any = std::any_of(of_layers.begin(), of_layers.end(),
                               [](std::int64_t window) { return window > 0; });
  return any ? of_layers : std::vector<std::int64_t>{};
}

std::string profile_fingerprint(const profile::Reader& profile) {
  Fnv1a hash;
  const auto add = [&](const std::string& text) {
    hash.add(std::uint64_t{text.size()});  // so that "ab", "c" is not "a", "bc"
    hash.add(text);
  };
  const auto& header = profile.header();
  for (const auto& text : {header.model_fingerprint, header.capture}) add(text);
  for (std::size_t i = 0; i < profile.samples().size(); ++i) {
    const auto& sample = profile.samples()[i];
    add(sample.id);
    add(sample.task);
    // What trials are scored by, where the prompts say more than their task.
    if (!sample.metric.empty()) add("metric " + sample.metric);
    if (!sample.language.empty()) add("language " + sample.language);
    for (const auto& name : sample.all_classes) add("class " + name);
    if (sample.max_new_tokens > 0) add(str("tokens ", sample.max_new_tokens));
    const auto tokens = profile.tokens(i);
    hash.add({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof tokens[0]});
  }
  return hash.hex();
}

std::string prompt_hash(std::span<const std::int64_t> tokens) {
  Fnv1a hash;
  for (const auto token : tokens) hash.add(static_cast<std::uint64_t>(token));
  return hash.hex();
}

Provenance provenance_of(const profile::Reader& profile,
                         const std::vector<std::size_t>& positions) {
  Provenance out;
  out.profile = profile_fingerprint(profile);
  out.samples = static_cast<std::int64_t>(positions.size());
  std::set<std::int64_t> lengths;
  std::set<std::string> tasks, prompts;
  for (const auto position : positions) {
    const auto& sample = profile.samples()[position];
    lengths.insert(sample.n_tokens);
    if (!sample.task.empty()) tasks.insert(sample.task);
    if (data::is_generated(sample.seed, sample.task)) {
      auto& [least, most] =
          out.seeds.try_emplace(sample.task, std::array{sample.seed, sample.seed}).first->second;
      least = std::min(least, sample.seed);
      most = std::max(most, sample.seed);
    } else {
      const auto tokens = profile.tokens(position);
      prompts.insert(prompt_hash(std::vector<std::int64_t>(tokens.begin(), tokens.end())));
    }
  }
  out.prompts.assign(prompts.begin(), prompts.end());
  out.lengths.assign(lengths.begin(), lengths.end());
  out.tasks.assign(tasks.begin(), tasks.end());
  return out;
}

json number_json(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json estimate_json(const Estimate& estimate) {
  return {{"mean", number_json(estimate.mean)},
          {"low", number_json(estimate.low)},
          {"high", number_json(estimate.high)}};
}

namespace {

constexpr const char* kAbove[] = {"above_0.1", "above_1"};  // kDivergenceLimits

json quantile_json(const Quantile& quantile) {
  return {{"value", number_json(quantile.value)},
          {"low", number_json(quantile.low)},
          {"high", number_json(quantile.high)}};
}

Quantile quantile_from(const json& from) {
  Quantile out{number_of(from.value("value", json())), number_of(from.value("low", json())),
               number_of(from.value("high", json()))};
  if (!std::isnan(out.low) && std::isnan(out.high)) out.high = INFINITY;
  return out;
}

}  // namespace

json divergence_json(const Divergence& divergence) {
  json out = {{"mean", number_json(divergence.mean)},
              {"median", quantile_json(divergence.median)},
              {"p90", quantile_json(divergence.p90)},
              {"capped_mean", estimate_json(divergence.capped)}};
  for (std::size_t i = 0; i < divergence.above.size(); ++i)
    out[kAbove[i]] = estimate_json(divergence.above[i]);
  return out;
}

Divergence divergence_from(const json& from) {
  Divergence out;
  if (!from.is_object()) return out;
  const auto object = [&](const char* name) {
    const auto found = from.find(name);
    return found != from.end() && found->is_object() ? *found : json::object();
  };
  const auto estimate = [&](const char* name) {
    const json at = object(name);
    return Estimate{number_of(at.value("mean", json())), number_of(at.value("low", json())),
                    number_of(at.value("high", json()))};
  };
  out.mean = number_of(from.value("mean", json()));
  out.median = quantile_from(object("median"));
  out.p90 = quantile_from(object("p90"));
  out.capped = estimate("capped_mean");
  for (std::size_t i = 0; i < out.above.size(); ++i) out.above[i] = estimate(kAbove[i]);
  return out;
}

double number_of(const json& value) {
  return value.is_number() ? value.get<double>() : std::nan("");
}

Estimate estimate_of(const json& value) {
  return {number_of(value.at("mean")), number_of(value.at("low")), number_of(value.at("high"))};
}

}  // namespace kvatlas::calibrate
