// SPDX-License-Identifier: Apache-2.0
// What .cu files share: launches, their sizes, scratch memory of a stream, element types, the unit
// of scores, sums over a warp, joins over a block.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include <climits>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/error.hpp"
#include "base/foreign_error.hpp"
#include "base/view.hpp"
#include "kernels/cuda_launch.cuh"

namespace kvatlas::kernels::cuda {

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess)
    throw gpu_error(status == cudaErrorMemoryAllocation,
                    str(what, ": ", cudaGetErrorString(status)));
}

/// How many threads run a kernel, and where.
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
  start(kernel, threads.blocks, threads.per_block, threads.shared_bytes, threads.stream,
        arguments...);
  check(cudaGetLastError(), what);
}

/// The first dimension of a grid, which takes 2^31 - 1 blocks; the others take 65535.
inline unsigned grid_blocks(const char* kernel, std::int64_t blocks) {
  if (blocks > INT_MAX)
    fail(ErrorCode::unsupported, kernel, " on CUDA: ", blocks,
         " blocks of threads, it takes at most ", INT_MAX);
  return static_cast<unsigned>(blocks);
}

/// Blocks for a kernel that strides over its items until all are done.
inline unsigned striding_blocks(std::int64_t threads, int threads_a_block) {
  return static_cast<unsigned>(
      std::min<std::int64_t>((threads + threads_a_block - 1) / threads_a_block, 1 << 20));
}

template <std::size_t N>
void copy(const std::array<std::int64_t, N>& from, std::int64_t (&to)[N]) {
  std::copy(from.begin(), from.end(), to);
}

constexpr double kLog2E = 1.4426950408889634, kLn2 = 0.6931471805599453;

/// Turns the dot product of a query and a key into a score in powers of two.
struct ScoreUnit {
  float factor;  // scale * log2 e, or scale / soft_cap
  float cap;     // soft_cap * log2 e, or 0
  __device__ float operator()(float dot) const { return cap > 0 ? capped(dot) : dot * factor; }
  __device__ float capped(float dot) const { return cap * tanhf(dot * factor); }
  /// To many, with one look at which.
  template <int kRows, int kColumns>
  __device__ void apply(float (&dots)[kRows][kColumns]) const {
    if (cap > 0) {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int c = 0; c < kColumns; ++c) dots[r][c] = capped(dots[r][c]);
      return;
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) dots[r][c] *= factor;
  }
};
inline ScoreUnit score_unit(float scale, float soft_cap) {
  if (soft_cap > 0)
    return {scale / soft_cap, static_cast<float>(static_cast<double>(soft_cap) * kLog2E)};
  return {static_cast<float>(static_cast<double>(scale) * kLog2E), 0};
}

/// Lets the process keep up to a GiB of scratch memory that is free: to fetch it from the device
/// again takes longer than most kernels.
inline bool keep_scratch() {
  std::uint64_t kept = std::uint64_t{1} << 30;
  int device = 0;
  cudaMemPool_t pool = nullptr;
  check(cudaGetDevice(&device), "the device's number");
  check(cudaDeviceGetDefaultMemPool(&pool, device), "the device's scratch memory");
  check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept),
        "the device's scratch memory");
  return true;
}

/// Device memory that lives in stream order: freed after what was launched before its end.
template <class T>
class Scratch {
 public:
  Scratch(std::int64_t count, cudaStream_t stream) : stream_(stream) {
    [[maybe_unused]] static const bool kept = keep_scratch();
    if (count > 0)
      check(cudaMallocAsync(&data_, static_cast<std::size_t>(count) * sizeof(T), stream),
            "device scratch memory");
  }
  ~Scratch() {
    if (data_ != nullptr) cudaFreeAsync(data_, stream_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return static_cast<T*>(data_); }

 private:
  void* data_ = nullptr;
  cudaStream_t stream_;
};

/// Calls fn(T{}) with the C++ type of `type`: one branch, outside the kernels.
template <class Fn>
void with_type(DType type, Fn&& fn) {
  switch (type) {
    case DType::f32:
      return fn(float{});
    case DType::f16:
      return fn(__half{});
    case DType::bf16:
      return fn(__nv_bfloat16{});
  }
}

/// Calls fn(A{}, B{}) with the C++ types of two types.
template <class Fn>
void with_types(DType a, DType b, Fn&& fn) {
  with_type(a, [&](auto of_a) { with_type(b, [&](auto of_b) { fn(of_a, of_b); }); });
}

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__half value) { return __half2float(value); }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

/// The logarithm of a number of the normal range, within 2^-22; infinities and NaN pass through.
__device__ inline float log2_of_normal(float x) {
#ifdef __CUDA_ARCH__
  float log;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log) : "f"(x));
  return log;
#else
  return log2f(x);
#endif
}

/// 2^x within two units of the last digit; 0 where that is below the normal range.
__device__ inline float exp2_or_0(float x) {
#ifdef __CUDA_ARCH__
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#else
  return exp2f(x);
#endif
}

/// What the lower 16 bits stand for.
template <class T>
__device__ float half_value(std::uint32_t bits) {
  if constexpr (std::is_same_v<T, __half>)
    return __half2float(__half(__half_raw{static_cast<unsigned short>(bits)}));
  else
    return __bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{static_cast<unsigned short>(bits)}));
}

/// d += a b of a warp's fragments, by the tensor cores if they take them: a is 16 x 16, b 16 x 8,
/// both of T (two values in 32 bits); the products are exact and summed in float32. Lane 4 g + t
/// has of a the rows g and g + 8 (elements 0, 2 and 1, 3), of b column g, in columns 2 t, 2 t + 1
/// (a[0], a[1], b[0]) and 2 t + 8, 2 t + 9; of d columns 2 t and 2 t + 1, in row g (d0, d1) and row
/// g + 8 (d2, d3). All lanes must call it.
template <class T>
__device__ void warp_product(const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], float& d0,
                             float& d1, float& d2, float& d3) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, __half>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  const int lane = static_cast<int>(threadIdx.x) % 32, row = lane / 4 * 4, column = lane % 4 * 8;
  for (int pair = 0; pair < 8; ++pair) {
    const int from = pair % 4, half = pair / 4;
    const std::uint32_t upper = __shfl_sync(~0u, a[2 * half], row + from),
                        lower = __shfl_sync(~0u, a[2 * half + 1], row + from),
                        left = __shfl_sync(~0u, b[half], column + from),
                        right = __shfl_sync(~0u, b[half], column + 4 + from);
    for (int bits = 0; bits < 32; bits += 16) {
      const float x = half_value<T>(upper >> bits), y = half_value<T>(lower >> bits),
                  u = half_value<T>(left >> bits), v = half_value<T>(right >> bits);
      d0 = fmaf(x, u, d0);
      d1 = fmaf(x, v, d1);
      d2 = fmaf(y, u, d2);
      d3 = fmaf(y, v, d3);
    }
  }
#endif
}

/// The number of this thread in its grid's first dimension.
__device__ inline std::int64_t global_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

/// The sum over the warp, in every lane, always in the same order. All lanes must call it.
template <class T>
__device__ T warp_sum(T value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  return value;
}

/// The values of all threads of a block joined, in every thread, always in the same order.
/// `shared`: a place for each. All threads must call it.
template <int kThreads, class T, class Join>
__device__ T block_reduce(T value, T* shared, Join join) {
  const int thread = static_cast<int>(threadIdx.x);
  shared[thread] = value;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (thread < half) shared[thread] = join(shared[thread], shared[thread + half]);
    __syncthreads();
  }
  const T result = shared[0];
  __syncthreads();
  return result;
}

}  // namespace kvatlas::kernels::cuda
