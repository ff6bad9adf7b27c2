// SPDX-License-Identifier: Apache-2.0
// Selection of the largest by radix, with integer counters only.
#pragma once

#include <cstdint>

namespace kvatlas::kernels::cuda {

constexpr int kSelectThreads = 256;
constexpr int kDigits = 2048;

/// rank_key of kernels/select.hpp: orders as the floats do, NaN lowest, -0 and 0 the same.
__device__ inline std::uint32_t key_of(float value) {
  if (value != value) return 0;
  const std::uint32_t bits = __float_as_uint(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// The digit that pass 0, 1 or 2 looks at, and the bits above it that are already known.
struct Digit {
  int shift;           // 21, 10, 0
  int count;           // 2048, 2048, 1024
  std::uint32_t mask;  // the bits above the digit
};
__device__ inline Digit digit_of(int pass) {
  if (pass == 0) return {21, 2048, 0};
  if (pass == 1) return {10, 2048, 0xffe00000u};
  return {0, 1024, 0xfffffc00u};
}

/// The sum of `value` over the threads before this one; `total` the sum over all. kSelectThreads
/// ints of scratch.
__device__ inline int scan(int value, int* shared, int& total) {
  const int thread = static_cast<int>(threadIdx.x);
  shared[thread] = value;
  __syncthreads();
  for (int step = 1; step < kSelectThreads; step *= 2) {
    const int other = thread >= step ? shared[thread - step] : 0;
    __syncthreads();
    shared[thread] += other;
    __syncthreads();
  }
  total = shared[kSelectThreads - 1];
  const int before = shared[thread] - value;
  __syncthreads();
  return before;
}

/// A block of kSelectThreads calls take(rank, j), ranks ascending with j, for the `k` largest of
/// value_at(0 .. n - 1); of equal ones the earlier. Uses about 10 KiB of shared memory; all threads
/// must call it.
template <class ValueAt, class Take>
__device__ void select_largest(std::int64_t n, std::int64_t k, ValueAt value_at, Take take) {
  __shared__ unsigned int counts[kDigits];
  __shared__ int scratch[kSelectThreads];
  __shared__ std::uint32_t prefix;
  __shared__ std::int64_t rank;
  const int thread = static_cast<int>(threadIdx.x);
  if (k <= 0) return;
  __syncthreads();
  if (thread == 0) {
    prefix = 0;
    rank = k;
  }
  for (int pass = 0; pass < 3; ++pass) {
    const Digit digit = digit_of(pass);
    for (int i = thread; i < kDigits; i += kSelectThreads) counts[i] = 0;
    __syncthreads();
    for (std::int64_t j = thread; j < n; j += kSelectThreads) {
      const std::uint32_t key = key_of(value_at(j));
      if ((key & digit.mask) == prefix)
        atomicAdd(&counts[(key >> digit.shift) & (digit.count - 1)], 1u);
    }
    __syncthreads();
    if (thread == 0) {
      int taken = digit.count - 1;
      for (; taken > 0 && rank > static_cast<std::int64_t>(counts[taken]); --taken)
        rank -= static_cast<std::int64_t>(counts[taken]);
      prefix |= static_cast<std::uint32_t>(taken) << digit.shift;
    }
    __syncthreads();
  }
  const std::uint32_t threshold = prefix;
  std::int64_t ties_left = rank, written = 0;
  for (std::int64_t begin = 0; begin < n; begin += kSelectThreads) {
    const std::int64_t j = begin + thread;
    const std::uint32_t key = j < n ? key_of(value_at(j)) : 0;
    const bool tie = j < n && key == threshold;
    int ties = 0, taken = 0;
    const int ties_before = scan(tie ? 1 : 0, scratch, ties);
    const bool chosen = j < n && (key > threshold || (tie && ties_before < ties_left));
    const int chosen_before = scan(chosen ? 1 : 0, scratch, taken);
    if (chosen) take(written + chosen_before, j);
    ties_left -= ties < ties_left ? ties : ties_left;
    written += taken;
  }
}

}  // namespace kvatlas::kernels::cuda
