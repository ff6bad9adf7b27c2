// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/torch_peers.hpp"

#if KVATLAS_HAS_TORCH
#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/add.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/xlogy.h>
#include <benchmark/benchmark.h>

#include "base/parallel.hpp"

namespace kvatlas::bench {
namespace {

/// Gives LibTorch the threads that the kernels have.
Work on_all_threads(Work work) {
  at::set_num_threads(thread_count());
  return work;
}

}  // namespace

Work torch_thin_matmul(std::int64_t n_heads, std::int64_t n_kv_heads, std::int64_t q_rows,
                       std::int64_t n_tokens, std::int64_t head_dim) {
  const auto q = at::randn({n_kv_heads, n_heads / n_kv_heads * q_rows, head_dim});
  const auto k = at::randn({n_kv_heads, n_tokens, head_dim}).transpose(1, 2);
  auto out = at::empty({n_kv_heads, n_heads / n_kv_heads * q_rows, n_tokens});
  return on_all_threads([=]() mutable { at::matmul_out(out, q, k); });
}

Work torch_triangle_matmul(std::int64_t n_heads, std::int64_t n_kv_heads, std::int64_t n_tokens,
                           std::int64_t head_dim) {
  constexpr std::int64_t kWidth = 384, kTile = 512;
  const std::int64_t group = n_heads / n_kv_heads, n = n_tokens;
  const auto q = at::randn({n_kv_heads, group, n, head_dim}),
             k = at::randn({n_kv_heads, n, head_dim});
  auto products = at::empty({n * kWidth});
  const Work stripes = on_all_threads([=]() mutable {
    for (std::int64_t h = 0; h < n_heads; ++h) {
      const auto keys = k[h / group], queries = q[h / group][h % group];
      for (std::int64_t j = 0; j < n; j += kWidth) {
        const std::int64_t width = std::min(kWidth, n - j);
        auto out = products.narrow(0, 0, (n - j) * width).view({n - j, width});
        at::mm_out(out, queries.narrow(0, j, n - j), keys.narrow(0, j, width).t());
      }
    }
  });
  auto tile_products = at::empty({n_kv_heads, group * kTile, kTile});
  const Work tiles = on_all_threads([=]() mutable {
    for (std::int64_t i = 0; i < n; i += kTile) {
      // The query heads that share a key head are one taller matrix.
      const auto queries = q.narrow(2, i, kTile).reshape({n_kv_heads, group * kTile, head_dim});
      for (std::int64_t j = 0; j <= i; j += kTile)
        at::bmm_out(tile_products, queries, k.narrow(1, j, kTile).transpose(1, 2));
    }
  });
  return fastest({stripes, tiles});
}

Work torch_flash_attention(std::int64_t n_heads, std::int64_t n_kv_heads, std::int64_t n_tokens,
                           std::int64_t head_dim) {
  const std::int64_t group = n_heads / n_kv_heads;
  const auto q = at::randn({n_kv_heads, group, n_tokens, head_dim});
  const auto shared = [&] {
    return at::randn({n_kv_heads, 1, n_tokens, head_dim})
        .expand({n_kv_heads, group, n_tokens, head_dim});
  };
  const auto k = shared(), v = shared();
  return on_all_threads([=] {
    benchmark::DoNotOptimize(
        at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, true, std::nullopt, 0.125));
  });
}

Work torch_js(std::int64_t n_layers, std::int64_t n_heads, std::int64_t q_rows,
              std::int64_t n_tokens) {
  const auto probs = at::softmax(at::randn({n_heads, n_layers, q_rows, n_tokens}).mul_(3), -1);
  return on_all_threads([=] {
    for (std::int64_t head = 0; head < n_heads; ++head) {
      const auto of_head = probs.select(0, head);
      for (std::int64_t a = 0; a < n_layers; ++a) {
        const auto mean = at::add(of_head.narrow(0, 0, a + 1), of_head.select(0, a)).mul_(0.5);
        benchmark::DoNotOptimize(at::xlogy(mean, mean).sum(-1));
      }
    }
  });
}

Work torch_topk(std::int64_t count, std::int64_t k) {
  const auto scores = at::randn({count}).mul_(3).exp_();
  return on_all_threads([=] { benchmark::DoNotOptimize(at::topk(scores, k, 0, true, false)); });
}

}  // namespace kvatlas::bench

#else
namespace kvatlas::bench {

Work torch_thin_matmul(std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t) {
  return {};
}
Work torch_triangle_matmul(std::int64_t, std::int64_t, std::int64_t, std::int64_t) { return {}; }
Work torch_flash_attention(std::int64_t, std::int64_t, std::int64_t, std::int64_t) { return {}; }
Work torch_js(std::int64_t, std::int64_t, std::int64_t, std::int64_t) { return {}; }
Work torch_topk(std::int64_t, std::int64_t) { return {}; }

}  // namespace kvatlas::bench
#endif
