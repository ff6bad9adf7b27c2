// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/evidence.hpp"

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/plain_text.hpp"

namespace kvatlas::calibrate {
namespace {

/// "needle:keys=4" is asked for by its own name or by "needle".
bool is_of_task(const std::string& task, const std::string& wanted) {
  return task == wanted || task.substr(0, task.find(':')) == wanted;
}

}  // namespace

Evidence::Evidence(const profile::Reader& profile, const Request& request)
    : profile_(&profile), request_(request) {
  cache_shape(profile.header());
  const auto& samples = profile.samples();
  std::set<std::string> known, found;
  std::set<std::int64_t> lengths;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    known.insert(quoted(samples[i].task));
    bool wanted = request.tasks.empty();
    for (const auto& task : request.tasks)
      if (is_of_task(samples[i].task, task)) {
        wanted = true;
        found.insert(task);
      }
    if (!wanted) continue;
    positions_.push_back(i);
    lengths.insert(samples[i].length > 0 ? samples[i].length : samples[i].n_tokens);
  }
  for (const auto& task : request.tasks)
    if (!found.count(task))
      fail(ErrorCode::usage, "the profile has no sample of task ", quoted(task), "; it has ",
           join(known));
  if (positions_.empty()) fail(ErrorCode::usage, "the profile has no samples");
  lengths_ = request.lengths;
  if (lengths_.empty()) {
    lengths_.assign(lengths.begin(), lengths.end());
    // Prompts of all lengths, as data sets have them: the quartiles stand for them.
    if (const std::size_t n = lengths_.size(); n > 6)
      lengths_ = {lengths_[n / 4], lengths_[n / 2], lengths_[3 * n / 4], lengths_.back()};
  }
  std::sort(lengths_.begin(), lengths_.end());
}

std::vector<std::size_t> Evidence::answered(const std::vector<std::size_t>& positions) const {
  std::vector<std::size_t> out;
  for (const auto position : positions)
    if (!sample(position).answers.empty()) out.push_back(position);
  return out;
}

Split Evidence::split(const std::vector<std::size_t>& positions) const {
  std::vector<std::string> tasks;
  for (const auto position : positions) tasks.push_back(sample(position).task);
  Split split = split_samples(tasks, request_.held_out, request_.seed);
  for (auto* part : {&split.choice, &split.held_out})
    for (auto& index : *part) index = positions[index];
  return split;
}

void require_samples(std::size_t count, const std::string& which, bool force, Calibrated& out) {
  if (count >= kLeastSamples) return;
  const std::string found = str(count, count == 1 ? " sample " : " samples ", which);
  if (!force || count == 0)
    fail(ErrorCode::usage, found, ": calibration needs ", kLeastSamples, " at least",
         count > 0 ? " (--force overrides, and the document says so)" : "");
  out.section["forced"] = true;
  out.notes.push_back(str("forced on ", found, ", where ", kLeastSamples, " are the least"));
}

void require_score(double full, bool force, Calibrated& out) {
  if (full >= kLeastFullScore) return;
  const std::string found = "the full cache scores " + fixed_text(full, 3) + " on these samples";
  if (!force)
    fail(ErrorCode::usage, found,
         ": below 0.5 what a policy loses drowns in what the model fails anyway; take tasks or "
         "lengths that it can do (--force overrides, and the document says so)");
  out.section["forced"] = true;
  out.notes.push_back("forced although " + found);
}

Provenance provenance(const Evidence& evidence) {
  Provenance out = provenance_of(evidence.profile(), evidence.positions());
  out.seed = evidence.request().seed;
  return out;
}

}  // namespace kvatlas::calibrate
