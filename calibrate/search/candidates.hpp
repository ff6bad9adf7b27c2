// SPDX-License-Identifier: Apache-2.0
// What a search for the best policy chooses from: every policy that the statistics of a profile
// allow, with the bytes that it takes and the attention that it loses.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "calibrate/methods/precision.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/rules/cache_bytes.hpp"
#include "calibrate/rules/evidence.hpp"

namespace kvatlas::calibrate {

// Names of what is searched beside the methods of calibration.
inline constexpr const char* kFourBits = "kv4";     // 4 bits, alone and with the others
inline constexpr const char* kCompose = "compose";  // a layer policy and a selection on what it
                                                    // leaves full
/// The names of all methods and selections, and the two names above.
std::vector<std::string> searched_names();

struct SearchSpace {
  std::vector<std::string> methods = searched_names();  // which of them are searched
  std::string runtime;  // that is to run the policy; if empty, kvatlas's own simulation
  std::vector<ExpectedFormats> formats = {};  // number formats of layers that are searched
  bool has(std::string_view method) const;
};

struct Candidate {
  Policy policy;                        // complete, with its budgets, blocks or fixed layers
  Policy real;                          // what the runtime makes of it
  std::string family;                   // "simlayerkv", "simlayerkv+lagkv", "kv4"
  std::optional<LazyRates> lazy_rates;  // of a policy that decides by the input
  double bytes = 0;                     // of one sequence, with pages and pools counted
  double kept_share = 1;                // of the full cache's
  /// The mean share of attention that it loses, by the profile (a proxy for its cost).
  double lost = 0;
};

struct Candidates {
  std::vector<Candidate> all;
  std::map<std::string, std::size_t> refused;  // how many, by the reason
  std::set<std::string> refused_families;
};
/// Lists what the profile's samples at these positions allow. `load` says at which context bytes
/// are counted; its lazy rates are not read.
Candidates list_candidates(const Evidence& evidence, const std::vector<std::size_t>& samples,
                           const SearchSpace& space, const CacheLoad& load);

/// What was left out, in lines: with a runtime how many it refuses, else the reason of each.
std::vector<std::string> refused_lines(const Candidates& candidates, const std::string& runtime);

/// A document with the candidate's policy, and with what the profile says of lazy layers.
Document document_of(const Candidate& candidate, const Evidence& evidence,
                     const std::vector<std::size_t>& samples);

}  // namespace kvatlas::calibrate
