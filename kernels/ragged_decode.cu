// SPDX-License-Identifier: Apache-2.0
// Ladder: a block takes a part of one cache for up to 8 query heads of its group, 32 rows at a
// time: a warp takes the dot products of a row with all of them, so each key and value is read
// once; a second kernel joins the parts in order.
#include <algorithm>
#include <cfloat>

#include "kernels/cuda_support.cuh"
#include "kernels/ragged_decode_impl.hpp"

namespace kvatlas::kernels::cuda {
inline namespace ragged_decode_cu {

constexpr int kThreads = 128, kWarp = 32, kWarps = kThreads / kWarp;
constexpr int kQueries = 8, kRows = 32;
static_assert(kRows == kWarp);
// Rows of the cache for which one more part is worth its join, and the most parts.
constexpr std::int64_t kPartRows = 256, kMostParts = 64;
constexpr std::int64_t kMostShared = 40 * 1024;

struct DecodeParams {
  const void *queries, *keys, *values;
  std::int64_t candidates, heads, kv_heads, group, dim, value_dim, rows;
  std::int64_t query_strides[3], key_strides[2], value_strides[2];
  const std::int64_t *starts, *lengths;
  std::int64_t start_strides[2], length_strides[2];
  ScoreUnit unit;
  std::int64_t parts, batches;  // parts of a cache, batches of kQueries query heads in a group
  float* partials;  // [candidates, heads, parts, 2 + value_dim]: maximum, sum, weighted values
  float *out, *lse;
  std::int64_t out_strides[3], lse_strides[2];
};

/// The rows of a cache that part `part` takes; rows outside the cache are left out.
__device__ void part_rows(const DecodeParams& p, std::int64_t c, std::int64_t g, std::int64_t part,
                          std::int64_t* first, std::int64_t* count) {
  const std::int64_t start = p.starts[c * p.start_strides[0] + g * p.start_strides[1]];
  std::int64_t length = p.lengths[c * p.length_strides[0] + g * p.length_strides[1]];
  if (start < 0 || start > p.rows) length = 0;
  length = max(std::int64_t{0}, min(length, p.rows - start));
  const std::int64_t each = ((length + p.parts - 1) / p.parts + kRows - 1) / kRows * kRows;
  *first = start + part * each;
  *count = max(std::int64_t{0}, min(each, length - part * each));
}

/// T: the element type of keys and values.
template <class Q, class T>
__global__ void __launch_bounds__(kThreads) decode_kernel(DecodeParams p) {
  __shared__ float scores[kQueries][kRows], top[kQueries], sum[kQueries], shrink[kQueries];
  float* const queries = dynamic_shared();         // [kQueries][dim]
  float* const mean = queries + kQueries * p.dim;  // [kQueries][value_dim]: weighted values
  std::int64_t block = blockIdx.x;
  const std::int64_t part = block % p.parts;
  block /= p.parts;
  const std::int64_t batch = block % p.batches;
  block /= p.batches;
  const std::int64_t g = block % p.kv_heads, c = block / p.kv_heads;
  const std::int64_t first_head = g * p.group + batch * kQueries;
  const int taken = static_cast<int>(min(std::int64_t{kQueries}, p.group - batch * kQueries));
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;

  for (std::int64_t e = threadIdx.x; e < kQueries * p.dim; e += kThreads) {
    const std::int64_t q = e / p.dim, d = e % p.dim;
    queries[e] =
        q < taken ? to_float(static_cast<const Q*>(
                        p.queries)[c * p.query_strides[0] + (first_head + q) * p.query_strides[1] +
                                   d * p.query_strides[2]])
                  : 0.0f;
  }
  for (std::int64_t e = threadIdx.x; e < kQueries * p.value_dim; e += kThreads) mean[e] = 0;
  if (threadIdx.x < kQueries) {
    top[threadIdx.x] = -FLT_MAX;
    sum[threadIdx.x] = 0;
  }
  __syncthreads();

  std::int64_t first, count;
  part_rows(p, c, g, part, &first, &count);
  for (std::int64_t r0 = 0; r0 < count; r0 += kRows) {
    const int rows = static_cast<int>(min(std::int64_t{kRows}, count - r0));
    for (int r = warp; r < kRows; r += kWarps) {
      float dot[kQueries] = {};
      if (r < rows) {
        const T* key = static_cast<const T*>(p.keys) + (first + r0 + r) * p.key_strides[0];
        for (std::int64_t d = lane; d < p.dim; d += kWarp) {
          const float k = to_float(key[d * p.key_strides[1]]);
#pragma unroll
          for (int q = 0; q < kQueries; ++q) dot[q] = fmaf(queries[q * p.dim + d], k, dot[q]);
        }
      }
#pragma unroll
      for (int q = 0; q < kQueries; ++q) {
        const float score = p.unit(warp_sum(dot[q]));
        if (lane == 0) scores[q][r] = r < rows ? score : -INFINITY;
      }
    }
    __syncthreads();
    for (int q = warp; q < taken; q += kWarps) {
      const float score = scores[q][lane];
      float most = score;
      for (int offset = kWarp / 2; offset > 0; offset /= 2)
        most = fmaxf(most, __shfl_xor_sync(~0u, most, offset));
      const float before = top[q], now = fmaxf(before, most);
      const float weight = exp2f(score - now);
      const float total = warp_sum(weight);
      scores[q][lane] = weight;
      __syncwarp();
      if (lane == 0) {
        shrink[q] = exp2f(before - now);
        sum[q] = sum[q] * shrink[q] + total;
        top[q] = now;
      }
    }
    __syncthreads();
    for (std::int64_t d = threadIdx.x; d < p.value_dim; d += kThreads) {
      float mine[kQueries] = {};  // the tile's own sums, so that no float32 sum grows long
      for (int r = 0; r < rows; ++r) {
        const float value = to_float(static_cast<const T*>(
            p.values)[(first + r0 + r) * p.value_strides[0] + d * p.value_strides[1]]);
#pragma unroll
        for (int q = 0; q < kQueries; ++q)
          if (q < taken) mine[q] = fmaf(scores[q][r], value, mine[q]);
      }
#pragma unroll
      for (int q = 0; q < kQueries; ++q)
        if (q < taken) {
          float& so_far = mean[q * p.value_dim + d];
          so_far = fmaf(so_far, shrink[q], mine[q]);
        }
    }
    __syncthreads();
  }

  const std::int64_t size = 2 + p.value_dim;
  for (std::int64_t e = threadIdx.x; e < taken * size; e += kThreads) {
    const std::int64_t q = e / size, d = e % size;
    p.partials[((c * p.heads + first_head + q) * p.parts + part) * size + d] =
        d == 0   ? top[q]
        : d == 1 ? sum[q]
                 : mean[q * p.value_dim + d - 2];
  }
}

/// A block joins the parts of one query head, in their order.
__global__ void __launch_bounds__(kThreads) join_kernel(DecodeParams p) {
  const std::int64_t c = blockIdx.x / p.heads, h = blockIdx.x % p.heads, size = 2 + p.value_dim;
  const float* partials = p.partials + static_cast<std::int64_t>(blockIdx.x) * p.parts * size;
  float top = -FLT_MAX;
  for (std::int64_t part = 0; part < p.parts; ++part) top = fmaxf(top, partials[part * size]);
  double total = 0;
  for (std::int64_t part = 0; part < p.parts; ++part)
    total += static_cast<double>(exp2f(partials[part * size] - top)) *
             static_cast<double>(partials[part * size + 1]);
  for (std::int64_t d = threadIdx.x; d < p.value_dim; d += kThreads) {
    double mean = 0;
    for (std::int64_t part = 0; part < p.parts; ++part)
      mean += static_cast<double>(exp2f(partials[part * size] - top)) *
              static_cast<double>(partials[part * size + 2 + d]);
    p.out[c * p.out_strides[0] + h * p.out_strides[1] + d * p.out_strides[2]] =
        total == 0 ? 0.0f : static_cast<float>(mean / total);
  }
  if (threadIdx.x == 0 && p.lse != nullptr)
    p.lse[c * p.lse_strides[0] + h * p.lse_strides[1]] =
        static_cast<float>((static_cast<double>(top) + log2(total)) / kLog2E);
}

}  // namespace ragged_decode_cu

void ragged_decode(const RaggedDecode& io, void* stream) {
  DecodeParams p{};
  p.queries = io.queries.data;
  p.keys = io.keys.data;
  p.values = io.values.data;
  p.candidates = io.queries.sizes[0];
  p.heads = io.queries.sizes[1];
  p.kv_heads = io.starts.sizes[1];
  p.group = p.heads / p.kv_heads;
  p.dim = io.queries.sizes[2];
  p.value_dim = io.values.sizes[1];
  p.rows = io.keys.sizes[0];
  p.starts = io.starts.data;
  p.lengths = io.lengths.data;
  p.out = io.out.data;
  p.lse = io.lse.data;
  copy(io.queries.strides, p.query_strides);
  copy(io.out.strides, p.out_strides);
  copy(io.keys.strides, p.key_strides);
  copy(io.values.strides, p.value_strides);
  copy(io.starts.strides, p.start_strides);
  copy(io.lengths.strides, p.length_strides);
  copy(io.lse.strides, p.lse_strides);
  p.unit = score_unit(io.scale, io.soft_cap);
  p.parts = std::clamp<std::int64_t>(p.rows / kPartRows, 1, kMostParts);
  p.batches = (p.group + kQueries - 1) / kQueries;
  const std::int64_t shared = kQueries * (p.dim + p.value_dim) * std::int64_t{sizeof(float)};
  if (shared > kMostShared)
    fail(ErrorCode::unsupported, "ragged_decode on CUDA: head sizes ", p.dim, " and ", p.value_dim,
         ", it takes at most ", kMostShared / kQueries / std::int64_t{sizeof(float)}, " together");
  const unsigned blocks =
      grid_blocks("ragged_decode", p.candidates * p.kv_heads * p.batches * p.parts);
  const unsigned heads = grid_blocks("ragged_decode", p.candidates * p.heads);
  const auto on = static_cast<cudaStream_t>(stream);
  const Scratch<float> partials(p.candidates * p.heads * p.parts * (2 + p.value_dim), on);
  p.partials = partials.data();
  with_types(io.queries.type, io.keys.type, [&](auto query, auto key) {
    launch("ragged_decode", decode_kernel<decltype(query), decltype(key)>,
           {blocks, kThreads, on, shared}, p);
  });
  launch("ragged_decode", join_kernel, {heads, kThreads, on}, p);
}

}  // namespace kvatlas::kernels::cuda
