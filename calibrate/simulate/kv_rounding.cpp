// SPDX-License-Identifier: Apache-2.0
// Keys and values as their number formats give them back (docs/precision.md).
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include "analyzer/capture/tensors-inl.hpp"
#include "calibrate/simulate/cache_copies_impl.hpp"
#include "kernels/kv_quant.hpp"
#include "kernels/kv_round.hpp"

namespace kvatlas::calibrate {
namespace {

using capture::any_view;
using capture::view_of;

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

/// By the kernel, which rounds each row by itself.
at::Tensor in_rows(const at::Tensor& rows, kernels::RowFormat format, double scale = 1) {
  const at::Tensor one_head = rows.unsqueeze(0);
  const at::Tensor restored = at::empty(one_head.sizes(), one_head.options().dtype(at::kFloat));
  kernels::kv_round(
      {format, any_view<3>(one_head), view_of<float, 3>(restored), static_cast<float>(scale)});
  return restored.squeeze(0);
}

/// Scales are those of FP8 caches, and of NVFP4, whose blocks have theirs beside.
bool takes_scale(KvFormat format) {
  constexpr KvFormat kTake[] = {KvFormat::fp8, KvFormat::fp8_cpu, KvFormat::fp8_e5m2,
                                KvFormat::fp8_e5m2_cpu, KvFormat::nvfp4};
  return std::find(std::begin(kTake), std::end(kTake), format) != std::end(kTake);
}

}  // namespace

void round_rows(const at::Tensor& rows, KvFormat format, KvSide side, double scale) {
  if (rows.size(0) == 0 || format == KvFormat::f16) return;
  const KvFormatFacts& facts = facts_of(format);
  const auto& stored = facts.stored(side).rows;
  const auto by_row = [&](const at::Tensor& x) {
    return in_rows(x, *stored, takes_scale(format) ? scale : 1);
  };
  const auto axis =
      side == KvSide::keys ? kernels::QuantAxis::per_channel : kernels::QuantAxis::per_token;
  rows.copy_(!stored         ? in_groups(rows, axis, format == KvFormat::int4 ? 4 : 2)
             : facts.rotated ? in_rotated(rows, side, by_row)
                             : by_row(rows));
}

void round_layer(const KvFormats& formats, const std::optional<Fp8Scales>& scales,
                 std::int64_t layer, const AnyView<3>& key, const AnyView<3>& value) {
  const Fp8Scales none, &given = scales ? *scales : none;
  const auto round = [&](const AnyView<3>& rows, KvFormat format, KvSide side,
                         const HeadScales& of_side) {
    const auto heads = capture::tensor_of(rows).unbind(0);
    for (std::int64_t head = 0; head < std::ssize(heads); ++head)
      round_rows(heads[static_cast<std::size_t>(head)], format, side,
                 scale_in(of_side, layer, head));
  };
  round(key, formats.keys, KvSide::keys, given.keys);
  round(value, formats.values, KvSide::values, given.values);
}

void round_queries(const KvFormats& formats, const std::optional<Fp8Scales>& scales,
                   std::int64_t layer, const AnyView<3>& query) {
  constexpr KvFormat kFloats[] = {KvFormat::fp8, KvFormat::fp8_e5m2, KvFormat::nvfp4};
  if (std::find(std::begin(kFloats), std::end(kFloats), formats.keys) == std::end(kFloats)) return;
  const auto heads = capture::tensor_of(query).unbind(0);
  const HeadScales none, &given = scales ? scales->queries : none;
  for (std::int64_t head = 0; head < std::ssize(heads); ++head) {
    const at::Tensor& rows = heads[static_cast<std::size_t>(head)];
    const auto of_layer = given.empty() ? 1 : std::ssize(given[static_cast<std::size_t>(layer)]);
    const auto kv_head = head * of_layer / std::ssize(heads);
    rows.copy_(in_rows(rows, kernels::RowFormat::e4m3, scale_in(given, layer, kv_head)));
  }
}

}  // namespace kvatlas::calibrate
