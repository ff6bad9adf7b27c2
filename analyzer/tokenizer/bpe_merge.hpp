// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <queue>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace kvatlas::model {

/// A part of the text while byte pair encoding joins parts: a doubly linked list in a vector.
struct BpeSymbol {
  std::uint32_t
      begin = 0,
      length = 0;  // in the text; a length of 0 says that it was joined to the symbol before it
  std::int32_t id = -1;
  std::int32_t previous = -1, next = -1;
  bool frozen = false;  // is not joined with anything
};

inline void link_symbols(std::vector<BpeSymbol>& symbols) {
  const auto count = static_cast<std::int32_t>(symbols.size());
  for (std::int32_t k = 0; k < count; ++k) {
    symbols[k].previous = k - 1;
    symbols[k].next = k + 1 < count ? k + 1 : -1;
  }
}

inline void require_bpe_length(std::string_view text) {
  if (text.size() > std::numeric_limits<std::int32_t>::max()) {
    fail(ErrorCode::unsupported, "a piece of ", text.size(), " bytes is too long to encode");
  }
}

/// What two neighbours become, and its rank. The lowest rank is joined first, and of equal ranks
/// the leftmost.
struct BpeJoin {
  double rank = 0;
  std::int32_t id = -1;  // negative if the two are not joined
};

/// Joins neighbours until none can be joined, in O(n log n). find(left, right) gives the BpeJoin of
/// two symbols. The symbols that are left form the list that begins at symbols[0].
template <class Find>
void merge_symbols(std::vector<BpeSymbol>& symbols, Find find) {
  struct Candidate {
    double rank;
    std::int32_t left, right, id;
    std::uint32_t length;  // of both; if it is another one later, one of them has changed
    bool operator<(const Candidate& other) const {
      return rank > other.rank || (rank == other.rank && left > other.left);
    }
  };
  std::vector<Candidate> storage;
  storage.reserve(symbols.size());
  std::priority_queue<Candidate> queue({}, std::move(storage));
  const auto at = [&](std::int32_t k) -> BpeSymbol& { return symbols[k]; };
  const auto propose = [&](std::int32_t left, std::int32_t right) {
    if (left < 0 || right < 0 || at(left).frozen || at(right).frozen) return;
    const BpeJoin join = find(at(left), at(right));
    if (join.id < 0) return;
    queue.push({join.rank, left, right, join.id, at(left).length + at(right).length});
  };
  for (std::int32_t k = 0; k + 1 < static_cast<std::int32_t>(symbols.size()); ++k) {
    propose(k, k + 1);
  }
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    BpeSymbol& left = at(best.left);
    BpeSymbol& right = at(best.right);
    if (left.length == 0 || right.length == 0 || left.length + right.length != best.length) {
      continue;
    }
    left.id = best.id;
    left.length = best.length;
    left.next = right.next;
    if (right.next >= 0) at(right.next).previous = best.left;
    right.length = 0;
    propose(left.previous, best.left);
    propose(best.left, left.next);
  }
}

}  // namespace kvatlas::model
