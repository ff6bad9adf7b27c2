// SPDX-License-Identifier: Apache-2.0
// Last rows with and without the grid of proximal masses; last_rows_torch_bench.cpp has the bare
// matmul.
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/last_rows.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::kernels {
namespace {

struct Setting {
  std::int64_t n_heads, n_kv_heads, q_rows, n_tokens, head_dim;
};
constexpr Setting kSmall{9, 3, 16, 4096, 64};    // SmolLM2-135M
constexpr Setting kLarge{32, 8, 32, 8192, 128};  // Llama-3-8B

void rows(benchmark::State& state, const Setting& s, bool want_probs, bool want_grid) {
  testing_support::Random random(1);
  const auto q = random.normals(s.n_heads * s.q_rows * s.head_dim),
             k = random.normals(s.n_kv_heads * s.n_tokens * s.head_dim);
  LastRows io;
  io.queries = View<const float, 3>(q.data(), {s.n_heads, s.q_rows, s.head_dim});
  io.keys = View<const float, 3>(k.data(), {s.n_kv_heads, s.n_tokens, s.head_dim});
  io.scale = 0.125f;
  if (want_grid)
    for (std::int64_t initial : {4, 16, 64})
      for (std::int64_t recent : {64, 256, 1024, 2048}) io.grid.push_back({initial, recent});
  std::vector<float> probs(want_probs ? static_cast<std::size_t>(s.n_heads * s.q_rows * s.n_tokens)
                                      : 0);
  if (want_probs) io.probs = {probs.data(), {s.n_heads, s.q_rows, s.n_tokens}};
  std::vector<float> statistics[3];
  View<float, 3>* outs[] = {&io.mass, &io.proximal_lse, &io.distant_lse};
  for (int i = 0; i < 3; ++i) {
    statistics[i].resize(io.grid.size() * static_cast<std::size_t>(s.n_heads * s.q_rows));
    *outs[i] = {statistics[i].data(),
                {static_cast<std::int64_t>(io.grid.size()), s.n_heads, s.q_rows}};
  }
  for (auto _ : state) last_rows(io);
  state.counters["flop/s"] =
      benchmark::Counter(2.0 * static_cast<double>(s.n_heads * s.q_rows * s.n_tokens * s.head_dim),
                         benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK_CAPTURE(rows, small_grid, kSmall, false, true)
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(rows, small_probs, kSmall, true, false)
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(rows, small_probs_and_grid, kSmall, true, true)
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(rows, large_grid, kLarge, false, true)
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(rows, large_probs_and_grid, kLarge, true, true)
    ->MeasureProcessCPUTime()
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kvatlas::kernels
