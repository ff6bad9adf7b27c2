// SPDX-License-Identifier: Apache-2.0
#include "calibrate/search/search.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "base/text_count.hpp"
#include "calibrate/methods/judging.hpp"
#include "calibrate/rules/certainty.hpp"

namespace kvatlas::calibrate {
namespace {

/// Samples in an order in which every beginning has as many texts as it can, and its share of each
/// task.
std::vector<std::size_t> interleaved(const Evidence& evidence, std::vector<std::size_t> samples) {
  Random random(evidence.request().seed, "search");
  random.shuffle(samples);
  struct Place {
    std::size_t of_text, of_task, position;  // how many of its text and of its task came before
  };
  std::map<std::string, std::size_t> of_text, of_task;
  std::vector<Place> order;
  for (const auto position : samples) {
    const auto& sample = evidence.sample(position);
    const std::size_t before = sample.group.empty() ? 0 : of_text[sample.group]++;
    order.push_back({before, of_task[sample.task]++, position});
  }
  std::stable_sort(order.begin(), order.end(), [](const Place& a, const Place& b) {
    return std::tie(a.of_text, a.of_task) < std::tie(b.of_text, b.of_task);
  });
  std::vector<std::size_t> out;
  for (const auto& place : order) out.push_back(place.position);
  return out;
}

class StagedSearch {
 public:
  StagedSearch(const Evidence& evidence, const Split& split, const Candidates& candidates,
               const SearchRequest& request, const RunTrials& run, const SearchSays& says)
      : evidence_(evidence),
        split_(split),
        candidates_(candidates),
        request_(request),
        run_(run),
        says_(says),
        samples_(interleaved(evidence, split.choice)) {}

  SearchResult result() {
    rank_by_proxy();
    run_stages();
    judge_finalists();
    choose();
    return std::move(out_);
  }

 private:
  /// What trials said so far.
  struct Standing {
    std::size_t candidate = 0;
    std::vector<double> losses, scores, kls;
    Estimate loss;   // with its interval at 95 %
    Estimate joint;  // with one that holds for all policies and stages together
    double kl = 0;
  };

  const Candidate& of(const Standing& one) const { return candidates_.all[one.candidate]; }

  void rank_by_proxy();
  void run_stages();
  void try_on(std::size_t first, std::size_t end, SearchStage& stage);
  void drop(std::size_t keep, bool in_the_end, SearchStage& stage);
  void correlate();
  void retire(const Standing& one);
  void judge_finalists();
  void choose();

  /// The one that is nearer to the full model by KL, which tells policies apart on far fewer texts
  /// than scores do. In the end those come first whose mean loss keeps to the limit, and of those
  /// that do not the one that loses least.
  bool better(const Standing& a, const Standing& b, bool in_the_end) const {
    const auto excess = [&](const Standing& one) {
      return in_the_end ? std::max(0.0, one.loss.mean - request_.max_loss) : 0;
    };
    return std::pair(excess(a), a.kl) < std::pair(excess(b), b.kl);
  }

  const Evidence& evidence_;
  const Split& split_;
  const Candidates& candidates_;
  const SearchRequest& request_;
  const RunTrials& run_;
  const SearchSays& says_;
  std::vector<std::size_t> samples_;
  std::vector<Standing> standing_;
  std::vector<double> full_scores_;
  std::vector<std::string> groups_;  // of the samples that have a score
  double joint_confidence_ = kConfidence;
  SearchResult out_;
};

/// The candidates that go into trials: of every family its best by attention lost, in turns, so
/// that a proxy that favours one family does not shut out the others; and for a quarter of the
/// places those that lose least for their bytes, down to the smallest, so that the front reaches
/// beyond what was asked for.
void StagedSearch::rank_by_proxy() {
  std::map<std::string, std::vector<std::size_t>> families;
  std::vector<std::size_t> fitting;
  std::vector<double> bytes, kept;
  double least = INFINITY;
  for (std::size_t i = 0; i < candidates_.all.size(); ++i) {
    const Candidate& one = candidates_.all[i];
    least = std::min(least, one.bytes);
    if (one.bytes > request_.most_bytes) continue;
    families[one.family].push_back(i);
    fitting.push_back(i);
    bytes.push_back(one.bytes);
    kept.push_back(-one.lost);
  }
  out_.fitting = fitting.size();
  if (fitting.empty())
    fail(ErrorCode::usage, "none of the ", candidates_.all.size(),
         " policies that the profile has statistics of fits ",
         bytes_str(std::llround(request_.most_bytes)), " a sequence; the smallest takes ",
         bytes_str(std::llround(least)),
         ": give more memory or a smaller batch or context, or profile smaller budgets "
         "(kvatlas profile --budgets, --recent, --lags)");
  const auto loses_less = [&](std::size_t a, std::size_t b) {
    return candidates_.all[a].lost < candidates_.all[b].lost;
  };
  std::vector<std::vector<std::size_t>> in_turns;  // the family of the best candidate first
  for (auto& [family, members] : families) {
    std::stable_sort(members.begin(), members.end(), loses_less);
    in_turns.push_back(std::move(members));
  }
  std::stable_sort(in_turns.begin(), in_turns.end(),
                   [&](const auto& a, const auto& b) { return loses_less(a[0], b[0]); });
  const std::size_t width =
      request_.exhaustive ? fitting.size() : std::min(request_.width, fitting.size());
  std::set<std::size_t> taken;
  const auto take = [&](std::size_t candidate) {
    if (taken.size() == width || !taken.insert(candidate).second) return;
    standing_.emplace_back();
    standing_.back().candidate = candidate;
  };
  const auto front = pareto_front(bytes, kept);
  const std::size_t places = std::min(front.size(), width / 4);
  for (std::size_t i = 0; i < places; ++i) take(fitting[front[i * front.size() / places]]);
  for (std::size_t turn = 0; taken.size() < width; ++turn)
    for (const auto& members : in_turns)
      if (turn < members.size()) take(members[turn]);
  says_(str(candidates_.all.size(), " policies, of which ", out_.fitting, " fit; ",
            standing_.size(),
            request_.exhaustive ? " are tried"
                                : " of them are tried, chosen by the attention that they lose in "
                                  "the profile"));
}

void StagedSearch::try_on(std::size_t first, std::size_t end, SearchStage& stage) {
  std::vector<Policy> policies = {{.name = "full", .parts = {}}};
  for (const auto& one : standing_) policies.push_back(of(one).real);
  while (first < end) {
    const auto together = tried_together(std::span(samples_).first(end), first);
    first += together.size();
    says_(str("stage ", out_.stages.size() + 1, ": ", standing_.size(), " policies, up to sample ",
              first, " of ", end));
    const auto trials = run_(policies, together, Measure::both);
    stage.trials += standing_.size() * together.size();
    for (std::size_t s = 0; s < together.size(); ++s) {
      const double full = trials.at(0).at(s).score;
      if (std::isnan(full)) continue;
      full_scores_.push_back(full);
      groups_.push_back(evidence_.sample(together[s]).group);
      for (std::size_t i = 0; i < standing_.size(); ++i) {
        const Trial& trial = trials.at(i + 1).at(s);
        standing_[i].losses.push_back(100 * (full - trial.score));
        standing_[i].scores.push_back(trial.score);
        standing_[i].kls.push_back(capped_divergence(divergence_of(trial)));
      }
    }
  }
  for (auto& one : standing_) {
    const auto of_texts = group_means(one.losses, groups_);
    one.loss = betting_mean(of_texts, kPointRange);
    one.joint = betting_mean(of_texts, kPointRange, joint_confidence_);
    one.kl = mean_of(group_means(one.kls, groups_));  // of capped ones
  }
}

void StagedSearch::retire(const Standing& one) {
  Tried tried;
  tried.candidate = one.candidate;
  tried.samples = one.losses.size();
  tried.texts = count_texts(groups_);
  tried.score = score_mean(group_means(one.scores, groups_));
  tried.loss = one.loss;
  tried.kl = one.kl;
  out_.tried.push_back(std::move(tried));
}

/// What is worse for sure goes, and then what there is no room for.
void StagedSearch::drop(std::size_t keep, bool in_the_end, SearchStage& stage) {
  std::stable_sort(standing_.begin(), standing_.end(),
                   [&](const Standing& a, const Standing& b) { return better(a, b, in_the_end); });
  double best = INFINITY;
  for (const auto& one : standing_) best = std::min(best, one.joint.high);
  std::vector<Standing> left;
  for (auto& one : standing_) {
    const bool lossy = one.joint.low > request_.max_loss, beaten = one.joint.low > best;
    // The best few go on whatever they lose: they say how near one can get.
    if (left.size() >= request_.finalists && (lossy || beaten)) {
      ++(lossy ? stage.too_lossy : stage.beaten);
      retire(one);
    } else if (left.size() >= keep) {
      ++stage.cut;
      retire(one);
    } else {
      left.push_back(std::move(one));
    }
  }
  standing_ = std::move(left);
}

void StagedSearch::correlate() {
  std::vector<double> lost, loss, kl;
  for (const auto& one : standing_) {
    lost.push_back(of(one).lost);
    loss.push_back(one.loss.mean);
    kl.push_back(one.kl);
  }
  out_.proxy_loss = rank_correlation(lost, loss);
  out_.proxy_kl = rank_correlation(lost, kl);
}

void StagedSearch::run_stages() {
  const std::size_t all = samples_.size();
  std::size_t seen = 0;
  // 1/4, 1/2 and all of the samples; of few, as many stages as there is sense in.
  std::vector<std::size_t> ends = {all};
  if (!request_.exhaustive)
    for (std::size_t end = all / 2; end >= 3 && ends.size() < 3; end /= 2)
      ends.insert(ends.begin(), end);
  joint_confidence_ = jointly_sure(standing_.size() * ends.size());
  for (std::size_t i = 0; i < ends.size(); ++i) {
    SearchStage stage;
    stage.candidates = standing_.size();
    try_on(seen, ends[i], stage);
    if (full_scores_.empty() && i + 1 < ends.size()) {  // no answers yet
      seen = ends[i];
      out_.stages.push_back(stage);
      continue;
    }
    seen = ends[i];
    stage.samples = seen;
    if (i == 0) correlate();
    const bool last = i + 1 == ends.size();
    drop(last ? request_.finalists : std::max(standing_.size() / 2, request_.finalists), last,
         stage);
    out_.stages.push_back(stage);
  }
  out_.full_score = mean_of(group_means(full_scores_, groups_));
  const std::size_t retired = out_.tried.size();
  for (const auto& one : standing_) retire(one);
  std::rotate(out_.tried.begin(), out_.tried.begin() + static_cast<std::ptrdiff_t>(retired),
              out_.tried.end());
  out_.finalists.resize(standing_.size());
  std::iota(out_.finalists.begin(), out_.finalists.end(), std::size_t{0});
}

void StagedSearch::judge_finalists() {
  out_.held_out = !split_.held_out.empty();
  const auto& samples = out_.held_out ? split_.held_out : split_.choice;
  std::vector<Policy> policies;
  for (const auto i : out_.finalists)
    policies.push_back(candidates_.all[out_.tried[i].candidate].real);
  says_(str("finalists: ", count_of(std::ssize(policies), "policy", "policies"), " on ",
            count_of(std::ssize(samples), "sample", "samples"),
            out_.held_out ? " that the search did not see" : ""));
  const Verdict verdict(evidence_, run_, policies, samples, Measure::both);
  out_.final_trials = policies.size() * samples.size();
  for (std::size_t i = 0; i < policies.size(); ++i) {
    Tried& tried = out_.tried[out_.finalists[i]];
    Measured& measured = tried.measured.emplace(verdict.measured(i, out_.held_out));
    if (out_.held_out && !verdict.samples().empty()) {
      std::vector<double> losses;
      for (std::size_t s = 0; s < verdict.samples().size(); ++s)
        losses.push_back(100 * (verdict.full()[s] - verdict.scores(i)[s]));
      tried.certificate = judge_losses(group_means(losses, verdict.groups()), kPointRange,
                                       request_.max_loss, jointly_sure(policies.size()));
      tried.unseen_texts = verdict.count().texts;
    }
    std::vector<double> kl;
    for (const auto& trial : verdict.trials(i)) kl.push_back(divergence_of(trial));
    measured.kl = divergence_over(kl, verdict.groups(), verdict.tasks());
  }
  Calibrated notes;
  note_precision(evidence_, split_, verdict, 0, notes);
  out_.notes.insert(out_.notes.end(), notes.notes.begin(), notes.notes.end());
}

/// The search's own order: the first that unseen samples certify, else the first that they do not
/// speak against. If all lose too much, the one that loses least, and the result says that nothing
/// was met.
void StagedSearch::choose() {
  const auto certified = [](const Tried& tried) {
    return tried.certificate && tried.certificate->kind == LossVerdict::Kind::passed;
  };
  for (const bool to_certify : {true, false})
    for (std::size_t i = 0; i < out_.finalists.size(); ++i) {
      const Tried& tried = out_.tried[out_.finalists[i]];
      if (to_certify ? !certified(tried) : loss_of(tried) > request_.max_loss) continue;
      out_.chosen = out_.finalists[i];
      out_.passed_over = i;
      out_.met = true;
      out_.certified = to_certify;
      return;
    }
  out_.chosen = *std::min_element(out_.finalists.begin(), out_.finalists.end(),
                                  [&](std::size_t a, std::size_t b) {
                                    return loss_of(out_.tried[a]) < loss_of(out_.tried[b]);
                                  });
}

}  // namespace

double loss_of(const Tried& tried) {
  if (!tried.measured) return tried.loss.mean;
  const double unseen = tried.measured->loss.mean;
  return std::isnan(unseen) ? INFINITY : std::max(tried.loss.mean, 100 * unseen);
}

SearchResult search(const Evidence& evidence, const Split& split, const Candidates& candidates,
                    const SearchRequest& request, const RunTrials& run, const SearchSays& says) {
  return StagedSearch(evidence, split, candidates, request, run, says).result();
}

}  // namespace kvatlas::calibrate
