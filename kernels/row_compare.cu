// SPDX-License-Identifier: Apache-2.0
// A block takes a row: largest logits, normalisers, sums, in three passes over it (it stays in L2).
#include <algorithm>
#include <cfloat>

#include "kernels/cuda_support.cuh"
#include "kernels/row_compare_impl.hpp"

namespace kvatlas::kernels::cuda {
inline namespace row_compare_cu {

constexpr int kThreads = 256, kWarp = 32, kWarps = kThreads / kWarp;
// Terms of a thread that are added in float32 before they go to its float64 sum.
constexpr int kRun = 16;

struct CompareParams {
  const void *full, *other;
  std::int64_t rows, vocab, full_strides[2], other_strides[2];
  float *kl, *distance;
  std::uint8_t* same;
  std::int64_t kl_step, distance_step, same_step;
};

struct Peak {
  float logit;
  std::int64_t token;
};

__device__ Peak better(const Peak& a, const Peak& b) {
  return b.logit > a.logit || (b.logit == a.logit && b.token < a.token) ? b : a;
}

/// The best peak of all threads, in every thread.
__device__ Peak block_peak(Peak mine, Peak* shared) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    mine = better(mine, {__shfl_xor_sync(~0u, mine.logit, offset),
                         static_cast<std::int64_t>(
                             __shfl_xor_sync(~0u, static_cast<long long>(mine.token), offset))});
  __syncthreads();  // what an earlier call left has been read
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = mine;
  __syncthreads();
  mine = shared[0];
  for (int w = 1; w < kWarps; ++w) mine = better(mine, shared[w]);
  return mine;
}

/// The sum of all threads' values, in every thread, in a fixed order.
__device__ double block_sum(double mine, double* shared) {
  mine = warp_sum(mine);
  __syncthreads();
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = mine;
  __syncthreads();
  mine = 0;
  for (int w = 0; w < kWarps; ++w) mine += shared[w];
  return mine;
}

template <class T>
__device__ Peak row_peak(const T* logits, std::int64_t step, std::int64_t vocab, Peak* shared) {
  // A token behind the last one loses against every token of equal logit.
  Peak mine{-INFINITY, vocab};
  for (std::int64_t t = threadIdx.x; t < vocab; t += kThreads)
    mine = better(mine, {to_float(logits[t * step]), t});
  return block_peak(mine, shared);
}

template <class T>
__device__ double row_normaliser(const T* logits, std::int64_t step, std::int64_t vocab, float top,
                                 double* shared) {
  double total = 0;
  for (std::int64_t first = threadIdx.x; first < vocab; first += kThreads * kRun) {
    float sum = 0;
    for (int i = 0; i < kRun; ++i) {
      const std::int64_t t = first + static_cast<std::int64_t>(i) * kThreads;
      if (t < vocab) sum += expf(to_float(logits[t * step]) - top);
    }
    total += static_cast<double>(sum);
  }
  return block_sum(total, shared);
}

template <class T, class U>
__global__ void __launch_bounds__(kThreads) row_compare_kernel(CompareParams p) {
  __shared__ Peak peaks[kWarps];
  __shared__ double sums[kWarps];
  for (std::int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
    const T* full = static_cast<const T*>(p.full) + row * p.full_strides[0];
    const U* other = static_cast<const U*>(p.other) + row * p.other_strides[0];
    const Peak p_peak = row_peak(full, p.full_strides[1], p.vocab, peaks);
    const Peak q_peak = row_peak(other, p.other_strides[1], p.vocab, peaks);
    const double p_total = row_normaliser(full, p.full_strides[1], p.vocab, p_peak.logit, sums);
    const double q_total = row_normaliser(other, p.other_strides[1], p.vocab, q_peak.logit, sums);
    const float p_scale = static_cast<float>(1 / p_total),
                q_scale = static_cast<float>(1 / q_total);
    const float log_ratio = static_cast<float>(log(p_total) - log(q_total));
    double kl = 0, distance = 0;
    for (std::int64_t first = threadIdx.x; first < p.vocab; first += kThreads * kRun) {
      float kl_run = 0, distance_run = 0;
      for (int i = 0; i < kRun; ++i) {
        const std::int64_t t = first + static_cast<std::int64_t>(i) * kThreads;
        if (t >= p.vocab) continue;
        const float x = to_float(full[t * p.full_strides[1]]) - p_peak.logit;
        const float y = to_float(other[t * p.other_strides[1]]) - q_peak.logit;
        // Not fused with the subtraction below: equal rows must differ by 0.
        const float share_p = __fmul_rn(expf(x), p_scale), share_q = __fmul_rn(expf(y), q_scale);
        // Shares below the normal range count as 0, as in the other bodies.
        if (!(share_p < FLT_MIN)) kl_run += share_p * ((x - y) - log_ratio);
        distance_run += fabsf(share_p - share_q);
      }
      kl += static_cast<double>(kl_run);
      distance += static_cast<double>(distance_run);
    }
    kl = block_sum(kl, sums);
    distance = block_sum(distance, sums) / 2;
    if (p.vocab == 0) kl = distance = NAN;
    if (threadIdx.x == 0) {
      if (p.kl != nullptr) p.kl[row * p.kl_step] = static_cast<float>(kl < 0 ? 0 : kl);
      if (p.distance != nullptr) p.distance[row * p.distance_step] = static_cast<float>(distance);
      if (p.same != nullptr)
        p.same[row * p.same_step] = p_peak.token == q_peak.token && !isnan(distance) ? 1 : 0;
    }
  }
}

}  // namespace row_compare_cu

void row_compare(const RowCompare& io, void* stream) {
  const CompareParams p{io.full.data,
                        io.other.data,
                        io.full.sizes[0],
                        io.full.sizes[1],
                        {io.full.strides[0], io.full.strides[1]},
                        {io.other.strides[0], io.other.strides[1]},
                        io.kl.data,
                        io.total_variation.data,
                        io.same_top1.data,
                        io.kl.strides[0],
                        io.total_variation.strides[0],
                        io.same_top1.strides[0]};
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(p.rows, 1 << 20));
  with_types(io.full.type, io.other.type, [&](auto full, auto other) {
    launch("row_compare", row_compare_kernel<decltype(full), decltype(other)>,
           {blocks, kThreads, static_cast<cudaStream_t>(stream)}, p);
  });
}

}  // namespace kvatlas::kernels::cuda
