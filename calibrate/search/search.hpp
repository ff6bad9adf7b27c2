// SPDX-License-Identifier: Apache-2.0
// The search of `kvatlas calibrate auto`: candidates that fit are tried on few samples, those that
// stand on more, and the finalists on samples that the search never saw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "calibrate/methods/trials.hpp"
#include "calibrate/rules/calibrated.hpp"
#include "calibrate/search/candidates.hpp"

namespace kvatlas::calibrate {

struct SearchRequest {
  double most_bytes = 0;      // that a sequence's cache may take
  double max_loss = 1;        // points of the score
  std::size_t width = 32;     // candidates that are tried at all
  std::size_t finalists = 4;  // tried on unseen samples
  bool exhaustive = false;    // every candidate that fits, on every sample of the choice
};

/// One stage, as the document keeps it.
struct SearchStage {
  std::size_t candidates = 0, samples = 0;  // samples seen so far
  std::size_t trials = 0;                   // run in this stage
  std::size_t too_lossy = 0, beaten = 0;    // dropped for sure
  std::size_t cut = 0;                      // dropped for room, their intervals overlapping
};

/// A candidate with what trials said of it, on the search's samples and on unseen ones.
struct Tried {
  std::size_t candidate = 0;  // of Candidates::all
  std::size_t samples = 0;
  Estimate score, loss;     // loss in points, with the width that so few samples leave
  double kl = 0;            // the mean, nats a token
  nlohmann::json measured;  // on unseen samples, of finalists
};

struct SearchResult {
  std::vector<Tried> tried;            // all that were, the best first
  std::vector<std::size_t> finalists;  // of `tried`
  std::size_t chosen = 0;              // of `tried`
  bool met = false;                    // bytes and loss
  bool held_out = false;               // finalists saw samples of their own
  double full_score = 0;               // on the search's samples
  std::size_t fitting = 0;             // candidates within the bytes
  std::size_t passed_over = 0;  // finalists before the chosen one that lost too much when unseen
  std::vector<SearchStage> stages;
  std::size_t final_trials = 0;
  /// Spearman's, of the attention lost against what the first stage measured; NaN: cannot be said.
  double proxy_loss = 0, proxy_kl = 0;
  std::vector<std::string> notes;
};

/// Points lost: as the search saw it or as unseen samples say, whichever is more. Infinite where
/// these have no score.
double loss_of(const Tried& tried);

/// What is going on, a line each.
using SearchSays = std::function<void(const std::string& line)>;

/// Error(usage) for too few samples or too poor a full score (--force overrides), and where no
/// candidate fits the bytes, saying how far the nearest is.
SearchResult search(const Evidence& evidence, const Split& split, const Candidates& candidates,
                    const SearchRequest& request, const RunTrials& run, const SearchSays& says);

/// Of what was tried: the policies that no other beats in bytes and loss, the chosen one among
/// them, each complete enough to become a document.
nlohmann::json front_json(const SearchResult& result, const Candidates& candidates,
                          const Evidence& evidence, const std::vector<std::size_t>& samples);
nlohmann::json search_json(const SearchResult& result, const SearchRequest& request);
std::vector<Table> search_tables(const SearchResult& result, const Candidates& candidates);

/// What can be relaxed, where nothing was found: a sentence each.
std::vector<std::string> advice(const SearchResult& result, const Candidates& candidates,
                                const SearchRequest& request);

}  // namespace kvatlas::calibrate
