// SPDX-License-Identifier: Apache-2.0
#include "calibrate/methods/judging.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.hpp"

namespace kvatlas::calibrate {

using nlohmann::json;

Verdict::Verdict(const Evidence& evidence, const RunTrials& run, std::span<const Policy> policies,
                 const std::vector<std::size_t>& samples)
    : evidence_(&evidence) {
  std::vector<Policy> all = {Policy{.name = "full", .parts = {}}};
  all.insert(all.end(), policies.begin(), policies.end());
  const auto found = run(all, samples);
  const auto complete = [&](const auto& of_policy) { return of_policy.size() == samples.size(); };
  if (found.size() != all.size() || !std::all_of(found.begin(), found.end(), complete))
    fail(ErrorCode::internal, "trials of ", all.size(), " policies on ", samples.size(),
         " samples came back in another number");
  trials_.resize(policies.size());
  scores_.resize(policies.size());
  for (std::size_t s = 0; s < samples.size(); ++s) {
    if (std::isnan(found[0][s].score)) continue;
    samples_.push_back(samples[s]);
    full_.push_back(found[0][s].score);
    for (std::size_t p = 0; p < policies.size(); ++p) {
      trials_[p].push_back(found[p + 1][s]);
      scores_[p].push_back(found[p + 1][s].score);
    }
  }
}

Estimate Verdict::score(std::size_t policy) const {
  return bootstrap_mean(scores_[policy], evidence_->request().seed);
}

Estimate Verdict::full_score() const { return bootstrap_mean(full_, evidence_->request().seed); }

json Verdict::measured(std::size_t policy, bool held_out) const {
  const auto judge = [&](const std::vector<std::size_t>& which) {
    std::vector<double> full, score, loss, kept;
    for (const auto s : which) {
      full.push_back(full_[s]);
      score.push_back(scores_[policy][s]);
      loss.push_back(full_[s] - scores_[policy][s]);
      kept.push_back(trials_[policy][s].kept_share);
    }
    const std::uint64_t seed = evidence_->request().seed;
    return json{{"samples", which.size()},
                {"full", estimate_json(bootstrap_mean(full, seed))},
                {"score", estimate_json(bootstrap_mean(score, seed))},
                {"loss", estimate_json(bootstrap_mean(loss, seed))},
                {"kept_share", number_json(mean_of(kept))}};
  };
  std::vector<std::size_t> all;
  std::map<std::string, std::vector<std::size_t>> by_task;
  for (std::size_t s = 0; s < samples_.size(); ++s) {
    all.push_back(s);
    by_task[evidence_->sample(samples_[s]).task].push_back(s);
  }
  json out = judge(all);
  out["held_out"] = held_out;
  out["tasks"] = json::object();
  for (const auto& [task, members] : by_task) out["tasks"][task] = judge(members);
  return out;
}

Table measured_table(const std::string& title, const json& measured) {
  Table table{title, {"task", "samples", "full", "score", "loss", "KV kept"}, {}};
  const auto number = [](const json& value) {
    return value.is_number() ? value.get<double>() : std::nan("");
  };
  const auto estimate = [&](const json& of) {
    return estimate_text({number(of.at("mean")), number(of.at("low")), number(of.at("high"))});
  };
  const auto add = [&](const std::string& name, const json& of) {
    table.rows.push_back({name, str(of.at("samples").get<std::int64_t>()), estimate(of.at("full")),
                          estimate(of.at("score")), estimate(of.at("loss")),
                          percent_text(number(of.at("kept_share")))});
  };
  const json& tasks = measured.at("tasks");
  if (tasks.size() > 1)
    for (const auto& [task, of] : tasks.items()) add(printable(task), of);
  add(tasks.size() == 1 ? printable(tasks.begin().key()) : "all", measured);
  return table;
}

void note_precision(const Split& split, const std::vector<double>& scores, Calibrated& out) {
  if (split.held_out.empty())
    out.notes.push_back(str("nothing was held out of ", split.choice.size(),
                            " samples: the loss is measured on those that the choice was made on, "
                            "and so too small (",
                            kLeastToHoldOut,
                            " samples or more, with --held-out above 0, are split)"));
  // Scores that are all alike say little of how they would spread: one sample in twenty may differ.
  const double deviation = std::max(deviation_of(scores), std::sqrt(0.05 * 0.95));
  const std::int64_t needed = samples_needed(deviation);
  if (static_cast<std::int64_t>(scores.size()) < needed)
    out.notes.push_back(str("the loss is measured on ", scores.size(), " samples; ", needed,
                            " make its interval about +-5 points"));
}

}  // namespace kvatlas::calibrate
