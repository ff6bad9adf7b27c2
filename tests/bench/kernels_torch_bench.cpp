// SPDX-License-Identifier: Apache-2.0
// What the same results cost as compositions of LibTorch operations, with the shapes of the other
// kernel benchmarks.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/xlogy.h>
#include <benchmark/benchmark.h>

#include "kernels/base/parallel.hpp"

namespace kvatlas::kernels {
namespace {

void thin_matmul(benchmark::State& state, std::int64_t n_heads, std::int64_t n_kv_heads,
                 std::int64_t q_rows, std::int64_t n_tokens, std::int64_t head_dim) {
  at::set_num_threads(thread_count());
  const auto q = at::randn({n_kv_heads, n_heads / n_kv_heads * q_rows, head_dim});
  const auto k = at::randn({n_kv_heads, n_tokens, head_dim}).transpose(1, 2);
  auto out = at::empty({n_kv_heads, n_heads / n_kv_heads * q_rows, n_tokens});
  for (auto _ : state) at::matmul_out(out, q, k);
}
BENCHMARK_CAPTURE(thin_matmul, small, 9, 3, 16, 4096, 64)
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(thin_matmul, large, 32, 8, 32, 8192, 128)
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

void top_k(benchmark::State& state) {
  at::set_num_threads(thread_count());
  constexpr std::int64_t kRows = 30 * 9, kPositions = 4080;
  const auto scores = at::rand({kRows * kPositions});
  for (auto _ : state) benchmark::DoNotOptimize(at::topk(scores, 112 * kRows, 0, true, false));
}
BENCHMARK(top_k)
    ->Name("topk/one_budget")
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

/// One layer against all lower ones at a time, so that the temporaries stay in tens of megabytes.
void js(benchmark::State& state) {
  at::set_num_threads(thread_count());
  constexpr std::int64_t kLayers = 30, kHeads = 9;
  const auto probs = at::softmax(at::randn({kHeads, kLayers, 16, 4096}).mul_(3), -1);
  for (auto _ : state)
    for (std::int64_t head = 0; head < kHeads; ++head) {
      const auto of_head = probs.select(0, head);
      for (std::int64_t a = 0; a < kLayers; ++a) {
        const auto mean = at::add(of_head.narrow(0, 0, a + 1), of_head.select(0, a)).mul_(0.5);
        benchmark::DoNotOptimize(at::xlogy(mean, mean).sum(-1));
      }
    }
}
BENCHMARK(js)
    ->Name("js/30x9x16x4096")
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvatlas::kernels
