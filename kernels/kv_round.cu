// SPDX-License-Identifier: Apache-2.0
// A block of threads takes a row at a time and holds it in its shared memory. The arithmetic is
// that of the host to the bit.
#include "kernels/cuda_support.cuh"
#include "kernels/kv_round_impl.hpp"

namespace kvatlas::kernels::cuda {
inline namespace kv_round_cu {

constexpr int kThreads = 64;

struct DeviceOps {
  static __device__ float mul(float a, float b) { return __fmul_rn(a, b); }
  static __device__ float div(float a, float b) { return __fdiv_rn(a, b); }
  static __device__ float half(float x) { return __half2float(__float2half_rn(x)); }
};

struct RoundParams {
  RowFormat format;
  std::int64_t tokens, rows, dim;
  const void* from;
  float* to;
  std::int64_t from_strides[3], to_strides[3];
  float scale;
  RowTables tables;
};

/// Calls fn(c) for each c below `count`, which the threads share out, and waits for all.
template <class Fn>
__device__ void each(std::int64_t count, Fn&& fn) {
  for (std::int64_t c = threadIdx.x; c < count; c += kThreads) fn(c);
  __syncthreads();
}

/// The rotation of Walsh and Hadamard, without its factor, of blocks of this order.
__device__ void rotate(float* row, std::int64_t size, std::int64_t order) {
  for (std::int64_t reach = 1; reach < order; reach *= 2)
    each(size / 2, [&](std::int64_t i) {
      float* const first = row + i / reach * 2 * reach + i % reach;
      const float a = first[0], b = first[reach];
      first[0] = a + b;
      first[reach] = a - b;
    });
}

/// The same rotation of the whole row, as a matrix with this factor is multiplied by it.
__device__ void project(float* row, std::int64_t size, float unit, float* scratch) {
  each(size, [&](std::int64_t c) {
    float sum = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      int odd = 0;
      for (std::int64_t both = i & c; both != 0; both &= both - 1) odd ^= 1;
      sum = sum_of_product(sum, row[i], odd != 0 ? -unit : unit);
    }
    scratch[c] = sum;
  });
  each(size, [&](std::int64_t c) { row[c] = scratch[c]; });
}

__device__ void turn(float* row, std::int64_t size, std::int64_t order, const RowTables& tables) {
  each(size, [&](std::int64_t c) {
    const std::int64_t i = c % order;
    if ((tables.signs[i / 32] >> (i % 32) & 1u) != 0) row[c] = -row[c];
  });
}

/// In every thread; `squares` is scratch.
__device__ double square_sum(const float* row, std::int64_t size, double* squares) {
  each(size, [&](std::int64_t c) {
    squares[c] = static_cast<double>(row[c]) * static_cast<double>(row[c]);
  });
  for (std::int64_t half = size / 2; half > 0; half /= 2)
    each(half, [&](std::int64_t c) { squares[c] += squares[c + half]; });
  const double sum = squares[0];
  __syncthreads();
  return sum;
}

/// GroupStats of a whole row, for shared memory, which takes no values at the start.
struct RowStats {
  float low, high;
  bool finite;
};

__device__ RowStats joined(const RowStats& a, const RowStats& b) {
  return {fminf(a.low, b.low), fmaxf(a.high, b.high), a.finite && b.finite};
}

__device__ void round_groups(const RoundParams& p, float* row) {
  const std::int64_t group = row_group(p.format);
  if (group == 0) {
    __shared__ RowStats shared[kThreads];
    GroupStats stats;
    for (std::int64_t c = threadIdx.x; c < p.dim; c += kThreads) stats.add(row[c]);
    const RowStats all =
        block_reduce<kThreads>(RowStats{stats.low, stats.high, stats.finite}, shared, joined);
    stats.low = all.low;
    stats.high = all.high;
    stats.finite = all.finite;
    const GroupCode code = group_code<DeviceOps>(p.format, stats, p.scale);
    each(p.dim, [&](std::int64_t c) {
      row[c] = restored<DeviceOps>(p.format, row[c], code, p.tables, p.scale);
    });
    return;
  }
  each((p.dim + group - 1) / group, [&](std::int64_t g) {
    float* const first = row + g * group;
    const std::int64_t count = min(group, p.dim - g * group);
    GroupCode code;
    if (group > 1) {
      GroupStats stats;
      for (std::int64_t c = 0; c < count; ++c) stats.add(first[c]);
      code = group_code<DeviceOps>(p.format, stats, p.scale);
    }
    if (p.format == RowFormat::iq4_nl) scale_of_levels<DeviceOps>(code, first, count, p.tables);
    for (std::int64_t c = 0; c < count; ++c)
      first[c] = restored<DeviceOps>(p.format, first[c], code, p.tables, p.scale);
  });
}

__device__ void round_row(const RoundParams& p, float* row, double* squares) {
  if (p.format == RowFormat::int4_row) {
    const std::int64_t order = rotated_at_a_time(p.dim);
    turn(row, p.dim, order, p.tables);
    rotate(row, p.dim, order);
    round_groups(p, row);
    rotate(row, p.dim, order);
    turn(row, p.dim, order, p.tables);
    each(p.dim, [&](std::int64_t c) { row[c] = __fdiv_rn(row[c], static_cast<float>(order)); });
  } else if (is_lloyd(p.format)) {
    const float unit = lloyd_unit(p.dim);
    const auto length = static_cast<float>(sqrt(square_sum(row, p.dim, squares)));
    each(p.dim, [&](std::int64_t c) { row[c] = __fdiv_rn(row[c], length + kLloydLeast); });
    project(row, p.dim, unit, reinterpret_cast<float*>(squares));
    round_groups(p, row);
    const float again = lloyd_correction(square_sum(row, p.dim, squares)),
                stored = DeviceOps::half(length);
    each(p.dim, [&](std::int64_t c) { row[c] = __fmul_rn(stored, __fmul_rn(row[c], again)); });
    project(row, p.dim, unit, reinterpret_cast<float*>(squares));
  } else {
    round_groups(p, row);
  }
}

template <class T>
__global__ void round_all(RoundParams p) {
  const T* from = static_cast<const T*>(p.from);
  float* const shared = dynamic_shared();
  auto* const squares = reinterpret_cast<double*>(shared);
  float* const row = is_lloyd(p.format) ? shared + 2 * p.dim : shared;
  for (std::int64_t r = blockIdx.x; r < p.rows; r += gridDim.x) {
    const std::int64_t h = r / p.tokens, i = r % p.tokens;
    each(p.dim, [&](std::int64_t c) {
      row[c] =
          to_float(from[h * p.from_strides[0] + i * p.from_strides[1] + c * p.from_strides[2]]);
    });
    round_row(p, row, squares);
    each(p.dim, [&](std::int64_t c) {
      p.to[h * p.to_strides[0] + i * p.to_strides[1] + c * p.to_strides[2]] = row[c];
    });
  }
}

}  // namespace kv_round_cu

void kv_round(const KvRound& io, void* stream) {
  RoundParams p{};
  p.format = io.format;
  p.tokens = io.from.sizes[1];
  p.rows = io.from.sizes[0] * p.tokens;
  p.dim = io.from.sizes[2];
  p.from = io.from.data;
  p.to = io.to.data;
  copy(io.from.strides, p.from_strides);
  copy(io.to.strides, p.to_strides);
  p.scale = io.scale;
  p.tables = row_tables(io.format, p.dim);
  const std::int64_t bytes =
      p.dim * static_cast<std::int64_t>(sizeof(float) + (is_lloyd(io.format) ? sizeof(double) : 0));
  with_type(io.from.type, [&](auto type) {
    launch("kv_round", round_all<decltype(type)>,
           {striding_blocks(p.rows * kThreads, kThreads), kThreads,
            static_cast<cudaStream_t>(stream), bytes},
           p);
  });
}

}  // namespace kvatlas::kernels::cuda
