// SPDX-License-Identifier: Apache-2.0
// A warp merges a token. Each lane reads and writes its own channels, so outputs may be the inputs.
#include "kernels/cuda_support.cuh"
#include "kernels/minicache_merge_impl.hpp"

namespace kvatlas::kernels::cuda {
inline namespace minicache_merge_cu {

constexpr int kThreads = 256, kWarp = 32;

struct MergeParams {
  const void *lower, *upper;
  float *merged_lower, *merged_upper;
  std::int64_t heads, tokens, dim;
  std::int64_t lower_strides[3], upper_strides[3], merged_lower_strides[3], merged_upper_strides[3];
  double t;
};

template <class T, class U>
__global__ void merge_kernel(MergeParams p) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * (kThreads / kWarp);
  for (std::int64_t item = global_thread() / kWarp; item < p.heads * p.tokens; item += step) {
    const std::int64_t h = item / p.tokens, i = item % p.tokens;
    const auto row = [&](const std::int64_t(&strides)[3]) {
      return h * strides[0] + i * strides[1];
    };
    const T* lower = static_cast<const T*>(p.lower) + row(p.lower_strides);
    const U* upper = static_cast<const U*>(p.upper) + row(p.upper_strides);
    float* merged_lower = p.merged_lower + row(p.merged_lower_strides);
    float* merged_upper = p.merged_upper + row(p.merged_upper_strides);
    double lower_square = 0, upper_square = 0, dot = 0;
    for (std::int64_t c = lane; c < p.dim; c += kWarp) {
      const double a = static_cast<double>(to_float(lower[c * p.lower_strides[2]]));
      const double b = static_cast<double>(to_float(upper[c * p.upper_strides[2]]));
      lower_square += a * a;
      upper_square += b * b;
      dot += a * b;
    }
    lower_square = warp_sum(lower_square);
    upper_square = warp_sum(upper_square);
    SlerpWeights weights = slerp_weights(lower_square, upper_square, warp_sum(dot), p.t);
    if (!isfinite(lower_square) || !isfinite(upper_square)) weights.lower = NAN;
    const double lower_norm = sqrt(lower_square), upper_norm = sqrt(upper_square);
    for (std::int64_t c = lane; c < p.dim; c += kWarp) {
      const double e =
          weights.lower * static_cast<double>(to_float(lower[c * p.lower_strides[2]])) +
          weights.upper * static_cast<double>(to_float(upper[c * p.upper_strides[2]]));
      merged_lower[c * p.merged_lower_strides[2]] = static_cast<float>(e * lower_norm);
      merged_upper[c * p.merged_upper_strides[2]] = static_cast<float>(e * upper_norm);
    }
  }
}

}  // namespace minicache_merge_cu

void minicache_merge(const MinicacheMerge& io, void* stream) {
  MergeParams p{};
  p.lower = io.lower.data;
  p.upper = io.upper.data;
  p.merged_lower = io.merged_lower.data;
  p.merged_upper = io.merged_upper.data;
  p.heads = io.lower.sizes[0];
  p.tokens = io.lower.sizes[1];
  p.dim = io.lower.sizes[2];
  p.t = io.t;
  copy(io.lower.strides, p.lower_strides);
  copy(io.upper.strides, p.upper_strides);
  copy(io.merged_lower.strides, p.merged_lower_strides);
  copy(io.merged_upper.strides, p.merged_upper_strides);
  with_types(io.lower.type, io.upper.type, [&](auto lower, auto upper) {
    launch("minicache_merge", merge_kernel<decltype(lower), decltype(upper)>,
           {striding_blocks(p.heads * p.tokens * kWarp, kThreads), kThreads,
            static_cast<cudaStream_t>(stream)},
           p);
  });
}

}  // namespace kvatlas::kernels::cuda
