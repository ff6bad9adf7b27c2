// SPDX-License-Identifier: Apache-2.0
// What a search for the best policy chooses from: every policy that a profile has the statistics
// of, with the bytes that it takes and the attention that it loses.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/cache_bytes.hpp"
#include "calibrate/rules/evidence.hpp"

namespace kvatlas::calibrate {

// What is searched beside the methods of calibration.
inline constexpr const char* kFourBits = "kv4";     // 4 bits, alone and with the others
inline constexpr const char* kCompose = "compose";  // a layer policy and a selection on what it
                                                    // leaves full
/// The names of all methods, and those two.
std::vector<std::string> searched_names();

struct SearchSpace {
  std::vector<std::string> methods = searched_names();  // those that are searched
  std::string runtime;  // that is to run it; empty: kvatlas's own simulation
  bool has(std::string_view method) const;
};

struct Candidate {
  Policy policy;                        // complete: with its budgets, blocks or fixed layers
  Policy real;                          // what the runtime makes of it
  std::string family;                   // "simlayerkv", "simlayerkv+lagkv", "kv4"
  std::optional<LazyRates> lazy_rates;  // where the input decides
  double bytes = 0;                     // of one sequence, pages and pools counted
  double kept_share = 1;                // of the full cache's
  /// The mean share of attention that it loses, by the profile (a proxy for its cost).
  double lost = 0;
};

/// A policy and its settings in one word, for lists and journals: equal for equal policies.
std::string candidate_key(const Policy& policy);

struct Candidates {
  std::vector<Candidate> all;
  std::map<std::string, std::size_t> refused;  // by the runtime's reason
};
/// Made from what the profile says of the samples at these positions. `load` says at which context
/// bytes are counted; its lazy rates are of no account.
Candidates list_candidates(const Evidence& evidence, const std::vector<std::size_t>& samples,
                           const SearchSpace& space, const CacheLoad& load);

/// A document that holds the candidate's policy, with what the profile says of lazy layers.
Document document_of(const Candidate& candidate, const Evidence& evidence,
                     const std::vector<std::size_t>& samples);

}  // namespace kvatlas::calibrate
