// SPDX-License-Identifier: Apache-2.0
// What kernels/cuda_launch.cuh and nvcc give the .cu files, for a CPU: with this folder first in
// the include path they compile as C++ and run on tests/emulated_cuda/device.cpp.
#pragma once

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include "tests/emulated_cuda/device.hpp"

#undef __device__
#undef __global__
#undef __launch_bounds__
#undef __shared__
#define __device__
#define __global__
#define __launch_bounds__(...)
// Blocks run one after the other, each on what the last one left there.
#define __shared__ static

#define threadIdx (::kvatlas::emulated_cuda::here().thread)
#define blockIdx (::kvatlas::emulated_cuda::here().block)
#define blockDim (::kvatlas::emulated_cuda::here().threads)
#define gridDim (::kvatlas::emulated_cuda::here().blocks)

namespace kvatlas::kernels::cuda {

template <class... P>
void start(void (*kernel)(P...), dim3 blocks, int threads, std::int64_t shared_bytes, cudaStream_t,
           const P&... arguments) {
  if (emulated_cuda::may_start())
    emulated_cuda::run(blocks, threads, shared_bytes, [&] { kernel(arguments...); });
}

inline float* dynamic_shared() { return static_cast<float*>(emulated_cuda::dynamic_shared()); }

inline void __syncthreads() { emulated_cuda::wait_for_block(); }
inline void __syncwarp() { emulated_cuda::wait_for_warp(); }

/// The value of another lane of the warp. Values are at most 8 bytes.
template <class T>
T shuffled(T value, unsigned mask, int lane) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  static_assert(sizeof(T) == sizeof(Bits));
  return std::bit_cast<T>(
      static_cast<Bits>(emulated_cuda::shuffle(mask, std::bit_cast<Bits>(value), lane)));
}
template <class T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return shuffled(value, mask, lane);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  return shuffled(value, mask, emulated_cuda::lane() ^ bits);
}
inline int __all_sync(unsigned mask, int value) {
  int all = 1;
  for (int lane = 0; lane < emulated_cuda::kWarp; ++lane)
    all &= shuffled(value != 0 ? 1 : 0, mask, lane);
  return all;
}

template <class T>
T atomicAdd(T* to, T value) {
  return std::atomic_ref<T>(*to).fetch_add(value, std::memory_order_relaxed);
}

using std::isfinite;
using std::isnan;
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}
inline std::uint32_t __float_as_uint(float value) { return std::bit_cast<std::uint32_t>(value); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline double __longlong_as_double(long long bits) { return std::bit_cast<double>(bits); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __log2f(float x) { return std::log2(x); }

}  // namespace kvatlas::kernels::cuda
