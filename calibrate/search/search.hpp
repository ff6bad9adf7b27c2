// SPDX-License-Identifier: Apache-2.0
// The search of `kvatlas calibrate auto`: candidates that fit are tried on a few samples, those
// that do well on more, and the finalists on samples that the search has not seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "calibrate/methods/trials.hpp"
#include "calibrate/report/report.hpp"
#include "calibrate/rules/calibrated.hpp"
#include "calibrate/rules/certainty.hpp"
#include "calibrate/search/candidates.hpp"

namespace kvatlas::calibrate {

struct SearchRequest {
  double most_bytes = 0;      // that the cache of one sequence may take
  double max_loss = 1;        // points of the score that may be lost
  std::size_t width = 32;     // the most candidates that are tried
  std::size_t finalists = 4;  // the most that are tried on unseen samples
  bool exhaustive = false;    // try every candidate that fits on every sample of the choice
};

/// One stage, as the document keeps it.
struct SearchStage {
  std::size_t candidates = 0, samples = 0;  // samples seen so far
  std::size_t trials = 0;                   // that were run in this stage
  std::size_t too_lossy = 0, beaten = 0;    // dropped because they are worse for certain
  std::size_t cut = 0;  // dropped for lack of room, though their intervals overlap
};

/// A candidate and what trials found of it.
struct Tried {
  std::size_t candidate = 0;  // index in Candidates::all
  std::size_t samples = 0, texts = 0;
  Estimate score, loss;  // the loss is in points
  double kl = 0;         // in nats a token, each text counting as at most 1: the mean
  std::optional<Measured> measured = {};  // on unseen samples; only finalists have it
  /// What unseen samples say of the limit, in points, as sure as if it were said of all finalists
  /// together; only finalists that were tried on unseen samples have it.
  std::optional<LossVerdict> certificate = {};
  std::size_t unseen_texts = 0;
};

struct SearchResult {
  std::vector<Tried> tried;            // the best first
  std::vector<std::size_t> finalists;  // indices in `tried`
  std::size_t chosen = 0;              // index in `tried`
  bool met = false;                    // the chosen policy keeps to the bytes and the loss
  bool certified = false;              // and that holds for unseen texts, with 95 % certainty
  bool held_out = false;               // finalists were tried on unseen samples
  double full_score = 0;               // on the search's samples
  std::size_t fitting = 0;             // candidates within the bytes
  std::size_t passed_over = 0;  // finalists before the chosen one, of which unseen texts said less
  std::vector<SearchStage> stages;
  std::size_t final_trials = 0;
  /// Rank correlation of the attention lost with what the first stage measured; NaN if there are
  /// too few candidates to say.
  double proxy_loss = 0, proxy_kl = 0;
  std::vector<std::string> notes;
};

/// Points lost on the samples of the search or on unseen ones, whichever is more. Infinite if the
/// unseen ones have no score.
double loss_of(const Tried& tried);

/// Is told what the search does, one line at a time.
using SearchSays = std::function<void(const std::string& line)>;

/// The full cache must score well on the samples of the choice (Verdict::require_answers).
/// Error(usage) if no candidate fits the bytes; it says how far the nearest is.
SearchResult search(const Evidence& evidence, const Split& split, const Candidates& candidates,
                    const SearchRequest& request, const RunTrials& run, const SearchSays& says);

/// The tried policies that no other beats in both bytes and loss, and the chosen one, each complete
/// enough to become a document.
nlohmann::json front_json(const SearchResult& result, const Candidates& candidates,
                          const Evidence& evidence, const std::vector<std::size_t>& samples);
nlohmann::json search_json(const SearchResult& result, const SearchRequest& request);
std::vector<Table> search_tables(const SearchResult& result, const Candidates& candidates);

/// Whether the chosen policy's loss is certified, or what is missing to certify it.
std::string certificate_text(const SearchResult& result, const SearchRequest& request);

/// Sentences that say which demands could be relaxed, if nothing was found.
std::vector<std::string> advice(const SearchResult& result, const Candidates& candidates,
                                const SearchRequest& request);

}  // namespace kvatlas::calibrate
