// SPDX-License-Identifier: Apache-2.0
#include "calibrate/search/trial_journal.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json_text.hpp"
#include "calibrate/rules/policy_reports.hpp"
#include "calibrate/search/candidates.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

constexpr const char* kSchema = "kvatlas.trials/1";
constexpr std::size_t kLargestJournal = std::size_t{1} << 30;

std::string hash_of(const Policy& policy) {
  Fnv1a hash;
  hash.add(candidate_key(policy));
  // A runtime's behaviour is no part of a document's sections.
  hash.add(std::string_view(policy.rolling ? "rolling" : ""));
  hash.add(std::string_view(policy.masks_prefill ? "masks" : ""));
  if (policy.block_tokens > 1) hash.add(str(policy.block_tokens));
  return hash.hex();
}

json line_of(const std::string& policy, std::size_t sample, const Trial& trial) {
  return {{"policy", policy},
          {"sample", sample},
          {"score", number_json(trial.score)},
          {"kl", number_json(trial.kl)},
          {"tokens_kept", trial.tokens_kept},
          {"kept_share", trial.kept_share}};
}

}  // namespace

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
           " holds the trials of an unfinished search: --resume goes on with it, --force begins "
           "anew");
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
  Trial trial;
  trial.score = real("score");
  trial.kl = real("kl");
  trial.tokens_kept = real("tokens_kept");
  trial.kept_share = real("kept_share");
  trials_[{line.at("policy"), line.at("sample")}] = trial;
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
                                      std::span<const std::size_t> samples) {
    std::vector<std::string> hashes;
    for (const auto& policy : policies) hashes.push_back(hash_of(policy));
    std::vector<std::vector<Trial>> out(policies.size());
    // A sample at a time: what is done of it is safe before the next begins.
    for (const auto sample : samples) {
      std::vector<Policy> unknown;
      std::vector<std::string> names;
      for (std::size_t i = 0; i < policies.size(); ++i)
        if (!trials_.contains({hashes[i], sample}) &&
            std::find(names.begin(), names.end(), hashes[i]) == names.end()) {
          unknown.push_back(policies[i]);
          names.push_back(hashes[i]);
        }
      if (!unknown.empty()) {
        const std::size_t one[] = {sample};
        const auto found = run(unknown, one);
        std::string lines;
        for (std::size_t i = 0; i < unknown.size(); ++i) {
          const Trial& trial = found.at(i).at(0);
          lines += line_of(names[i], sample, trial).dump() + '\n';
          trials_[{names[i], sample}] = trial;
        }
        append(lines);
      }
      for (std::size_t i = 0; i < policies.size(); ++i)
        out[i].push_back(trials_.at({hashes[i], sample}));
    }
    return out;
  };
}

void TrialJournal::remove() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace kvatlas::calibrate
