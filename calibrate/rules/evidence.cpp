// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rules/evidence.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "base/text_count.hpp"
#include "calibrate/rules/certainty.hpp"

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
    if (!wanted || std::find(request.without.begin(), request.without.end(), samples[i].task) !=
                       request.without.end())
      continue;
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

std::vector<std::string> Evidence::groups(const std::vector<std::size_t>& positions) const {
  std::vector<std::string> out;
  for (const auto position : positions) out.push_back(sample(position).group);
  return out;
}

std::vector<std::size_t> Evidence::in_hashed_order(
    const std::vector<std::size_t>& positions) const {
  std::vector<std::string> names;
  for (const auto position : positions) names.push_back(sample(position).text_name());
  std::vector<std::size_t> out;
  for (const auto place : hashed_order(names)) out.push_back(positions[place]);
  return out;
}

SampleCount Evidence::count(const std::vector<std::size_t>& positions) const {
  return {positions.size(), count_texts(groups(positions))};
}

std::vector<std::size_t> Evidence::apart_from(const std::vector<std::size_t>& held_out,
                                              const std::vector<std::size_t>& positions) const {
  const std::set<std::size_t> samples(held_out.begin(), held_out.end());
  std::set<std::string> texts;
  for (const auto position : held_out) texts.insert(sample(position).group);
  texts.erase("");  // samples of no known group are texts of their own
  std::vector<std::size_t> out;
  for (const auto position : positions)
    if (!samples.contains(position) && !texts.contains(sample(position).group))
      out.push_back(position);
  return out;
}

Split Evidence::split(const std::vector<std::size_t>& positions) const {
  std::vector<std::vector<std::size_t>> texts;  // the positions of their samples
  std::vector<std::string> tasks;               // of the texts
  std::map<std::string, std::size_t> known;     // places of groups in `texts`
  for (const auto position : positions) {
    const auto& one = sample(position);
    std::size_t place = texts.size();
    if (!one.group.empty()) place = known.emplace(one.group, place).first->second;
    if (place == texts.size()) {
      texts.emplace_back();
      tasks.push_back(one.task);
    }
    texts[place].push_back(position);
  }
  const auto samples_of = [&](const std::vector<std::size_t>& chosen) {
    std::vector<std::size_t> out;
    for (const auto text : chosen) out.insert(out.end(), texts[text].begin(), texts[text].end());
    std::sort(out.begin(), out.end());
    return out;
  };
  const Split by_text = split_samples(tasks, request_.held_out, request_.seed);
  return {samples_of(by_text.choice), samples_of(by_text.held_out)};
}

std::string SampleCount::text() const {
  return count_of(static_cast<std::int64_t>(samples), "sample", "samples") +
         of_texts(samples, texts);
}

void require_samples(const SampleCount& count, const std::string& which, bool force,
                     Calibrated& out) {
  const auto [samples, texts] = count;
  if (texts >= kLeastTexts) return;
  const std::string found = count.text() + " " + which;
  if (!force || samples == 0)
    fail(ErrorCode::usage, found, ": calibration needs ", kLeastTexts, " at least",
         samples > texts ? " that are made of different texts, as --seeds makes them" : "",
         samples > 0 ? " (--force overrides)" : "");
  out.section["forced"] = true;
  out.notes.push_back(str("forced on ", found, ", where ", kLeastTexts, " texts are the least"));
}

void require_score(double full, bool force, Calibrated& out) {
  if (full >= kLeastFullScore) return;
  const std::string found = "the full cache scores " + fixed_text(full, 3) + " on these samples";
  if (!force)
    fail(ErrorCode::usage, found,
         ": below 0.5 what a policy loses drowns in what the model fails anyway; take tasks or "
         "lengths that it can do (--force overrides)");
  out.section["forced"] = true;
  out.notes.push_back("forced although " + found);
}

Provenance provenance(const Evidence& evidence) {
  Provenance out = provenance_of(evidence.profile(), evidence.positions());
  out.seed = evidence.request().seed;
  return out;
}

}  // namespace kvatlas::calibrate
