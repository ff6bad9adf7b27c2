// SPDX-License-Identifier: Apache-2.0
// Per channel a thread takes the channels of one code byte, 32 tokens of them; per token a warp
// takes a group, a lane a channel. The arithmetic is that of the host to the bit: no product is
// added to here but exact ones.
#include "kernels/cuda_support.cuh"
#include "kernels/kv_quant_impl.hpp"

namespace kvatlas::kernels::cuda {
inline namespace kv_quant_cu {

constexpr int kThreads = 256, kWarp = 32;
static_assert(kQuantGroup == kWarp);

struct QuantParams {
  std::int64_t heads, tokens, dim, bytes;
  int bits;
  const void* from;  // quantise
  float* to;         // dequantise
  std::int64_t data_strides[3];
  std::uint8_t* codes;
  std::uint16_t *scales, *minima;
  std::int64_t code_strides[3], scale_strides[3], minimum_strides[3];
};

__device__ std::int64_t at(const std::int64_t (&strides)[3], std::int64_t a, std::int64_t b,
                           std::int64_t c) {
  return a * strides[0] + b * strides[1] + c * strides[2];
}

/// quant_scale of kv_quant_impl.hpp on the device.
struct DeviceScale {
  std::uint16_t scale, minimum;
  float inverse, low;
};

__device__ DeviceScale device_scale(float low, float high, bool finite, int bits) {
  const __half minimum = __float2half_rn(low == 0 ? 0.0f : low);
  const __half scale = __float2half_rn(__fdiv_rn(high - low, static_cast<float>((1 << bits) - 1)));
  const float width = __half2float(scale);
  if (!finite || !isfinite(width) || !isfinite(__half2float(minimum))) return {0x7e00, 0, 0, 0};
  return {__half_as_ushort(scale), __half_as_ushort(minimum),
          width > 0 ? __fdiv_rn(1.0f, width) : 0.0f, __half2float(minimum)};
}

__device__ int code_of(float x, const DeviceScale& scale, int bits) {
  const float code = rintf((x - scale.low) * scale.inverse);
  if (isnan(code)) return 0;
  return static_cast<int>(fminf(fmaxf(code, 0.0f), static_cast<float>((1 << bits) - 1)));
}

template <class T>
__global__ void quantise_channels(QuantParams p) {
  const T* from = static_cast<const T*>(p.from);
  const int per_byte = 8 / p.bits;
  const std::int64_t groups = quant_groups(p.tokens), items = p.heads * groups * p.bytes;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t item = global_thread(); item < items; item += step) {
    const std::int64_t b = item % p.bytes, g = item / p.bytes % groups, h = item / p.bytes / groups;
    const std::int64_t first = g * kQuantGroup, end = min(p.tokens, first + kQuantGroup);
    DeviceScale scales[4] = {};
    for (int k = 0; k < per_byte; ++k) {
      const std::int64_t c = b * per_byte + k;
      if (c >= p.dim) break;
      float low = INFINITY, high = -INFINITY;
      bool finite = true;
      for (std::int64_t i = first; i < end; ++i) {
        const float x = to_float(from[at(p.data_strides, h, i, c)]);
        finite = finite && isfinite(x);
        low = fminf(low, x);
        high = fmaxf(high, x);
      }
      scales[k] = device_scale(low, high, finite, p.bits);
      p.scales[at(p.scale_strides, h, g, c)] = scales[k].scale;
      p.minima[at(p.minimum_strides, h, g, c)] = scales[k].minimum;
    }
    for (std::int64_t i = first; i < end; ++i) {
      int byte = 0;
      for (int k = 0; k < per_byte; ++k) {
        const std::int64_t c = b * per_byte + k;
        if (c < p.dim)
          byte |= code_of(to_float(from[at(p.data_strides, h, i, c)]), scales[k], p.bits)
                  << (k * p.bits);
      }
      p.codes[at(p.code_strides, h, i, b)] = static_cast<std::uint8_t>(byte);
    }
  }
}

template <class T>
__global__ void quantise_tokens(QuantParams p) {
  const T* from = static_cast<const T*>(p.from);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, per_byte = 8 / p.bits;
  const std::int64_t groups = quant_groups(p.dim), items = p.heads * p.tokens * groups;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * (kThreads / kWarp);
  for (std::int64_t item = global_thread() / kWarp; item < items; item += step) {
    const std::int64_t g = item % groups, i = item / groups % p.tokens,
                       h = item / groups / p.tokens;
    const std::int64_t c = g * kQuantGroup + lane;
    const bool there = c < p.dim;
    const float x = there ? to_float(from[at(p.data_strides, h, i, c)]) : 0.0f;
    float low = there ? x : INFINITY, high = there ? x : -INFINITY;
    for (int offset = kWarp / 2; offset > 0; offset /= 2) {
      low = fminf(low, __shfl_xor_sync(~0u, low, offset));
      high = fmaxf(high, __shfl_xor_sync(~0u, high, offset));
    }
    const bool finite = __all_sync(~0u, isfinite(x)) != 0;
    const DeviceScale scale = device_scale(low, high, finite, p.bits);
    const int code = there ? code_of(x, scale, p.bits) : 0;
    int byte = 0;
    for (int k = 0; k < per_byte; ++k)
      byte |= __shfl_sync(~0u, code, (lane * per_byte + k) % kWarp) << (k * p.bits);
    // Lanes past the group's bytes hold copies of the first ones.
    const std::int64_t b = g * (kQuantGroup / per_byte) + lane;
    if (lane < kQuantGroup / per_byte && b < p.bytes)
      p.codes[at(p.code_strides, h, i, b)] = static_cast<std::uint8_t>(byte);
    if (lane == 0) {
      p.scales[at(p.scale_strides, h, i, g)] = scale.scale;
      p.minima[at(p.minimum_strides, h, i, g)] = scale.minimum;
    }
  }
}

__global__ void dequantise(QuantParams p, bool per_token) {
  const std::int64_t items = p.heads * p.tokens * p.dim;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t item = global_thread(); item < items; item += step) {
    const std::int64_t c = item % p.dim, i = item / p.dim % p.tokens, h = item / p.dim / p.tokens;
    const std::int64_t s0 = per_token ? i : i / kQuantGroup, s1 = per_token ? c / kQuantGroup : c;
    const int code =
        p.codes[at(p.code_strides, h, i, c * p.bits / 8)] >> (c * p.bits % 8) & ((1 << p.bits) - 1);
    const float scale = __half2float(__ushort_as_half(p.scales[at(p.scale_strides, h, s0, s1)]));
    const float minimum =
        __half2float(__ushort_as_half(p.minima[at(p.minimum_strides, h, s0, s1)]));
    p.to[at(p.data_strides, h, i, c)] = minimum + static_cast<float>(code) * scale;
  }
}

QuantParams params(const QuantisedCache& cache, const std::array<std::int64_t, 3>& sizes,
                   const std::array<std::int64_t, 3>& strides) {
  QuantParams p{};
  p.heads = sizes[0];
  p.tokens = sizes[1];
  p.dim = sizes[2];
  p.bytes = cache.codes.sizes[2];
  p.bits = cache.bits;
  p.codes = cache.codes.data;
  p.scales = cache.scales.data;
  p.minima = cache.minima.data;
  copy(strides, p.data_strides);
  copy(cache.codes.strides, p.code_strides);
  copy(cache.scales.strides, p.scale_strides);
  copy(cache.minima.strides, p.minimum_strides);
  return p;
}

unsigned blocks_for(std::int64_t threads) { return striding_blocks(threads, kThreads); }

}  // namespace kv_quant_cu

void kv_quantise(const KvQuantise& io, void* stream) {
  QuantParams p = params(io.to, io.from.sizes, io.from.strides);
  p.from = io.from.data;
  const auto on = static_cast<cudaStream_t>(stream);
  with_type(io.from.type, [&](auto type) {
    using T = decltype(type);
    if (io.to.axis == QuantAxis::per_channel)
      launch("kv_quantise", quantise_channels<T>,
             {blocks_for(p.heads * quant_groups(p.tokens) * p.bytes), kThreads, on}, p);
    else
      launch("kv_quantise", quantise_tokens<T>,
             {blocks_for(p.heads * p.tokens * quant_groups(p.dim) * kWarp), kThreads, on}, p);
  });
}

void kv_dequantise(const KvDequantise& io, void* stream) {
  QuantParams p = params(io.from, io.to.sizes, io.to.strides);
  p.to = io.to.data;
  launch("kv_dequantise", dequantise,
         {blocks_for(p.heads * p.tokens * p.dim), kThreads, static_cast<cudaStream_t>(stream)}, p,
         io.from.axis == QuantAxis::per_token);
}

}  // namespace kvatlas::kernels::cuda
