// SPDX-License-Identifier: Apache-2.0
// Window scores of a layer, and the counts that the global top-k gives each; torch_bench.cpp has
// torch.topk.
#include <cmath>

#include <benchmark/benchmark.h>

#include "kernels/window_scores.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::kernels {
namespace {

constexpr std::int64_t kLayers = 30, kHeads = 9, kTokens = 4096, kWindow = 16;

void window(benchmark::State& state, Pooling pooling) {
  testing_support::Random random(1);
  std::vector<float> probs, scores(kHeads * (kTokens - kWindow));
  for (std::int64_t row = 0; row < kHeads * kWindow; ++row) {
    const auto values = random.softmax_row(kTokens, 3);
    probs.insert(probs.end(), values.begin(), values.end());
  }
  WindowScores io;
  io.probs = View<const float, 3>(probs.data(), {kHeads, kWindow, kTokens});
  io.pooling = pooling;
  io.scores = {scores.data(), {kHeads, kTokens - kWindow}};
  for (auto _ : state) window_scores(io);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(4 * probs.size()));
}
BENCHMARK_CAPTURE(window, average, Pooling::average)
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(window, maximum, Pooling::maximum)
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

void counts(benchmark::State& state, const std::vector<std::int64_t>& budgets) {
  testing_support::Random random(1);
  std::vector<float> scores;
  for (std::int64_t i = 0; i < kLayers * kHeads * (kTokens - kWindow); ++i)
    scores.push_back(std::exp(3 * random.normal()));
  TopCounts io;
  io.scores = {scores.data(), {kLayers, kHeads, kTokens - kWindow}};
  for (const std::int64_t budget : budgets) io.k.push_back((budget - kWindow) * kHeads * kLayers);
  std::vector<std::int64_t> out(io.k.size() * kLayers);
  io.counts = {out.data(), {static_cast<std::int64_t>(io.k.size()), kLayers}};
  for (auto _ : state) top_counts(io);
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(4 * scores.size()));
}
BENCHMARK_CAPTURE(counts, one_budget, {128})
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(counts, six_budgets, {64, 96, 128, 256, 512, 1024})
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kvatlas::kernels
