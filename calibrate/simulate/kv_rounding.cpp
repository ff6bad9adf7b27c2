// SPDX-License-Identifier: Apache-2.0
// Keys and values as their number formats give them back (docs/precision.md).
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "calibrate/simulate/cache_copies_impl.hpp"
#include "kernels/kv_quant.hpp"

namespace kvatlas::calibrate {
namespace {

using capture::any_view;
using capture::view_of;

/// Channels that share a scale in q8_0 and q4_0.
constexpr std::int64_t kBlock = 32;

/// Groups of 32 tokens of a channel, or of 32 channels of a token.
at::Tensor in_groups(const at::Tensor& rows, kernels::QuantAxis axis, int bits) {
  const at::Tensor one_head = rows.unsqueeze(0);
  const std::int64_t n = one_head.size(1), d = one_head.size(2);
  const bool channels = axis == kernels::QuantAxis::per_channel;
  const auto on = one_head.options();
  const at::Tensor codes =
      at::empty({1, n, kernels::quant_code_bytes(d, bits)}, on.dtype(at::kByte));
  using Shape = std::array<std::int64_t, 3>;
  const Shape shape =
      channels ? Shape{1, kernels::quant_groups(n), d} : Shape{1, n, kernels::quant_groups(d)};
  const at::Tensor scales = at::empty(shape, on.dtype(at::kShort));
  const at::Tensor minima = at::empty_like(scales);
  const kernels::QuantisedCache cache{bits, axis, view_of<std::uint8_t, 3>(codes),
                                      view_of<std::uint16_t, 3>(scales),
                                      view_of<std::uint16_t, 3>(minima)};
  kernels::kv_quantise({any_view<3>(one_head), cache});
  const at::Tensor restored = at::empty(one_head.sizes(), on.dtype(at::kFloat));
  kernels::kv_dequantise({cache, view_of<float, 3>(restored)});
  return restored.squeeze(0);
}

/// What a float16 scale becomes in storage, and a factor that is 0 where the scale is.
struct Scale {
  explicit Scale(const at::Tensor& exact)
      : stored(exact.to(at::kHalf).to(at::kFloat)),
        inverse(at::where(exact == 0, at::zeros_like(exact), exact.reciprocal())) {}
  at::Tensor stored, inverse;
};

/// The nearest whole number, halves away from zero.
at::Tensor rounded(const at::Tensor& x) {
  const at::Tensor size = x.abs(), whole = at::floor(size);
  return at::sign(x) * (whole + (size - whole >= 0.5).to(at::kFloat));
}

at::Tensor to_q8_0(const at::Tensor& blocks) {
  const Scale scale(blocks.abs().amax(-1, true) / 127);
  return rounded(blocks * scale.inverse) * scale.stored;
}

/// The value of the largest size becomes -8 times the scale, whatever its sign.
at::Tensor to_q4_0(const at::Tensor& blocks) {
  const Scale scale(blocks.gather(-1, blocks.abs().argmax(-1, true)) / -8);
  const at::Tensor codes =
      (blocks.to(at::kDouble) * scale.inverse.to(at::kDouble) + 8.5).clamp(0, 15).floor();
  return (codes - 8).to(at::kFloat) * scale.stored;
}

/// The Walsh-Hadamard matrix of this order, a power of two. It is its own inverse.
at::Tensor hadamard(std::uint64_t order, const at::Device& device) {
  const auto size = static_cast<float>(1 / std::sqrt(static_cast<double>(order)));
  std::vector<float> values;
  values.reserve(order * order);
  for (std::uint64_t row = 0; row < order; ++row)
    for (std::uint64_t column = 0; column < order; ++column)
      values.push_back(std::popcount(row & column) % 2 == 0 ? size : -size);
  const auto side = static_cast<std::int64_t>(order);
  return at::tensor(values).view({side, side}).to(device);
}

/// As llama.cpp stores them: rotated before they are rounded, which spreads large numbers over all
/// others, if heads have a multiple of 64 channels. Queries are rotated alike and attention's
/// result is rotated back there, which comes to the same as rotating back what was stored.
template <class Round>
at::Tensor in_rotated(const at::Tensor& rows, KvSide side, const Round& round) {
  constexpr std::int64_t kLeast = 64;
  const std::int64_t d = rows.size(-1);
  if (d % kLeast != 0) return round(rows);
  std::int64_t order = kLeast;
  while (side == KvSide::keys && d % (2 * order) == 0) order *= 2;
  const at::Tensor matrix = hadamard(static_cast<std::uint64_t>(order), rows.device());
  const auto rotate = [&](const at::Tensor& flat) {
    return flat.reshape({-1, order}).matmul(matrix).view({-1, d});
  };
  return rotate(round(rotate(rows.to(at::kFloat))));
}

template <class Round>
at::Tensor in_blocks(const at::Tensor& rows, const Round& round) {
  const std::int64_t d = rows.size(-1), missing = (kBlock - d % kBlock) % kBlock;
  const at::Tensor blocks =
      at::constant_pad_nd(rows.to(at::kFloat), {0, missing}).view({rows.size(0), -1, kBlock});
  return round(blocks).view({rows.size(0), d + missing}).narrow(-1, 0, d);
}

at::Tensor to_fp8(const at::Tensor& rows) {
  constexpr double kLargest = 448;
  return rows.to(at::kFloat).clamp(-kLargest, kLargest).to(at::kFloat8_e4m3fn).to(at::kFloat);
}

}  // namespace

void round_rows(const at::Tensor& rows, KvFormat format, KvSide side) {
  if (rows.size(0) == 0 || format == KvFormat::f16) return;
  const auto axis =
      side == KvSide::keys ? kernels::QuantAxis::per_channel : kernels::QuantAxis::per_token;
  const auto llama_cpp = [&](const auto& round) {
    return in_rotated(rows, side, [&](const at::Tensor& x) { return in_blocks(x, round); });
  };
  rows.copy_(format == KvFormat::fp8    ? to_fp8(rows)
             : format == KvFormat::q8_0 ? llama_cpp(to_q8_0)
             : format == KvFormat::q4_0 ? llama_cpp(to_q4_0)
                                        : in_groups(rows, axis, format == KvFormat::int4 ? 4 : 2));
}

void round_scaled(const at::Tensor& rows, KvFormat format, KvSide side, double scale) {
  if (format != KvFormat::fp8 || scale == 1) return round_rows(rows, format, side);
  // Engines hold scales in float32, and so is every step.
  const auto factor = at::scalar_tensor(scale, rows.options().dtype(at::kFloat));
  const at::Tensor divided = rows.to(at::kFloat) / factor;
  round_rows(divided, format, side);
  rows.copy_(divided * factor);
}

void round_layer(const Policy& policy, std::int64_t layer, const AnyView<3>& key,
                 const AnyView<3>& value) {
  const auto* part = part_of_type<Precision>(policy);
  const Fp8Scales none, &scales = part && part->scales ? *part->scales : none;
  const auto round = [&](const AnyView<3>& rows, KvFormat format, KvSide side,
                         const HeadScales& of_side) {
    const auto heads = capture::tensor_of(rows).unbind(0);
    for (std::int64_t head = 0; head < std::ssize(heads); ++head)
      round_scaled(heads[static_cast<std::size_t>(head)], format, side,
                   scale_in(of_side, layer, head));
  };
  const KvFormats formats = formats_of(policy, layer);
  round(key, formats.keys, KvSide::keys, scales.keys);
  round(value, formats.values, KvSide::values, scales.values);
}

}  // namespace kvatlas::calibrate
