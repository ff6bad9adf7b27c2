// SPDX-License-Identifier: Apache-2.0
// What two truncated next-token distributions say of their divergence: servers give the most
// probable tokens alone. P is the full cache's, Q the compressed one's. Nothing is renormalised:
// what was left out stays an unknown rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvatlas::calibrate {

struct TopToken {
  std::int64_t id = 0;
  double log_prob = 0;
};

/// Some tokens of a distribution with their true log-probabilities.
struct TopTokens {
  std::vector<TopToken> tokens;
  /// No token outside has more than this probability. Servers that add the token they chose to the
  /// `most` most probable ones may give one of less: see top_tokens().
  double most_outside = 1;
};
/// Of a list that holds the `count` most probable tokens, and maybe others. Error(unreadable) for
/// an id that stands there twice, and for log-probabilities that are no number, above 0, or
/// together more than 1.001.
TopTokens top_tokens(std::vector<TopToken> tokens, std::size_t count);

/// Bounds that hold whatever the tokens left out have.
struct DivergenceBounds {
  double kl_low = 0;  // of KL(P || Q) in nats; from above it is not bounded
  double tv_low = 0, tv_high = 1;
  double js_low = 0, js_high = 0;  // nats, at most ln 2
};
DivergenceBounds divergence_bounds(const TopTokens& full, const TopTokens& compressed);

/// How often a compressed cache would choose the full cache's next token, along that one's answer.
struct AgreementBounds {
  double low = 0, high = 1;
};
/// Both answers were made freely: only their common beginning says something.
AgreementBounds prefix_agreement(std::span<const std::int64_t> full,
                                 std::span<const std::int64_t> compressed);

}  // namespace kvatlas::calibrate
