// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "data/prompts.hpp"
#include "data/tasks.hpp"

namespace kvatlas::data {

/// What `make` makes of so many pieces that it has at most `length` tokens and lacks few of them. A
/// piece is a few tokens long; `least` is the fewest that make sense. Counting is what costs time
/// here: three or four calls are usual.
Prompt fit_length(std::int64_t length, std::int64_t least, const CountTokens& count,
                  const std::function<Prompt(std::int64_t pieces)>& make);

}  // namespace kvatlas::data
