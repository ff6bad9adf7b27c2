// SPDX-License-Identifier: Apache-2.0
// Where CUDA's own syntax is needed: starting a kernel, and memory whose size the start decides.
// (Single instructions are in cuda_support.cuh, each with a plain form beside it.)
// tests/emulated_cuda has this file once more, for kernels that run on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

namespace kvatlas::kernels::cuda {

template <class... P>
void start(void (*kernel)(P...), dim3 blocks, int threads, std::int64_t shared_bytes,
           cudaStream_t stream, const P&... arguments) {
  kernel<<<blocks, static_cast<unsigned>(threads), static_cast<std::size_t>(shared_bytes),
           stream>>>(arguments...);
}

__device__ inline float* dynamic_shared() {
  extern __shared__ float shared[];
  return shared;
}

}  // namespace kvatlas::kernels::cuda
