// SPDX-License-Identifier: Apache-2.0
// Three kernels for each lag: the range of every channel in every partition (a lane a channel), the
// deviation of every token (a warp a token), the softmax of every partition and the sum of keys
// and values (a block a partition). Sums are trees of fixed shape.
#include <algorithm>
#include <math_constants.h>

#include "kernels/cuda_support.cuh"
#include "kernels/lag_scores_impl.hpp"
#include "kernels/select.cuh"

namespace kvatlas::kernels::cuda {
inline namespace lag_scores_cu {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr std::int64_t kPart = 128;  // tokens of a block of token_deviations

/// Keys or values: [n_heads, n_tokens, dim].
template <class T>
struct Source {
  const T* data;
  std::int64_t head_stride, token_stride, channel_stride, dim;
  __device__ float at(std::int64_t head, std::int64_t token, std::int64_t channel) const {
    return to_float(data[head * head_stride + token * token_stride + channel * channel_stride]);
  }
};
template <class T>
Source<T> source_of(const AnyView<3>& x) {
  return {static_cast<const T*>(x.data), x.strides[0], x.strides[1], x.strides[2], x.sizes[2]};
}

/// How the tokens are cut, and what against.
struct Cut {
  std::int64_t n_heads, sink, lag, partitions;  // partitions that are cut
  std::int64_t shift;  // the reference is so many tokens further on: lag or 0
};

/// Minimum and 1 / (max - min) of the reference's channels; NaN where a value is not finite. Block
/// (partition, head, 32 channels): a lane has a channel, a warp every eighth token.
template <class T>
__global__ void __launch_bounds__(kThreads) channel_ranges(Source<T> x, Cut cut, float2* ranges) {
  __shared__ float lows[kWarps][32], highs[kWarps][32], odds[kWarps][32];
  const std::int64_t partition = blockIdx.x, head = blockIdx.y;
  const std::int64_t begin = cut.sink + partition * cut.lag + cut.shift;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.z) * 32 + lane;
  float low = CUDART_INF_F, high = -CUDART_INF_F, odd = 0;
  for (std::int64_t t = warp; c < x.dim && t < cut.lag; t += kWarps) {
    const float value = x.at(head, begin + t, c);
    low = fminf(low, value);
    high = fmaxf(high, value);
    odd += value * 0.0f;
  }
  lows[warp][lane] = low;
  highs[warp][lane] = high;
  odds[warp][lane] = odd;
  __syncthreads();
  if (warp != 0 || c >= x.dim) return;
  for (int w = 1; w < kWarps; ++w) {
    low = fminf(low, lows[w][lane]);
    high = fmaxf(high, highs[w][lane]);
    odd += odds[w][lane];
  }
  const float width = high - low;
  const float inverse = width < 0x1p-126f ? 0.0f : 1.0f / width;
  ranges[(head * cut.partitions + partition) * x.dim + c] = make_float2(low, inverse + odd);
}

/// deviations[head, partitions * lag]. Block (partition, head, kPart tokens): a warp takes every
/// eighth token, a lane kEach of its channels, whose ranges it keeps.
template <class T, int kEach>
__global__ void __launch_bounds__(kThreads)
    token_deviations(Source<T> x, Cut cut, const float2* ranges, float* deviations) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t partition = blockIdx.x, head = blockIdx.y;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.z) * kPart;
  const std::int64_t end = min(cut.lag, first + kPart);
  const float2* of_channel = ranges + (head * cut.partitions + partition) * x.dim;
  float2 range[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    range[i] = lane + 32 * i < x.dim ? of_channel[lane + 32 * i] : make_float2(0, 0);
  for (std::int64_t t = first + warp; t < end; t += kWarps) {
    const std::int64_t token = partition * cut.lag + t;
    float scaled[kEach], sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      scaled[i] = 0;
      if (lane + 32 * i < x.dim)
        scaled[i] = (x.at(head, cut.sink + token, lane + 32 * i) - range[i].x) * range[i].y;
      sum += scaled[i];
    }
    const float mean = warp_sum(sum) / static_cast<float>(x.dim);
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float off = lane + 32 * i < x.dim ? scaled[i] - mean : 0.0f;
      squares = fmaf(off, off, squares);
    }
    squares = warp_sum(squares);
    if (lane == 0)
      deviations[head * cut.partitions * cut.lag + token] =
          sqrtf(squares / static_cast<float>(x.dim - 1));
  }
}

/// What makes a deviation of a partition its softmax: exp(deviation - top) * norm.
struct Softmax {
  float top, norm;
};
__device__ Softmax softmax_of(const float* deviations, std::int64_t lag, double* shared) {
  float top = 0;
  for (std::int64_t t = threadIdx.x; t < lag; t += kThreads) top = fmaxf(top, deviations[t]);
  top = block_reduce<kThreads>(top, reinterpret_cast<float*>(shared),
                               [](float a, float b) { return fmaxf(a, b); });
  double sum = 0;
  for (std::int64_t t = threadIdx.x; t < lag; t += kThreads)
    sum += static_cast<double>(expf(deviations[t] - top));
  sum = block_reduce<kThreads>(sum, shared, [](double a, double b) { return a + b; });
  return {top, static_cast<float>(1 / sum)};
}

/// Block (partition, head).
__global__ void __launch_bounds__(kThreads)
    add_softmaxes(Cut cut, const float* of_keys, const float* of_values, View<float, 2> scores) {
  __shared__ double shared[kThreads];
  const std::int64_t head = blockIdx.y, first = blockIdx.x * cut.lag;
  of_keys += head * cut.partitions * cut.lag + first;
  of_values += head * cut.partitions * cut.lag + first;
  const Softmax key = softmax_of(of_keys, cut.lag, shared),
                value = softmax_of(of_values, cut.lag, shared);
  for (std::int64_t t = threadIdx.x; t < cut.lag; t += kThreads)
    scores.data[head * scores.strides[0] + (first + t) * scores.strides[1]] =
        expf(of_keys[t] - key.top) * key.norm + expf(of_values[t] - value.top) * value.norm;
}

/// A warp a token.
template <class T>
__global__ void __launch_bounds__(kThreads)
    minus_norms(Source<T> x, Cut cut, View<float, 2> scores) {
  const std::int64_t of_head = cut.partitions * cut.lag;
  const std::int64_t index = global_thread() / 32;
  if (index >= cut.n_heads * of_head) return;
  const std::int64_t head = index / of_head, token = index % of_head;
  float squares = 0;
  for (std::int64_t c = threadIdx.x % 32; c < x.dim; c += 32) {
    const float value = x.at(head, cut.sink + token, c);
    squares = fmaf(value, value, squares);
  }
  squares = warp_sum(squares);
  if (threadIdx.x % 32 == 0)
    scores.data[head * scores.strides[0] + token * scores.strides[1]] = -sqrtf(squares);
}

unsigned blocks_of_warps(std::int64_t warps) {
  return grid_blocks("lag_scores", (warps + kWarps - 1) / kWarps);
}

/// Calls fn with how many channels a lane has, as a constant.
template <class Fn>
void with_channels(std::int64_t dim, Fn&& fn) {
  if (dim <= 4 * 32) return fn(std::integral_constant<int, 4>{});
  if (dim <= 16 * 32) return fn(std::integral_constant<int, 16>{});
  if (dim <= 32 * 32) return fn(std::integral_constant<int, 32>{});
  fail(ErrorCode::unsupported, "the CUDA body takes at most 1024 channels, got ", dim);
}

void score_deviations(const AnyView<3>& x, const Cut& cut, float* deviations, cudaStream_t stream) {
  const Scratch<float2> ranges(cut.n_heads * cut.partitions * x.sizes[2], stream);
  const auto blocks = [&](std::int64_t of_partition, std::int64_t each) {
    return dim3(grid_blocks("lag_scores", cut.partitions), static_cast<unsigned>(cut.n_heads),
                static_cast<unsigned>((of_partition + each - 1) / each));
  };
  with_type(x.type, [&](auto zero) {
    using T = decltype(zero);
    const auto source = source_of<T>(x);
    launch("channel_ranges", channel_ranges<T>, {blocks(x.sizes[2], 32), kThreads, stream}, source,
           cut, ranges.data());
    with_channels(x.sizes[2], [&](auto each) {
      launch("token_deviations", token_deviations<T, each.value>,
             {blocks(cut.lag, kPart), kThreads, stream}, source, cut, ranges.data(), deviations);
    });
  });
}

/// Copies sink and tail, selects in between: block (partition, head), where the last partition is
/// both ends.
__global__ void __launch_bounds__(kSelectThreads)
    kept_positions(View<const float, 2> scores, Cut cut, std::int64_t keep, std::int64_t n_tokens,
                   View<std::int64_t, 2> positions) {
  const std::int64_t partition = blockIdx.x, head = blockIdx.y;
  const auto put = [&](std::int64_t rank, std::int64_t position) {
    positions.data[head * positions.strides[0] + rank * positions.strides[1]] = position;
  };
  const std::int64_t sink = cut.sink < n_tokens ? cut.sink : n_tokens;
  if (partition < cut.partitions) {
    const std::int64_t first = partition * cut.lag;
    select_largest(
        cut.lag, keep,
        [&](std::int64_t t) {
          return scores.data[head * scores.strides[0] + (first + t) * scores.strides[1]];
        },
        [&](std::int64_t rank, std::int64_t t) {
          put(sink + partition * keep + rank, sink + first + t);
        });
    return;
  }
  for (std::int64_t j = threadIdx.x; j < sink; j += kSelectThreads) put(j, j);
  const std::int64_t tail = sink + cut.partitions * cut.lag, written = sink + cut.partitions * keep;
  for (std::int64_t j = tail + threadIdx.x; j < n_tokens; j += kSelectThreads)
    put(written + j - tail, j);
}

}  // namespace lag_scores_cu

void lag_scores(const LagScores& io, void* stream_pointer) {
  const auto stream = static_cast<cudaStream_t>(stream_pointer);
  const std::int64_t n_heads = io.keys.sizes[0], n_tokens = io.keys.sizes[1];
  if (n_heads > 65535)
    fail(ErrorCode::unsupported, "the CUDA body takes at most 65535 heads a call, got ", n_heads);
  for (std::size_t i = 0; i < io.lags.size(); ++i) {
    const std::int64_t lag = io.lags[i];
    const Cut cut = {n_heads, io.sink, lag, lag_cut_partitions(n_tokens, io.sink, lag),
                     io.variant == LagVariant::lag ? lag : 0};
    const std::int64_t scored = n_heads * cut.partitions * lag;
    if (scored == 0) continue;
    if (io.variant == LagVariant::l2) {
      with_type(io.keys.type, [&](auto zero) {
        using T = decltype(zero);
        launch("minus_norms", minus_norms<T>, {blocks_of_warps(scored), kThreads, stream},
               source_of<T>(io.keys), cut, io.scores[i]);
      });
      continue;
    }
    const Scratch<float> of_keys(scored, stream), of_values(scored, stream);
    score_deviations(io.keys, cut, of_keys.data(), stream);
    score_deviations(io.values, cut, of_values.data(), stream);
    const dim3 partitions(grid_blocks("add_softmaxes", cut.partitions),
                          static_cast<unsigned>(n_heads));
    launch("add_softmaxes", add_softmaxes, {partitions, kThreads, stream}, cut, of_keys.data(),
           of_values.data(), io.scores[i]);
  }
}

void lag_kept(const LagKept& io, void* stream_pointer) {
  const std::int64_t n_heads = io.positions.sizes[0];
  if (n_heads == 0 || io.positions.sizes[1] == 0) return;
  if (n_heads > 65535)
    fail(ErrorCode::unsupported, "the CUDA body takes at most 65535 heads a call, got ", n_heads);
  const Cut cut = {n_heads, io.sink, io.lag, lag_cut_partitions(io.n_tokens, io.sink, io.lag), 0};
  const dim3 grid(grid_blocks("kept_positions", cut.partitions + 1),
                  static_cast<unsigned>(n_heads));
  launch("kept_positions", kept_positions,
         {grid, kSelectThreads, static_cast<cudaStream_t>(stream_pointer)}, io.scores, cut, io.keep,
         io.n_tokens, io.positions);
}

}  // namespace kvatlas::kernels::cuda
