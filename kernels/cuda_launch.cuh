// SPDX-License-Identifier: Apache-2.0
// The only places where CUDA's own syntax is needed: starting a kernel, and memory whose size the
// start decides. tests/emulated_cuda has this file once more, for kernels that run on the CPU.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "kernels/base/error.hpp"

namespace kvatlas::kernels::cuda {

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    fail(status == cudaErrorMemoryAllocation ? ErrorCode::resource : ErrorCode::unsupported, what,
         ": ", cudaGetErrorString(status));
}

struct Threads {
  dim3 blocks;
  int per_block;
  cudaStream_t stream;
  std::int64_t shared_bytes = 0;  // that dynamic_shared() gives each block
};

/// Throws if the kernel cannot be started; `what` says what for.
template <class... P>
void launch(const char* what, void (*kernel)(P...), const Threads& threads,
            std::type_identity_t<P>... arguments) {
  kernel<<<threads.blocks, static_cast<unsigned>(threads.per_block),
           static_cast<std::size_t>(threads.shared_bytes), threads.stream>>>(arguments...);
  check(cudaGetLastError(), what);
}

__device__ inline float* dynamic_shared() {
  extern __shared__ float shared[];
  return shared;
}

}  // namespace kvatlas::kernels::cuda
