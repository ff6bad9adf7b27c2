// SPDX-License-Identifier: Apache-2.0
#include "calibrate/methods/trial_journal.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <iterator>

#include "analyzer/profile/profile.hpp"
#include "base/hash.hpp"
#include "base/json_text.hpp"
#include "base/whole_file.hpp"
#include "calibrate/policy/policy_files.hpp"
#include "calibrate/rules/policy_reports.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

constexpr LineJournal::Kind kKind{"kvatlas.trials/3", "trials", "--force begins anew"};

std::string hash_of(const Policy& policy) {
  Fnv1a hash;
  hash.add(policy_key(policy));
  return hash.hex();
}

/// What a line calls the values of Measure, in their order.
constexpr const char* kMeasures[] = {"score", "divergence", "both"};

json line_of(const TrialJournal::Key& key, const Trial& trial) {
  const auto& [policy, sample, measure] = key;
  json line = {{"policy", policy},
               {"sample", sample},
               {"measure", kMeasures[static_cast<std::size_t>(measure)]},
               {"score", number_json(trial.score)},
               {"kl", number_json(trial.kl)},
               {"kept_share", trial.kept_share}};
  if (trial.digits)
    line.update(
        {{"digits_prefix", trial.digits->prefix}, {"digits_in_place", trial.digits->in_place}});
  return line;
}

}  // namespace

std::string policy_key(const Policy& policy) {
  json parts = json::array();
  for (const auto& part : policy.parts) parts.push_back({section_name(part), section_of(part)});
  const json key = {parts, policy.kv_bits, policy.kv_residual, policy.rolling,
                    policy.masks_prefill};
  return json_text(key);
}

json trial_settings(const TrialOptions& options, const std::string& runtime,
                    const profile::Reader& profile) {
  return {{"model", profile.header().model_fingerprint},
          {"profile", profile_fingerprint(profile)},
          {"runtime", runtime},
          {"dtype", options.dtype},
          {"new", options.max_new}};
}

TrialJournal::Open TrialJournal::asked(const std::string& document, bool force, bool resume) {
  if (force && resume)
    fail(ErrorCode::usage, "--force begins anew and --resume goes on: give one of them");
  if (resume && document.empty())
    fail(ErrorCode::usage, "--resume goes on with a document that was begun: give it with -o");
  if (!document.empty()) check_output(document, true);
  if (force) return Open::replace;
  // An unfinished run that was to replace a document has both.
  const bool unfinished = resume && std::filesystem::exists(trials_beside(document));
  if (!document.empty() && !unfinished && std::filesystem::exists(document)) fail_exists(document);
  return resume ? Open::resume : Open::fresh;
}

TrialJournal::TrialJournal(std::filesystem::path path, const json& settings, Open how)
    : file_(std::move(path), kKind, settings, how, [this](const json& line) { read_trial(line); }) {
}

TrialJournal::~TrialJournal() {
  if (trials_.empty()) remove();  // it would only stand in the way of the next search
}

void TrialJournal::read_trial(const json& line) {
  const auto real = [&](const char* key) { return number_of(line.value(key, json())); };
  if (!line.is_object() || !line.contains("policy") || !line.at("policy").is_string() ||
      !line.contains("sample") || !line.at("sample").is_number_unsigned())
    fail(ErrorCode::unreadable, "no trial");
  const auto* const measure =
      std::find(std::begin(kMeasures), std::end(kMeasures), line.value("measure", json()));
  if (measure == std::end(kMeasures)) fail(ErrorCode::unreadable, "no trial");
  Trial trial;
  trial.score = real("score");
  trial.kl = real("kl");
  trial.kept_share = real("kept_share");
  if (line.contains("digits_prefix"))
    trial.digits = {real("digits_prefix"), real("digits_in_place")};
  trials_[{line.at("policy"), line.at("sample"),
           static_cast<Measure>(measure - std::begin(kMeasures))}] = trial;
}

RunTrials TrialJournal::around(RunTrials run) {
  return [this, run = std::move(run)](std::span<const Policy> policies,
                                      std::span<const std::size_t> samples, Measure measure) {
    std::vector<std::string> hashes;
    for (const auto& policy : policies) hashes.push_back(hash_of(policy));
    std::vector<std::vector<Trial>> out(policies.size());
    // What is done of samples that are tried together is safe before the next ones begin.
    for (std::size_t first = 0; first < samples.size(); first += kPromptsTogether) {
      const auto together = tried_together(samples, first);
      // The policies of which nothing is known on some of these samples, and those samples.
      std::map<std::vector<std::size_t>, std::vector<std::size_t>> unknown;
      for (const auto sample : together) {
        std::vector<std::size_t> policies_of;
        for (std::size_t i = 0; i < policies.size(); ++i)
          if (!trials_.contains({hashes[i], sample, measure}) &&
              std::find(hashes.begin(), hashes.begin() + i, hashes[i]) == hashes.begin() + i)
            policies_of.push_back(i);
        if (!policies_of.empty()) unknown[policies_of].push_back(sample);
      }
      for (const auto& [of, at] : unknown) {
        std::vector<Policy> asked;
        for (const auto i : of) asked.push_back(policies[i]);
        const auto found = run(asked, at, measure);
        std::string lines;
        for (std::size_t s = 0; s < at.size(); ++s)
          for (std::size_t i = 0; i < of.size(); ++i) {
            const Trial& trial = found.at(i).at(s);
            const Key key{hashes[of[i]], at[s], measure};
            lines += line_of(key, trial).dump() + '\n';
            trials_[key] = trial;
          }
        file_.append(lines);
      }
      for (const auto sample : together)
        for (std::size_t i = 0; i < policies.size(); ++i)
          out[i].push_back(trials_.at({hashes[i], sample, measure}));
    }
    return out;
  };
}

RunTrials kept_beside(const std::string& document, const json& settings, TrialJournal::Open how,
                      std::optional<TrialJournal>& journal, RunTrials run) {
  if (document.empty()) return run;
  journal.emplace(trials_beside(document), settings, how);
  if (journal->known() > 0)
    std::cerr << "kvatlas: " << journal->known() << " trials are there already\n";
  return journal->around(std::move(run));
}

}  // namespace kvatlas::calibrate
