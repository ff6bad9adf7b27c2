// SPDX-License-Identifier: Apache-2.0
#include "calibrate/methods/trial_journal.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <iostream>
#include <iterator>
#include <sys/file.h>
#include <unistd.h>

#include "analyzer/profile/profile.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json_text.hpp"
#include "base/whole_file.hpp"
#include "calibrate/policy/policy_files.hpp"
#include "calibrate/rules/policy_reports.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

constexpr const char* kSchema = "kvatlas.trials/3";
constexpr std::size_t kLargestJournal = std::size_t{1} << 30;

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
  return key.dump(-1, ' ', false, json::error_handler_t::replace);
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
    : path_(std::move(path)) {
  const std::string name = printable(path_.string(), 400);
  file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (file_ < 0) fail(ErrorCode::resource, "cannot write ", name, ": ", std::strerror(errno));
  if (flock(file_, LOCK_EX | LOCK_NB) != 0) {
    close(std::exchange(file_, -1));
    fail(ErrorCode::usage, name,
         " is being written by another process: wait for it, or choose "
         "another output");
  }
  try {
    const bool empty = lseek(file_, 0, SEEK_END) == 0;
    if (how == Open::fresh && !empty)
      fail(ErrorCode::usage, name,
           " holds the trials of an unfinished run: --resume goes on with it, --force begins anew");
    if (how == Open::resume && !empty) in_context(name, [&] { read(settings); });
    if (ftruncate(file_, static_cast<off_t>(whole_)) != 0 || lseek(file_, 0, SEEK_END) < 0)
      fail(ErrorCode::resource, "cannot write ", name, ": ", std::strerror(errno));
    if (whole_ == 0) append(json{{"schema", kSchema}, {"settings", settings}}.dump() + '\n');
  } catch (...) {
    close(file_);
    throw;
  }
}

TrialJournal::~TrialJournal() {
  if (trials_.empty()) remove();  // it would only stand in the way of the next search
  close(file_);
}

void TrialJournal::read(const json& settings) {
  const std::string text = read_text_file(path_, kLargestJournal);
  std::size_t line = 0;
  for (std::size_t end = 0; (end = text.find('\n', whole_)) != std::string::npos;
       whole_ = end + 1) {
    ++line;
    const auto parsed = in_context(str("line ", line), [&] {
      return parse_json(std::string_view(text).substr(whole_, end - whole_), 8);
    });
    if (line > 1) {
      in_context(str("line ", line), [&] { read_trial(parsed); });
      continue;
    }
    if (!parsed.is_object() || parsed.value("schema", json()) != kSchema ||
        !parsed.contains("settings") || !parsed.at("settings").is_object())
      fail(ErrorCode::unreadable, "no journal of trials");
    for (const auto& [key, value] : settings.items())
      if (parsed.at("settings").value(key, json()) != value)
        fail(ErrorCode::usage, "its trials were run with ", key, " ",
             printable(parsed.at("settings").value(key, json()).dump(), 200), ", and now it is ",
             printable(value.dump(), 200), ": --force begins anew");
  }
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

void TrialJournal::append(const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const auto count = write(file_, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0)
      fail(ErrorCode::resource, "cannot write ", printable(path_.string(), 400), ": ",
           std::strerror(errno));
    done += static_cast<std::size_t>(count);
  }
  if (fdatasync(file_) != 0)
    fail(ErrorCode::resource, "cannot write ", printable(path_.string(), 400), ": ",
         std::strerror(errno));
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
        append(lines);
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

void TrialJournal::remove() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace kvatlas::calibrate
