// SPDX-License-Identifier: Apache-2.0
// Selections by radix, eleven, eleven and ten bits, with integer counters only, so that the order
// of atomics changes nothing.
#include <algorithm>

#include "kernels/cuda_support.cuh"
#include "kernels/select.cuh"
#include "kernels/top_counts_impl.hpp"

namespace kvatlas::kernels::cuda {
inline namespace top_counts_cu {

constexpr int kThreads = 256;
constexpr int kMaxBlocks = 1024;              // of a pass over all scores
constexpr std::int64_t kLayerPart = 1 << 15;  // scores of a layer that are worth a block

constexpr int kStarted = 64;  // searches that one launch starts

unsigned blocks_for(const char* kernel, std::int64_t threads) {
  return grid_blocks(kernel, (threads + kThreads - 1) / kThreads);
}

__device__ float score_at(const View<const float, 3>& scores, std::int64_t index) {
  // Divisions by sizes that only the launch knows cost more than all the rest.
  const auto& [layers, rows, positions] = scores.sizes;
  if (scores.strides[2] == 1 && scores.strides[1] == positions &&
      scores.strides[0] == rows * positions)
    return scores.data[index];
  const std::int64_t j = index % scores.sizes[2], row = index / scores.sizes[2];
  return scores.data[row / scores.sizes[1] * scores.strides[0] +
                     row % scores.sizes[1] * scores.strides[1] + j * scores.strides[2]];
}

/// Some of the wanted k, handed over as a kernel's argument: a copy from the host would wait.
struct Wanted {
  std::int64_t k[kStarted];
};

__global__ void start_searches(Search* searches, Wanted wanted) {
  searches[threadIdx.x] = {0, wanted.k[threadIdx.x]};
}

/// Counts the keys that share the known bits of search blockIdx.y, by the pass's digit.
__global__ void __launch_bounds__(kThreads)
    count_digits(View<const float, 3> scores, const Search* searches, int pass,
                 unsigned long long* counts) {
  __shared__ unsigned int local[kDigits];
  for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += kThreads) local[i] = 0;
  __syncthreads();
  const Digit digit = digit_of(pass);
  const std::uint32_t prefix = searches[blockIdx.y].prefix;
  const std::int64_t total = scores.sizes[0] * scores.sizes[1] * scores.sizes[2];
  for (std::int64_t i = global_thread(); i < total;
       i += static_cast<std::int64_t>(gridDim.x) * kThreads) {
    const std::uint32_t key = key_of(score_at(scores, i));
    if ((key & digit.mask) == prefix)
      atomicAdd(&local[(key >> digit.shift) & (digit.count - 1)], 1u);
  }
  __syncthreads();
  unsigned long long* to = counts + static_cast<std::int64_t>(blockIdx.y) * kDigits;
  for (int i = static_cast<int>(threadIdx.x); i < digit.count; i += kThreads)
    if (local[i] != 0) atomicAdd(&to[i], static_cast<unsigned long long>(local[i]));
}

/// Takes the pass's digit of search blockIdx.x, and clears its counts for the next pass.
__global__ void __launch_bounds__(kSelectThreads)
    take_digits(Search* searches, int pass, unsigned long long* counts) {
  __shared__ Search search;
  const int thread = static_cast<int>(threadIdx.x);
  unsigned long long* of = counts + static_cast<std::int64_t>(blockIdx.x) * kDigits;
  if (thread == 0) search = searches[blockIdx.x];
  __syncthreads();
  take_digit(of, digit_of(pass), search);
  if (thread == 0) searches[blockIdx.x] = search;
  for (int i = thread; i < kDigits; i += kSelectThreads) of[i] = 0;
}

/// Adds the keys above and equal to the k-th largest: block (layer, k, part of the layer).
__global__ void __launch_bounds__(kThreads)
    count_layer(View<const float, 3> scores, const Search* searches, unsigned long long* above,
                unsigned long long* equal) {
  __shared__ unsigned long long sums[2];
  if (threadIdx.x < 2) sums[threadIdx.x] = 0;
  __syncthreads();
  const std::uint32_t threshold = searches[blockIdx.y].prefix;
  const std::int64_t of_layer = scores.sizes[1] * scores.sizes[2];
  unsigned long long more = 0, same = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.z) * kThreads + threadIdx.x;
       i < of_layer; i += static_cast<std::int64_t>(gridDim.z) * kThreads) {
    const std::uint32_t key = key_of(score_at(scores, blockIdx.x * of_layer + i));
    more += key > threshold;
    same += key == threshold;
  }
  atomicAdd(&sums[0], more);
  atomicAdd(&sums[1], same);
  __syncthreads();
  if (threadIdx.x >= 2) return;
  const std::int64_t to = static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  atomicAdd(threadIdx.x == 0 ? &above[to] : &equal[to], sums[threadIdx.x]);
}

/// Shares the ties out from the lowest layer on. One thread a search; a search of rank 0 took
/// nothing.
__global__ void share_ties(const Search* searches, const unsigned long long* above,
                           const unsigned long long* equal, View<std::int64_t, 2> counts) {
  const std::int64_t s = global_thread();
  if (s >= counts.sizes[0]) return;
  const std::int64_t n_layers = counts.sizes[1];
  std::int64_t left = searches[s].rank;
  const bool none = left == 0;
  for (std::int64_t layer = 0; layer < n_layers; ++layer) {
    const auto same = static_cast<std::int64_t>(equal[s * n_layers + layer]);
    const std::int64_t taken = left < same ? left : same;
    left -= taken;
    counts.data[s * counts.strides[0] + layer * counts.strides[1]] =
        none ? 0 : static_cast<std::int64_t>(above[s * n_layers + layer]) + taken;
  }
}

}  // namespace top_counts_cu

void top_counts(const TopCounts& io, void* stream_pointer) {
  const auto stream = static_cast<cudaStream_t>(stream_pointer);
  const auto n_k = static_cast<std::int64_t>(io.k.size());
  const std::int64_t n_layers = io.scores.sizes[0];
  if (n_k == 0 || n_layers == 0) return;
  if (n_k > 65535)
    fail(ErrorCode::unsupported, "the CUDA body takes at most 65535 k a call, got ", n_k);
  const Scratch<Search> searches(n_k, stream);
  // Counts of the digits of each k; then, of each k and layer, keys above and keys equal.
  const std::int64_t n_counts = n_k * (kDigits + 2 * n_layers);
  const Scratch<unsigned long long> counts(n_counts, stream);
  unsigned long long *above = counts.data() + n_k * kDigits, *equal = above + n_k * n_layers;
  for (std::int64_t first = 0; first < n_k; first += kStarted) {
    const std::int64_t started = std::min<std::int64_t>(kStarted, n_k - first);
    Wanted wanted{};
    std::copy_n(io.k.begin() + first, started, wanted.k);
    launch("start_searches", start_searches, {1, static_cast<int>(started), stream},
           searches.data() + first, wanted);
  }
  check(cudaMemsetAsync(counts.data(), 0,
                        static_cast<std::size_t>(n_counts) * sizeof(unsigned long long), stream),
        "clearing the counts");
  const std::int64_t total = io.scores.count();
  const dim3 grid(static_cast<unsigned>(std::clamp<std::int64_t>(total / kThreads, 1, kMaxBlocks)),
                  static_cast<unsigned>(n_k));
  for (int pass = 0; pass < 3; ++pass) {
    launch("count_digits", count_digits, {grid, kThreads, stream}, io.scores, searches.data(), pass,
           counts.data());
    launch("take_digits", take_digits, {static_cast<unsigned>(n_k), kSelectThreads, stream},
           searches.data(), pass, counts.data());
  }
  const std::int64_t parts = std::clamp<std::int64_t>(total / n_layers / kLayerPart, 1, 65535);
  const dim3 layers(grid_blocks("count_layer", n_layers), static_cast<unsigned>(n_k),
                    static_cast<unsigned>(parts));
  launch("count_layer", count_layer, {layers, kThreads, stream}, io.scores, searches.data(), above,
         equal);
  launch("share_ties", share_ties, {blocks_for("share_ties", n_k), kThreads, stream},
         searches.data(), above, equal, io.counts);
}

}  // namespace kvatlas::kernels::cuda
