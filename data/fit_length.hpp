// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

#include "data/prompts.hpp"
#include "data/tasks.hpp"

namespace kvatlas::data {

/// Finds the number of pieces with which `make` gives a prompt that is as long as possible, but of
/// at most `length` tokens, and returns that prompt. A piece is a few tokens long, and `least` is
/// the smallest number of pieces that makes sense. Counting tokens is what takes time; it is
/// usually done three or four times.
Prompt fit_length(std::int64_t length, std::int64_t least, const CountTokens& count,
                  const std::function<Prompt(std::int64_t pieces)>& make);

}  // namespace kvatlas::data
