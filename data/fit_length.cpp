// SPDX-License-Identifier: Apache-2.0
#include "data/fit_length.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace kvatlas::data {

Prompt fit_length(std::int64_t length, std::int64_t least, const CountTokens& count,
                  const std::function<Prompt(std::int64_t)>& make) {
  Prompt best = make(least);
  const std::int64_t least_tokens = count(best);
  if (least_tokens > length)
    fail(ErrorCode::usage, "a prompt of ", length, " tokens is too short for this task: it needs ",
         least_tokens);

  // A prompt of `fits` pieces fits; one of `too_many` does not, or is more than can be needed.
  std::int64_t fits = least, fits_tokens = least_tokens;
  std::int64_t too_many = least + 4 * length + 64, too_many_tokens = 0;  // 0: not counted
  const std::int64_t enough = std::max<std::int64_t>(8, length / 100);
  double tokens_a_piece = 1.4;  // of English words
  for (int round = 0; length - fits_tokens > enough && too_many - fits > 1; ++round) {
    // Aim into the middle of what is enough; when that does not get there, halve.
    const double missing =
        static_cast<double>(length - fits_tokens) - 0.5 * static_cast<double>(enough);
    const std::int64_t step =
        round < 12 ? std::llround(missing / tokens_a_piece) : (too_many - fits) / 2;
    const std::int64_t pieces = fits + std::clamp<std::int64_t>(step, 1, too_many - fits - 1);
    Prompt prompt = make(pieces);
    const std::int64_t tokens = count(prompt);
    if (tokens > length) {
      too_many = pieces;
      too_many_tokens = tokens;
    } else {
      fits = pieces;
      fits_tokens = tokens;
      best = std::move(prompt);
    }
    const auto slope = [&](std::int64_t from, std::int64_t from_tokens, std::int64_t to,
                           std::int64_t to_tokens) {
      return std::max(
          0.01, static_cast<double>(to_tokens - from_tokens) / static_cast<double>(to - from));
    };
    if (too_many_tokens > 0)
      tokens_a_piece = slope(fits, fits_tokens, too_many, too_many_tokens);
    else
      tokens_a_piece = slope(least, least_tokens, fits, fits_tokens);
  }
  return best;
}

}  // namespace kvatlas::data
