// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include "kernels/cuda_support.cuh"
#include "tests/bench/gpu_limits.hpp"

namespace kvatlas::bench {
namespace {

using kernels::cuda::check;

constexpr int kThreads = 256, kBlocks = 132 * 32, kSteps = 4096, kChains = 8;

/// A result that the compiler must make: it is written where a sum is a number that none is.
__device__ float kept;

__global__ void sum_all(const float4* values, std::int64_t count) {
  float sum = 0;
  for (std::int64_t i = kernels::cuda::global_thread(); i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const float4 four = values[i];
    sum += four.x + four.y + four.z + four.w;
  }
  if (sum == 0x1p-100f) kept = sum;
}

template <class Step>
__device__ void chains(Step step) {
  float x[kChains];
#pragma unroll
  for (int i = 0; i < kChains; ++i) x[i] = 4.0f + static_cast<float>(threadIdx.x + i) * 0x1p-10f;
  for (int j = 0; j < kSteps; ++j) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) x[i] = step(x[i]);
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kChains; ++i) sum += x[i];
  if (sum == 0x1p-100f) kept = sum;
}

// log2 x + 2.5 goes to 4.9 from where the chains begin.
__global__ void take_logarithms() {
  chains([](float x) { return __log2f(x) + 2.5f; });
}

constexpr std::int64_t kInRegisters =
    static_cast<std::int64_t>(kThreads) * kBlocks * kSteps * kChains;

}  // namespace

void wait_for_device() { check(cudaDeviceSynchronize(), "the device"); }

void read_on_device(const float* values, std::int64_t count) {
  sum_all<<<kBlocks, kThreads>>>(reinterpret_cast<const float4*>(values), count / 4);
  check(cudaGetLastError(), "sum_all");
}

std::int64_t logarithms_on_device() {
  take_logarithms<<<kBlocks, kThreads>>>();
  check(cudaGetLastError(), "take_logarithms");
  return kInRegisters;
}

}  // namespace kvatlas::bench
