// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvatlas {

/// Which body of a kernel runs. `automatic` takes what can run where the data lies; a forced one
/// that cannot run is an error that names what is missing, never silently another one.
enum class Backend : std::uint8_t { automatic, reference, cpu, cuda };

/// How a kernel runs: the body, and for CUDA the stream (a cudaStream_t).
struct Exec {
  Backend backend = Backend::automatic;
  void* stream = nullptr;
};

}  // namespace kvatlas
