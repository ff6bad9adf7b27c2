// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvatlas::kernels {

/// The base-2 logarithms of `count` shares as they are stored: float32 or
/// float16 bits, whichever output is given. Zero, and what is below 2^-126, becomes -inf; NaN stays
/// NaN; other values are at least 0 and finite. |error| <= 5e-7 + 2^-24 |log2| before the rounding
/// to float16 (to nearest even). One pass over dense host memory, all threads.
struct Log2Store {
  const float* shares = nullptr;  // in  [count]
  std::int64_t count = 0;
  float* as_float = nullptr;         // out [count], or
  std::uint16_t* as_half = nullptr;  // out [count]
};
void log2_store(const Log2Store& io);

}  // namespace kvatlas::kernels
