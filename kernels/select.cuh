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

/// The sum of `value` over the threads before this one; `total` the sum over all. `shared`: a place
/// for each warp of the block's kSelectThreads threads, all of which must call it.
template <class T>
__device__ T scan(T value, T* shared, T& total) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  T sum = value;
  for (int step = 1; step < 32; step *= 2) {
    const T other = __shfl_sync(~0u, sum, lane < step ? lane : lane - step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) shared[warp] = sum;
  __syncthreads();
  T before = sum - value;
  total = 0;
  for (int w = 0; w < kSelectThreads / 32; ++w) {
    if (w < warp) before += shared[w];
    total += shared[w];
  }
  __syncthreads();
  return before;
}

/// The search for a k-th largest key, a digit at a time: its leading bits, and its rank among the
/// keys that share them. A rank of 0 takes nothing.
struct Search {
  std::uint32_t prefix;
  std::int64_t rank;
};

/// Takes the digit in which the rank lies. counts: how many keys that share the known bits have
/// each digit. All threads of a block of kSelectThreads must call it; `search` is in shared memory.
template <class Count>
__device__ void take_digit(const Count* counts, const Digit& digit, Search& search) {
  __shared__ std::int64_t sums[kSelectThreads / 32];
  const int each = digit.count / kSelectThreads, first = static_cast<int>(threadIdx.x) * each;
  const std::int64_t rank = search.rank;
  std::int64_t own = 0, all = 0;
  for (int i = 0; i < each; ++i) own += static_cast<std::int64_t>(counts[first + i]);
  const std::int64_t before = scan(own, sums, all), above = all - before - own;
  if (rank > above && rank <= above + own) {
    std::int64_t left = rank - above;
    int taken = first + each - 1;
    for (; left > static_cast<std::int64_t>(counts[taken]); --taken)
      left -= static_cast<std::int64_t>(counts[taken]);
    search = {search.prefix | static_cast<std::uint32_t>(taken) << digit.shift, left};
  }
  __syncthreads();
}

/// A block of kSelectThreads calls take(rank, j), ranks ascending with j, for the `k` largest of
/// value_at(0 .. n - 1), k <= n; of equal ones the earlier. Uses 9 KiB of shared memory; all
/// threads must call it.
template <class ValueAt, class Take>
__device__ void select_largest(std::int64_t n, std::int64_t k, ValueAt value_at, Take take) {
  __shared__ unsigned int counts[kDigits];
  __shared__ int scratch[kSelectThreads / 32];
  __shared__ Search search;
  const int thread = static_cast<int>(threadIdx.x);
  if (k <= 0) return;
  __syncthreads();
  if (thread == 0) search = {0, k};
  for (int pass = 0; pass < 3; ++pass) {
    const Digit digit = digit_of(pass);
    for (int i = thread; i < digit.count; i += kSelectThreads) counts[i] = 0;
    __syncthreads();
    for (std::int64_t j = thread; j < n; j += kSelectThreads) {
      const std::uint32_t key = key_of(value_at(j));
      if ((key & digit.mask) == search.prefix)
        atomicAdd(&counts[(key >> digit.shift) & (digit.count - 1)], 1u);
    }
    __syncthreads();
    take_digit(counts, digit, search);
  }
  const std::uint32_t threshold = search.prefix;
  std::int64_t ties_left = search.rank, written = 0;
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
