// SPDX-License-Identifier: Apache-2.0
// What a search found, for documents and for people.
#include <algorithm>
#include <cmath>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/text_count.hpp"
#include "calibrate/search/search.hpp"

namespace kvatlas::calibrate {
namespace {

using nlohmann::json;

std::string bytes_text(double bytes) { return bytes_str(std::llround(bytes)); }

Estimate in_points(const Estimate& share) {
  return {100 * share.mean, 100 * share.low, 100 * share.high};
}
Estimate as_share(const Estimate& points) {
  return {points.mean / 100, points.low / 100, points.high / 100};
}

/// By the upper end of the losses, so that what few samples say counts for less.
std::vector<std::size_t> front_of(const SearchResult& result, const Candidates& candidates) {
  std::vector<double> bytes, gain;
  for (const auto& tried : result.tried) {
    bytes.push_back(candidates.all[tried.candidate].bytes);
    // Of equal losses the one nearer to the full model is the better one.
    gain.push_back(-tried.loss.high - 1e-6 * tried.kl);
  }
  std::vector<std::size_t> front = pareto_front(bytes, gain);
  if (std::find(front.begin(), front.end(), result.chosen) == front.end())
    front.push_back(result.chosen);
  return front;
}

json certificate_json(const SearchResult& result) {
  const Tried& chosen = result.tried[result.chosen];
  json out = {{"certified", result.certified}, {"unseen_texts", chosen.unseen_texts}};
  if (!chosen.certificate) return out;
  out["loss"] = estimate_json(as_share(chosen.certificate->loss));
  const auto more = chosen.certificate->more;
  out["more_texts"] = more ? json(*more) : json(nullptr);
  return out;
}

}  // namespace

json front_json(const SearchResult& result, const Candidates& candidates, const Evidence& evidence,
                const std::vector<std::size_t>& samples) {
  json front = json::array();
  for (const auto i : front_of(result, candidates)) {
    const Tried& tried = result.tried[i];
    const Candidate& candidate = candidates.all[tried.candidate];
    const Document document = document_of(candidate, evidence, samples);
    front.push_back(report_json(FrontEntry{.policy = candidate.policy.name,
                                           .family = candidate.family,
                                           .bytes = candidate.bytes,
                                           .kept_share = candidate.kept_share,
                                           .attention_lost = candidate.lost,
                                           .samples = static_cast<std::int64_t>(tried.samples),
                                           .texts = static_cast<std::int64_t>(tried.texts),
                                           .score = tried.score,
                                           .loss = as_share(tried.loss),
                                           .capped_kl = tried.kl,
                                           .measured = tried.measured,
                                           .chosen = i == result.chosen,
                                           .sections = document.sections,
                                           .compose = document.compose,
                                           .kv_bits = document.kv_bits}));
  }
  return front;
}

json search_json(const SearchResult& result, const SearchRequest& request) {
  json stages = json::array();
  std::size_t trials = result.final_trials;
  for (const auto& stage : result.stages) {
    stages.push_back({{"candidates", stage.candidates},
                      {"samples", stage.samples},
                      {"trials", stage.trials},
                      {"too_lossy", stage.too_lossy},
                      {"beaten", stage.beaten},
                      {"cut", stage.cut}});
    trials += stage.trials;
  }
  json out = report_json(
      SearchReport{std::floor(request.most_bytes), request.max_loss, result.full_score});
  out.update(
      {{"exhaustive", request.exhaustive},
       {"candidates_that_fit", result.fitting},
       {"stages", stages},
       {"finalists", result.finalists.size()},
       {"passed_over", result.passed_over},
       {"certificate", certificate_json(result)},
       {"trials", trials},
       {"proxy_rank_correlation",
        {{"loss", number_json(result.proxy_loss)}, {"capped_kl", number_json(result.proxy_kl)}}},
       {"met", result.met}});
  return out;
}

std::vector<Table> search_tables(const SearchResult& result, const Candidates& candidates) {
  Table stages{"The search",
               {"stage", "policies", "samples", "trials", "too lossy", "beaten", "cut for room"},
               {}};
  for (std::size_t i = 0; i < result.stages.size(); ++i) {
    const auto& stage = result.stages[i];
    stages.rows.push_back({str(i + 1), str(stage.candidates), str(stage.samples), str(stage.trials),
                           str(stage.too_lossy), str(stage.beaten), str(stage.cut)});
  }
  stages.rows.push_back({"finalists", str(result.finalists.size()),
                         result.held_out ? "unseen" : "the same", str(result.final_trials), "", "",
                         ""});
  const std::string where = result.held_out ? "unseen samples" : "the search's samples";
  Table finalists{str("The finalists, losses in points on ", where),
                  {"policy", "a sequence", "of full", "loss", "KL: median (nats)", "in the search"},
                  {}};
  for (const auto i : result.finalists) {
    const Tried& tried = result.tried[i];
    const Candidate& candidate = candidates.all[tried.candidate];
    finalists.rows.push_back(
        {candidate.policy.name + (i == result.chosen ? " *" : ""), bytes_text(candidate.bytes),
         percent_text(candidate.kept_share), estimate_text(in_points(tried.measured->loss), 1),
         quantile_text(tried.measured->kl.median), estimate_text(tried.loss, 1)});
  }
  Table front{"The front: least loss for the bytes, as the search measured it",
              {"policy", "a sequence", "of full", "samples", "loss (points)", "KL capped at 1"},
              {}};
  for (const auto i : front_of(result, candidates)) {
    const Tried& tried = result.tried[i];
    const Candidate& candidate = candidates.all[tried.candidate];
    front.rows.push_back({candidate.policy.name + (i == result.chosen ? " *" : ""),
                          bytes_text(candidate.bytes), percent_text(candidate.kept_share),
                          str(tried.samples, of_texts(tried.samples, tried.texts)),
                          estimate_text(tried.loss, 1), fixed_text(tried.kl, 4)});
  }
  return {stages, front, finalists};
}

std::string certificate_text(const SearchResult& result, const SearchRequest& request) {
  const Tried& chosen = result.tried[result.chosen];
  const std::string limit = str("a loss of at most ", fixed_text(request.max_loss, 1), " points");
  if (!chosen.certificate)
    return str("not certified for ", limit,
               ": no held-out text has a score; texts are held out of ", kLeastToHoldOut,
               " or more, as --held-out says");
  const LossVerdict& verdict = *chosen.certificate;
  const std::string bound =
      str(chosen.unseen_texts, " unseen texts say, with 95 % certainty for all ",
          result.finalists.size(), " finalists together, that it loses at most ",
          fixed_text(verdict.loss.high, 1), " points");
  if (result.certified) return str("certified for ", limit, ": ", bound);
  std::string out = str("not certified for ", limit, ": ", bound);
  out += verdict.more ? str("; about ", *verdict.more, " more texts like these would decide")
                      : str("; more than 100000 further texts would be needed to decide");
  return out + ". Give more --seeds, or let 'kvatlas check' go on with fresh texts";
}

std::vector<std::string> advice(const SearchResult& result, const Candidates& candidates,
                                const SearchRequest& request) {
  if (result.met) return {};
  const Tried& nearest = result.tried[result.chosen];
  const Candidate& candidate = candidates.all[nearest.candidate];
  std::vector<std::string> out;
  out.push_back(str("nothing that fits loses at most ", fixed_text(request.max_loss, 1),
                    " points: the nearest is ", candidate.policy.name, ", which loses ",
                    fixed_text(loss_of(nearest), 1), " at ", percent_text(candidate.kept_share),
                    " of the cache"));
  out.push_back(str("--max-loss ", fixed_text(std::ceil(10 * loss_of(nearest)) / 10, 1),
                    " would take it; so would more memory, a smaller batch or a shorter context "
                    "(less --kv-saving) find policies that keep more"));
  return out;
}

}  // namespace kvatlas::calibrate
