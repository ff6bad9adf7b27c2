// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace kvatlas {

/// Which body of a kernel runs. `automatic` takes one that can run where the data lies. A body that
/// is asked for by name and cannot run is an error that says what is missing; no other body is run
/// in its place.
enum class Backend : std::uint8_t { automatic, reference, cpu, cuda };

/// How a kernel runs: the body, and for CUDA the stream (a cudaStream_t).
struct Exec {
  Backend backend = Backend::automatic;
  void* stream = nullptr;
};

}  // namespace kvatlas
