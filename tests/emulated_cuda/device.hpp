// SPDX-License-Identifier: Apache-2.0
// Runs CUDA kernels on the CPU, thread by thread as CUDA defines it, so that they are tested where
// there is no GPU. Blocks run one after the other, forwards or backwards. A block's threads take
// turns where they wait for each other, in an order that differs from launch to launch. What CUDA
// leaves undefined is an Error: threads that wait for others that cannot come, a shuffle with lanes
// that are not there. Under the thread sanitizer each is a thread of its own that only barriers
// order: a missing one is a data race. The device's memory is the heap, filled with NaN.
#pragma once

#include <cstdint>
#include <functional>

#include <cuda_runtime.h>

namespace kvatlas::emulated_cuda {

constexpr int kWarp = 32;

struct Here {
  uint3 thread, block;
  dim3 threads, blocks;
};
/// Where the running thread is.
Here here();
int lane();

/// KVATLAS_CUDA_FAULT=KIND:N makes the device fail at the Nth call of a kind: "memory" (an
/// allocation finds none), "launch" (a kernel is refused), or "lost" (at either, and at all that
/// follows); N = 0 only counts them. May the next kernel start? If not, cudaGetLastError() says
/// why.
bool may_start();

void run(dim3 blocks, int threads, std::int64_t shared_bytes, const std::function<void()>& body);

/// The block's memory whose size the launch gave.
void* dynamic_shared();

void wait_for_block();
void wait_for_warp();
/// What thread `lane` of the warp calls with. All that `mask` names must call.
std::uint64_t shuffle(unsigned mask, std::uint64_t value, int lane);

}  // namespace kvatlas::emulated_cuda
