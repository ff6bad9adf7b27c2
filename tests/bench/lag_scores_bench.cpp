// SPDX-License-Identifier: Apache-2.0
// LagKV scores beside a plain read of the same bytes by all cores.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/lag_scores_bench.cpp"
#include <cstdint>

#include <hwy/foreach_target.h>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace kvatlas::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

float SumAll(const float* values, std::int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  for (std::int64_t i = 0; i + 4 * lanes <= count; i += 4 * lanes) {
    sum0 = hn::Add(sum0, hn::LoadU(d, values + i));
    sum1 = hn::Add(sum1, hn::LoadU(d, values + i + lanes));
    sum2 = hn::Add(sum2, hn::LoadU(d, values + i + 2 * lanes));
    sum3 = hn::Add(sum3, hn::LoadU(d, values + i + 3 * lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

}  // namespace kvatlas::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/base/parallel.hpp"
#include "kernels/lag_scores.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::kernels {
HWY_EXPORT(SumAll);
namespace {

constexpr std::int64_t kHeads = 8, kTokens = 16384,
                       kDim = 128;  // Llama-3-8B: 128 MiB of keys and values

std::vector<float> normals() { return testing_support::Random(1).normals(kHeads * kTokens * kDim); }

/// Limit: reading keys and values.
void limit_read(benchmark::State& state) {
  const auto keys = normals(), values = normals();
  const std::int64_t tasks = 64, share = kHeads * kTokens * kDim / tasks;
  for (auto _ : state)
    parallel_for(2 * tasks, [&](std::int64_t task, int) {
      const float* from = (task % 2 == 0 ? keys : values).data() + task / 2 * share;
      benchmark::DoNotOptimize(HWY_DYNAMIC_DISPATCH(SumAll)(from, share));
    });
  state.SetBytesProcessed(state.iterations() * 2 * 4 * kHeads * kTokens * kDim);
}
BENCHMARK(limit_read)->MeasureProcessCPUTime()->UseRealTime()->Unit(benchmark::kMillisecond);

void lag(benchmark::State& state, LagVariant variant, const std::vector<std::int64_t>& lags) {
  const auto keys = normals(), values = normals();
  LagScores io;
  io.keys = View<const float, 3>(keys.data(), {kHeads, kTokens, kDim});
  io.values = View<const float, 3>(values.data(), {kHeads, kTokens, kDim});
  io.variant = variant;
  io.lags = lags;
  std::vector<std::vector<float>> outs;
  for (const std::int64_t each : lags) {
    const std::int64_t scored = each * lag_cut_partitions(kTokens, io.sink, each);
    outs.emplace_back(static_cast<std::size_t>(kHeads * scored));
    io.scores.push_back({outs.back().data(), {kHeads, scored}});
  }
  for (auto _ : state) lag_scores(io);
  state.SetBytesProcessed(state.iterations() * 2 * 4 * kHeads * kTokens * kDim);
}
BENCHMARK_CAPTURE(lag, lag_128, LagVariant::lag, {128})
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(lag, lag_1024, LagVariant::lag, {1024})
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(lag, lag_128_512_1024, LagVariant::lag, {128, 512, 1024})
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(lag, local_128, LagVariant::local, {128})
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvatlas::kernels
#endif
