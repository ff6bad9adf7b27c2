// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include <ATen/SDPBackend.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>

#include "analyzer/capture/ops_impl.hpp"
#include "analyzer/capture/tensors-inl.hpp"
#include "kernels/pair_attention.hpp"

namespace kvatlas::capture {
namespace {

/// Rows [n, n_heads, head_dim] of attention to keys alone, with the share that sinks take.
Attended with_sinks(const at::Tensor& rows, const at::Tensor& logsumexp, const at::Tensor& sinks) {
  const std::vector<std::int64_t> joined = {rows.size(0), rows.size(1) * rows.size(2)};
  if (!sinks.defined()) return {rows.view(joined), logsumexp};
  const at::Tensor of_sinks = sinks.unsqueeze(1);
  // The keys' share of what keys and sink take together.
  const at::Tensor of_keys = at::sigmoid(logsumexp - of_sinks).t();
  const at::Tensor scaled = rows * of_keys.unsqueeze(-1).to(rows.scalar_type());
  return {scaled.view(joined), at::logaddexp(logsumexp, of_sinks).contiguous()};
}

template <class T>
kernels::CausalAttention<T> kernel_io(const Attention& io, const at::Tensor& out,
                                      const at::Tensor& logsumexp) {
  return {.queries = view_of<const T, 3>(io.query),
          .keys = view_of<const T, 3>(io.key),
          .values = view_of<const T, 3>(io.value),
          .scale = static_cast<float>(io.scale),
          .soft_cap = static_cast<float>(io.softcap),
          .window = io.window,
          .out = view_of<T, 3>(out),
          .lse = view_of<float, 2>(logsumexp)};
}

/// oneDNN's products of small blocks of bfloat16.
constexpr kernels::PairProduct kPairProduct = {
    [](std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t lda, std::int64_t ldb,
       std::int64_t ldc, bool add, const Bf16* a, const Bf16* b, float* c) {
      at::native::cpublas::brgemm(m, n, k, lda, ldb, ldc, add,
                                  reinterpret_cast<const at::BFloat16*>(a),
                                  reinterpret_cast<const at::BFloat16*>(b), c);
    },
    [] { at::native::cpublas::brgemm_release(); }};

/// By our own kernels, which know windows and soft caps and leave out what lies behind the
/// diagonal.
Attended attend_by_kernel(const Attention& io) {
  const std::int64_t n_heads = io.query.size(0), n = io.query.size(1);
  const at::Tensor out = at::empty({n, n_heads, io.value.size(2)}, io.query.options());
  const at::Tensor logsumexp = at::empty({n_heads, n}, io.query.options().dtype(at::kFloat));
  if (io.query.scalar_type() == at::kFloat)
    kernels::causal_attention(kernel_io<float>(io, out, logsumexp));
  else
    kernels::pair_attention(kernel_io<Bf16>(io, out, logsumexp), kPairProduct);
  return with_sinks(out, logsumexp, io.sinks);
}

/// What scaled_dot_product_attention() does, and of its kernels that know it the log-sum-exp of
/// each row, which it throws away.
std::pair<at::Tensor, at::Tensor> attend_on_gpu(const at::Tensor& query, const at::Tensor& key,
                                                const at::Tensor& value, double scale,
                                                bool shared_keys) {
  const auto kernel = static_cast<at::SDPBackend>(
      at::_fused_sdp_choice(query, key, value, std::nullopt, 0.0, true, scale, shared_keys));
  if (kernel == at::SDPBackend::cudnn_attention) {
    const auto all = at::_scaled_dot_product_cudnn_attention(query, key, value, std::nullopt, true,
                                                             0.0, true, false, scale);
    return {std::get<0>(all), std::get<1>(all)};
  }
  // Others are padded first.
  if (kernel == at::SDPBackend::flash_attention && query.size(3) % 8 == 0) {
    const auto all =
        at::_scaled_dot_product_flash_attention(query, key, value, 0.0, true, false, scale);
    return {std::get<0>(all), std::get<1>(all)};
  }
  return {at::scaled_dot_product_attention(query, key, value, std::nullopt, 0.0, true, scale,
                                           shared_keys),
          {}};
}

/// All of a prompt at once, nothing but the causal mask: LibTorch's flash attention.
Attended attend_causal(const Attention& io) {
  const std::int64_t n_heads = io.query.size(0), n = io.query.size(1), head_dim = io.query.size(2);
  const std::int64_t n_kv_heads = io.key.size(0), group = n_heads / n_kv_heads;
  if (io.query.is_cpu()) {
    // KV heads as the batch and their query heads as the heads: the shared keys need no copies.
    const at::Tensor query = io.query.unflatten(0, {n_kv_heads, group});
    const at::Tensor key = io.key.unsqueeze(1).expand({n_kv_heads, group, n, head_dim});
    const at::Tensor value = io.value.unsqueeze(1).expand({n_kv_heads, group, n, head_dim});
    const auto [out, logsumexp] = at::_scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, true, std::nullopt, io.scale);
    return with_sinks(
        out.permute({2, 0, 1, 3}).reshape({n, n_heads, head_dim}),  // [n, K, group, d]
        logsumexp.reshape({n_heads, n}), io.sinks);
  }
  const auto [out, logsumexp] = attend_on_gpu(io.query.unsqueeze(0), io.key.unsqueeze(0),
                                              io.value.unsqueeze(0), io.scale, group > 1);
  return {out.squeeze(0).transpose(0, 1).reshape({n, n_heads * head_dim}),
          logsumexp.defined() ? logsumexp.reshape({n_heads, n}) : logsumexp};
}

/// All of a prompt at once, each chunk for itself.
Attended attend_chunks(const Attention& io) {
  std::vector<at::Tensor> out, logsumexp;
  const std::int64_t n = io.query.size(1);
  for (std::int64_t begin = 0; begin < n; begin += io.window.size) {
    const auto own = [&](const at::Tensor& of_all) {
      return of_all.narrow(1, begin, std::min(io.window.size, n - begin));
    };
    Attention chunk = io;
    chunk.query = own(io.query);
    chunk.key = own(io.key);
    chunk.value = own(io.value);
    const Attended made = attend_causal(chunk);
    out.push_back(made.out);
    if (made.logsumexp.defined()) logsumexp.push_back(made.logsumexp);
  }
  return {at::cat(out), logsumexp.empty() ? at::Tensor() : at::cat(logsumexp, 1)};
}

/// Which keys a block of query rows can see at all: two ranges, the first of them often empty.
struct KeyRanges {
  std::int64_t far_begin, far_end, near_begin, near_end;
};

KeyRanges key_ranges(const Attention& io, std::int64_t first_row, std::int64_t end_row) {
  const auto behind = [&](std::int64_t keys) {
    return std::max<std::int64_t>(0, first_row - keys + 1);
  };
  KeyRanges keys{0, 0, io.window.first_key(first_row), end_row};
  if (io.proximal) {
    keys.far_begin = keys.near_begin;
    keys.far_end = std::max(keys.far_begin, io.proximal->initial);
    keys.near_begin = std::max(keys.near_begin, behind(io.proximal->recent));
    if (keys.far_end >= keys.near_begin) keys = {0, 0, keys.far_begin, end_row};
  }
  return keys;
}

/// Part of a tensor along an axis: the far range, then the near one.
at::Tensor take(const at::Tensor& tensor, std::int64_t axis, const KeyRanges& keys) {
  at::Tensor near = tensor.narrow(axis, keys.near_begin, keys.near_end - keys.near_begin);
  if (keys.far_begin == keys.far_end) return near;
  return at::cat({tensor.narrow(axis, keys.far_begin, keys.far_end - keys.far_begin), near}, axis);
}

/// Where row i has key j behind the initial and before the recent ones.
at::Tensor is_distant(const at::Tensor& i, const at::Tensor& j,
                      const kernels::Proximity& proximal) {
  return (j >= proximal.initial).logical_and(j <= i - proximal.recent);
}

/// Which of these keys rows see that lie so far behind them: [n_heads, rows, keys].
at::Tensor is_seen(const Attention::Seen& seen, const at::Tensor& distances,
                   const KeyRanges& keys) {
  return seen.diagonals.index_select(1, distances.flatten())
      .view({seen.diagonals.size(0), distances.size(0), distances.size(1)})
      .logical_or_(take(seen.columns, 1, keys).unsqueeze(1));
}

/// Any mask and soft cap, in blocks of queries small enough that the scores stay within
/// kScoreBytes.
Attended attend_blocks(const Attention& io) {
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
    const KeyRanges keys = key_ranges(io, first + start, first + start + count);
    const at::Tensor key = take(io.key, 1, keys);
    const std::int64_t n_keys = key.size(1);
    // [K, group * count, d] x [K, d, keys]: one product a KV head.
    const at::Tensor q =
        query.narrow(2, start, count).reshape({n_kv_heads, group * count, head_dim});
    const auto scores_of = [&](const at::Tensor& queries, const at::Tensor& of_keys) {
      at::Tensor scores =
          at::matmul(queries, of_keys.transpose(1, 2)).to(at::kFloat).mul_(io.scale);
      if (io.softcap > 0.0) scores.div_(io.softcap).tanh_().mul_(io.softcap);
      return scores.view({n_kv_heads, group, count, n_keys});
    };
    at::Tensor scores = scores_of(q, key);
    if (count > 1 || io.proximal || io.shared || io.seen) {
      const at::Tensor i = at::arange(first + start, first + start + count, positions).unsqueeze(1);
      const at::Tensor j = take(at::arange(n_all, positions), 0, keys).unsqueeze(0);
      if (io.shared)
        scores = at::where(
            is_distant(i, j, io.shared->proximal),
            scores_of(io.shared->query.narrow(1, start, count), take(io.shared->key, 1, keys)),
            scores);
      at::Tensor hidden = j > i;
      if (io.window.chunks && io.window.size > 0)
        hidden = hidden.logical_or_(j < i - i.remainder(io.window.size));
      else if (io.window.size > 0)
        hidden = hidden.logical_or_(j <= i - io.window.size);
      if (io.proximal) hidden = hidden.logical_or_(is_distant(i, j, *io.proximal));
      if (io.seen)
        hidden = is_seen(*io.seen, (i - j).clamp_min_(0), keys)
                     .logical_not_()
                     .logical_or_(hidden)
                     .view({n_kv_heads, group, count, n_keys});
      scores.masked_fill_(hidden, -std::numeric_limits<float>::infinity());
    }
    if (io.sinks.defined())
      scores = at::cat(
          {scores, io.sinks.view({n_kv_heads, group, 1, 1}).expand({n_kv_heads, group, count, 1})},
          -1);
    const at::Tensor weights = at::softmax(scores, -1)
                                   .narrow(-1, 0, n_keys)
                                   .to(io.value.scalar_type())
                                   .reshape({n_kv_heads, group * count, n_keys});
    const at::Tensor mixed = at::matmul(weights, take(io.value, 1, keys));
    out.narrow(0, start, count).copy_(mixed.view({n_heads, count, head_dim}).transpose(0, 1));
  }
  return {out.view({n, n_heads * head_dim}), {}};
}

/// Of fewer rows behind a long prompt most lanes of our own kernels would be idle.
constexpr std::int64_t kFewestRows = 16;

}  // namespace

Attended attend(const Attention& io) {
  const std::int64_t n = io.query.size(1), n_all = io.key.size(1);
  const bool causal = !io.proximal && !io.shared && !io.seen && n > 1;
  if (causal && has_product(io.query) && (n == n_all || n >= kFewestRows))
    return attend_by_kernel(io);
  const bool plain =
      causal && io.softcap == 0.0 && (io.window.chunks || io.window.first_key(n_all - 1) == 0);
  const bool flash = io.query.is_cpu() || !io.sinks.defined();
  if (!plain || !flash || n != n_all) return attend_blocks(io);
  return io.window.first_key(n - 1) == 0 ? attend_causal(io) : attend_chunks(io);
}

}  // namespace kvatlas::capture
