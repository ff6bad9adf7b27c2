// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/error.hpp"

namespace kvatlas::model {

/// The most bytes that the steps of a tokenizer may make of `input`. No real tokenizer comes near;
/// a hostile one could fill the memory.
inline std::size_t most_bytes(std::size_t input) { return (std::size_t{1} << 20) + 64 * input; }

/// Error(resource) if a part of a tokenizer (its name) goes beyond that.
inline void require_size(std::size_t size, std::size_t most, const char* part) {
  if (size > most) {
    fail(ErrorCode::resource, "the tokenizer's ", part, " makes a text longer than ", most,
         " bytes");
  }
}

}  // namespace kvatlas::model
