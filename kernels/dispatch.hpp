// SPDX-License-Identifier: Apache-2.0
// Which body of a kernel runs. The caller asks, the environment may force one, and the machine
// decides what can run.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/exec.hpp"
#include "base/view.hpp"

namespace kvatlas::kernels {

/// Whether this build has the CUDA bodies.
inline constexpr bool kHasCuda = KVATLAS_HAS_CUDA != 0;

/// The CUDA body of a kernel; nullptr in a build that has none.
#if KVATLAS_HAS_CUDA
#define KVATLAS_CUDA_BODY(name) cuda::name
#else
#define KVATLAS_CUDA_BODY(name) nullptr
#endif

/// The body to run (never `automatic`) on data that lies in `memory`. `automatic` obeys
/// KVATLAS_BACKEND (reference, cpu, cuda); where that is not set, the memory decides between cpu
/// and cuda. The first call also obeys KVATLAS_CPU, the name of an instruction set. Throws Error:
/// `usage` for an unknown name, `unsupported` for a body that cannot run here or cannot reach that
/// memory.
Backend choose(const Exec& exec, Memory memory);

/// Runs the body of a kernel that choose() gave.
template <class Io>
void run_body(Backend chosen, const Exec& exec, const Io& io,
              std::type_identity_t<void (*)(const Io&)> reference,
              std::type_identity_t<void (*)(const Io&)> cpu,
              std::type_identity_t<void (*)(const Io&, void* stream)> cuda) {
  if (chosen == Backend::reference) return reference(io);
  if (chosen == Backend::cuda) return cuda(io, exec.stream);
  cpu(io);
}

/// The reason why the CUDA bodies cannot run on this machine; no value if they can.
std::optional<std::string> cuda_missing();

/// The instruction sets that the CPU bodies are compiled for and this processor runs, best first:
/// some of "avx3", "avx2", "sse4", "ssse3", "scalar".
std::vector<std::string> cpu_targets();

/// The instruction set that the CPU bodies use now.
std::string cpu_target();

/// Reads KVATLAS_CPU at the first call and obeys it. choose() and cpu_target() call it themselves;
/// it is here for CPU bodies that run without choose(). Throws like use_cpu_target.
void obey_cpu_environment();

/// Makes the CPU bodies use one of cpu_targets(); "" chooses the best one again. Throws Error
/// (`usage` for an unknown name, `unsupported` for one that cannot run here). It must not be called
/// while a kernel runs.
void use_cpu_target(const std::string& name);

}  // namespace kvatlas::kernels
