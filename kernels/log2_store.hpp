// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/exec.hpp"
#include "base/view.hpp"

namespace kvatlas::kernels {

/// The base-2 logarithms of `count` shares as they are stored: as float32, float16 bits or the
/// codes of base/share_code.hpp, whichever output is given. Zero, and what is below `least`,
/// becomes -inf (code 0); NaN stays NaN (code kUnknown); other values are at least 0 and finite.
/// |error| <= 5e-7 + 2^-24 |log2| before the rounding to float16 or to the nearest code (both to
/// even). A share above 1 has the code of 1. One pass over dense memory, all of it host or device.
struct Log2Store {
  const float* shares = nullptr;  // in  [count]
  std::int64_t count = 0;
  float least = 0x1p-126f;           // shares below it are stored as zero; 2^-126 at least
  float* as_float = nullptr;         // out [count], or
  std::uint16_t* as_half = nullptr;  // out [count], or
  std::uint8_t* as_code = nullptr;   // out [count]
  Memory memory = Memory::host;
};
void log2_store(const Log2Store& io, const Exec& exec = {});

}  // namespace kvatlas::kernels
