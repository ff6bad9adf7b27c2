// SPDX-License-Identifier: Apache-2.0
// The peer and limit of attention_maps_bench.cpp: LibTorch's bare Q K^T over the same
// lower-triangle tiles, nothing done with the products. Stripes of keys times all queries below
// them, or square tiles batched over the heads.
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include "kernels/base/parallel.hpp"

namespace kvatlas::kernels {
namespace {

using Setting = std::array<std::int64_t, 4>;

void count_products(benchmark::State& state, const Setting& s) {
  at::set_num_threads(thread_count());
  state.counters["flop/s"] =
      benchmark::Counter(static_cast<double>(s[0] * s[2] * (s[2] + 1) * s[3]),
                         benchmark::Counter::kIsIterationInvariantRate);
}

void torch_qk_stripes(benchmark::State& state, const Setting& s) {
  constexpr std::int64_t kWidth = 384;
  count_products(state, s);
  const auto q = at::randn({s[0], s[2], s[3]}), k = at::randn({s[1], s[2], s[3]});
  auto products = at::empty({s[2], kWidth});
  for (auto _ : state) {
    for (std::int64_t h = 0; h < s[0]; ++h) {
      const auto keys = k[h / (s[0] / s[1])], queries = q[h];
      for (std::int64_t j = 0; j < s[2]; j += kWidth) {
        const std::int64_t width = std::min(kWidth, s[2] - j);
        auto out = products.flatten().narrow(0, 0, (s[2] - j) * width).view({s[2] - j, width});
        at::mm_out(out, queries.narrow(0, j, s[2] - j), keys.narrow(0, j, width).t());
      }
    }
  }
}

void torch_qk_tiles(benchmark::State& state, const Setting& s) {
  constexpr std::int64_t kTile = 512;
  count_products(state, s);
  const std::int64_t group = s[0] / s[1];
  const auto q = at::randn({s[1], group, s[2], s[3]}), k = at::randn({s[1], s[2], s[3]});
  auto products = at::empty({s[1], group * kTile, kTile});
  for (auto _ : state) {
    for (std::int64_t i = 0; i < s[2]; i += kTile) {
      // The query heads that share a key head are one taller matrix.
      const auto queries = q.narrow(2, i, kTile).reshape({s[1], group * kTile, s[3]});
      for (std::int64_t j = 0; j <= i; j += kTile)
        at::bmm_out(products, queries, k.narrow(1, j, kTile).transpose(1, 2));
    }
  }
}

#define KVATLAS_QK_BENCH(name, ...)                               \
  BENCHMARK_CAPTURE(torch_qk_stripes, name, Setting{__VA_ARGS__}) \
      ->UseRealTime()                                             \
      ->Unit(benchmark::kMillisecond);                            \
  BENCHMARK_CAPTURE(torch_qk_tiles, name, Setting{__VA_ARGS__})   \
      ->UseRealTime()                                             \
      ->Unit(benchmark::kMillisecond)
KVATLAS_QK_BENCH(d64_n1024, 9, 3, 1024, 64);
KVATLAS_QK_BENCH(d64_n4096, 9, 3, 4096, 64);
KVATLAS_QK_BENCH(d128_n4096, 8, 2, 4096, 128);
KVATLAS_QK_BENCH(d256_n4096, 4, 1, 4096, 256);

}  // namespace
}  // namespace kvatlas::kernels
