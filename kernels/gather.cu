// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda_support.cuh"
#include "kernels/gather_impl.hpp"

namespace kvatlas::kernels::cuda {
inline namespace gather_cu {

constexpr int kThreads = 256, kWarp = 32;

template <class T>
struct GatherParams {
  const T* from;
  std::int64_t heads, tokens, dim, strides[3];
  const std::int64_t *positions, *offsets, *starts;
  std::int64_t position_step, offset_step, start_step, kept, to_rows;
  T* to;
};

/// A warp copies a row.
template <class T>
__global__ void gather_kernel(GatherParams<T> p) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (kThreads / kWarp);
  for (std::int64_t i = global_thread() / kWarp; i < p.kept; i += warps) {
    std::int64_t g = 0;
    while (g < p.heads &&
           !(p.offsets[g * p.offset_step] <= i && i < p.offsets[(g + 1) * p.offset_step]))
      ++g;
    if (g == p.heads) continue;
    const std::int64_t position = p.positions[i * p.position_step];
    const std::int64_t within = i - p.offsets[g * p.offset_step],
                       start = p.starts[g * p.start_step];
    if (position < 0 || position >= p.tokens || start < 0 || start >= p.to_rows - within) continue;
    const T* from = p.from + g * p.strides[0] + position * p.strides[1];
    T* to = p.to + (start + within) * p.dim;
    for (std::int64_t c = lane; c < p.dim; c += kWarp) to[c] = from[c * p.strides[2]];
  }
}

template <class T>
void copy_rows(const Gather& io, cudaStream_t stream) {
  GatherParams<T> p{static_cast<const T*>(io.from.data),
                    io.from.sizes[0],
                    io.from.sizes[1],
                    io.from.sizes[2],
                    {io.from.strides[0], io.from.strides[1], io.from.strides[2]},
                    io.positions.data,
                    io.offsets.data,
                    io.starts.data,
                    io.positions.strides[0],
                    io.offsets.strides[0],
                    io.starts.strides[0],
                    io.positions.sizes[0],
                    io.to_rows,
                    static_cast<T*>(io.to)};
  if (p.kept == 0 || p.dim == 0) return;
  launch("gather", gather_kernel<T>, {striding_blocks(p.kept * kWarp, kThreads), kThreads, stream},
         p);
}

}  // namespace gather_cu

void gather(const Gather& io, void* stream) {
  // Bits are copied, so only the size of an element matters.
  if (io.from.type == DType::f32)
    copy_rows<std::uint32_t>(io, static_cast<cudaStream_t>(stream));
  else
    copy_rows<std::uint16_t>(io, static_cast<cudaStream_t>(stream));
}

}  // namespace kvatlas::kernels::cuda
