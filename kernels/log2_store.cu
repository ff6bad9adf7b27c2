// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "base/share_code.hpp"
#include "kernels/cuda_support.cuh"
#include "kernels/log2_store_impl.hpp"

namespace kvatlas::kernels::cuda {
inline namespace log2_store_cu {

constexpr int kThreads = 256;

__device__ std::uint8_t code_of_log(float log) {
  if (isnan(log)) return share_code::kUnknown;
  const float place =
      fmaf(log, static_cast<float>(1 / share_code::kScale), static_cast<float>(share_code::kOne));
  return static_cast<std::uint8_t>(
      rintf(fminf(fmaxf(place, 0.0f), static_cast<float>(share_code::kOne))));
}

__global__ void __launch_bounds__(kThreads) store_logarithms(Log2Store io) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = global_thread(); i < io.count; i += step) {
    const float share = io.shares[i];
    const float log = isnan(share) ? share : share < io.least ? -INFINITY : log2f(share);
    if (io.as_half != nullptr)
      io.as_half[i] = __half_as_ushort(__float2half_rn(log));
    else if (io.as_code != nullptr)
      io.as_code[i] = code_of_log(log);
    else
      io.as_float[i] = log;
  }
}

}  // namespace log2_store_cu

void log2_store(const Log2Store& io, void* stream) {
  if (io.count == 0) return;
  launch("log2_store", store_logarithms,
         {striding_blocks(io.count, kThreads), kThreads, static_cast<cudaStream_t>(stream)}, io);
}

}  // namespace kvatlas::kernels::cuda
