// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>

#include "analyzer/capture/ops_impl.hpp"

namespace kvatlas::capture {
namespace {

/// All of a prompt at once, nothing but the causal mask: LibTorch's flash attention.
at::Tensor attend_causal(const Attention& io) {
  const std::int64_t n_heads = io.query.size(0), n = io.query.size(1), head_dim = io.query.size(2);
  const std::int64_t n_kv_heads = io.key.size(0), group = n_heads / n_kv_heads;
  if (io.query.is_cpu()) {
    // KV heads as the batch and their query heads as the heads: the shared keys need no copies.
    const at::Tensor query = io.query.unflatten(0, {n_kv_heads, group});
    const at::Tensor key = io.key.unsqueeze(1).expand({n_kv_heads, group, n, head_dim});
    const at::Tensor value = io.value.unsqueeze(1).expand({n_kv_heads, group, n, head_dim});
    const at::Tensor out = std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, true, std::nullopt, io.scale));
    return out.permute({2, 0, 1, 3}).reshape({n, n_heads * head_dim});
  }
  const at::Tensor out = at::scaled_dot_product_attention(
      io.query.unsqueeze(0), io.key.unsqueeze(0), io.value.unsqueeze(0), std::nullopt, 0.0, true,
      io.scale, group > 1);
  return out.squeeze(0).transpose(0, 1).reshape({n, n_heads * head_dim});
}

/// Any mask and soft cap, in blocks of queries small enough that the scores stay within
/// kScoreBytes.
at::Tensor attend_blocks(const Attention& io) {
  constexpr std::int64_t kScoreBytes = 64 << 20;
  const std::int64_t n_heads = io.query.size(0), n = io.query.size(1), head_dim = io.query.size(2);
  const std::int64_t n_kv_heads = io.key.size(0), group = n_heads / n_kv_heads;
  const std::int64_t n_all = io.key.size(1), first = n_all - n;
  const std::int64_t rows = std::clamp<std::int64_t>(kScoreBytes / (4 * n_heads * n_all), 1, 512);
  at::Tensor out = at::empty({n, n_heads, head_dim}, io.query.options());
  const at::Tensor query = io.query.unflatten(0, {n_kv_heads, group});
  const auto positions = at::TensorOptions(at::kLong).device(io.query.device());
  for (std::int64_t start = 0; start < n; start += rows) {
    const std::int64_t count = std::min(rows, n - start);
    const std::int64_t end_key = first + start + count;
    const std::int64_t begin_key =
        io.window > 0 ? std::max<std::int64_t>(0, first + start - io.window + 1) : 0;
    const std::int64_t n_keys = end_key - begin_key;
    const at::Tensor key = io.key.narrow(1, begin_key, n_keys);
    // [K, group * count, d] x [K, d, keys]: one product a KV head.
    const at::Tensor q =
        query.narrow(2, start, count).reshape({n_kv_heads, group * count, head_dim});
    at::Tensor scores = at::matmul(q, key.transpose(1, 2)).to(at::kFloat).mul_(io.scale);
    if (io.softcap > 0.0) scores.div_(io.softcap).tanh_().mul_(io.softcap);
    scores = scores.view({n_kv_heads, group, count, n_keys});
    if (count > 1 || (io.window > 0 && n_keys > io.window)) {
      const at::Tensor i = at::arange(first + start, end_key, positions).unsqueeze(1);
      const at::Tensor j = at::arange(begin_key, end_key, positions).unsqueeze(0);
      at::Tensor hidden = j > i;
      if (io.window > 0) hidden = hidden.logical_or_(j <= i - io.window);
      scores.masked_fill_(hidden, -std::numeric_limits<float>::infinity());
    }
    const at::Tensor weights = at::softmax(scores, -1)
                                   .to(io.value.scalar_type())
                                   .view({n_kv_heads, group * count, n_keys});
    const at::Tensor mixed = at::matmul(weights, io.value.narrow(1, begin_key, n_keys));
    out.narrow(0, start, count).copy_(mixed.view({n_heads, count, head_dim}).transpose(0, 1));
  }
  return out.view({n, n_heads * head_dim});
}

}  // namespace

at::Tensor attend(const Attention& io) {
  const std::int64_t n = io.query.size(1), n_all = io.key.size(1);
  const bool plain = io.softcap == 0.0 && (io.window == 0 || io.window >= n_all);
  return plain && n == n_all && n > 1 ? attend_causal(io) : attend_blocks(io);
}

}  // namespace kvatlas::capture
