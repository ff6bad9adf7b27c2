// SPDX-License-Identifier: Apache-2.0
// JS divergence of all layers, beside the rate at which the same logarithm runs on data in the
// first-level cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/js_divergence_bench.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "kernels/math-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {

/// Sum of x log2 x over `count` elements in cache: what a pair of layers costs at the least.
float SumLog2(const float* values, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  for (std::int64_t i = 0; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto x0 = hn::LoadU(d, values + i), x1 = hn::LoadU(d, values + i + lanes);
    const auto x2 = hn::LoadU(d, values + i + 2 * lanes), x3 = hn::LoadU(d, values + i + 3 * lanes);
    sum0 = hn::MulAdd(x0, log2(d, x0), sum0);
    sum1 = hn::MulAdd(x1, log2(d, x1), sum1);
    sum2 = hn::MulAdd(x2, log2(d, x2), sum2);
    sum3 = hn::MulAdd(x3, log2(d, x3), sum3);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/base/parallel.hpp"
#include "kernels/js_divergence.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::kernels {
HWY_EXPORT(SumLog2);
namespace {

constexpr std::int64_t kLayers = 30, kHeads = 9, kRows = 16, kTokens = 4096;

/// Limit: x log2 x from the first-level cache on all cores.
void limit_log2(benchmark::State& state) {
  std::vector<float> values(4096, 0.3f);
  const std::int64_t tasks = 4 * thread_count(), repeats = 1000;
  for (auto _ : state)
    parallel_for(tasks, [&](std::int64_t, int) {
      for (std::int64_t i = 0; i < repeats; ++i)
        benchmark::DoNotOptimize(HWY_DYNAMIC_DISPATCH(SumLog2)(values.data(), 4096));
    });
  state.counters["log2/s"] = benchmark::Counter(static_cast<double>(tasks * repeats * 4096),
                                                benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(limit_log2)->MeasureProcessCPUTime()->UseRealTime()->Unit(benchmark::kMillisecond);

void js(benchmark::State& state) {
  testing_support::Random random(1);
  std::vector<float> probs;
  for (std::int64_t row = 0; row < kLayers * kHeads * kRows; ++row) {
    const auto values = random.softmax_row(kTokens, 3);
    probs.insert(probs.end(), values.begin(), values.end());
  }
  std::vector<float> mean(kHeads * kLayers * kLayers);
  JsDivergence io;
  io.probs = View<float, 4>(probs.data(), {kLayers, kHeads, kRows, kTokens});
  io.mean = {mean.data(), {kHeads, kLayers, kLayers}};
  for (auto _ : state) js_divergence(io);
  state.counters["log2/s"] = benchmark::Counter(
      static_cast<double>(kLayers * (kLayers + 1) / 2 * kHeads * kRows * kTokens),
      benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(js)
    ->Name("js_divergence/30x9x16x4096")
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvatlas::kernels
#endif
