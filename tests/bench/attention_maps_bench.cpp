// SPDX-License-Identifier: Apache-2.0
// Maps and log-sum-exps of one layer; attention_maps_torch_bench.cpp has the bare matmul. flop/s
// counts the products of the lower triangle alone.
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/attention_maps.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::kernels {
namespace {

/// n_heads, n_kv_heads, n_tokens, head_dim
using Setting = std::array<std::int64_t, 4>;

struct Layer {
  explicit Layer(const Setting& s)
      : q(testing_support::Random(1).normals(s[0] * s[2] * s[3])),
        k(testing_support::Random(2).normals(s[1] * s[2] * s[3])),
        lse(static_cast<std::size_t>(s[0] * s[2])),
        scores{View<const float, 3>(q.data(), {s[0], s[2], s[3]}),
               View<const float, 3>(k.data(), {s[1], s[2], s[3]}), 0.125f} {}
  std::vector<float> q, k, lse;
  CausalScores scores;
};

void count_products(benchmark::State& state, const Setting& s) {
  state.counters["flop/s"] =
      benchmark::Counter(static_cast<double>(s[0] * s[2] * (s[2] + 1) * s[3]),
                         benchmark::Counter::kIsIterationInvariantRate);
}

void maps(benchmark::State& state, const Setting& s) {
  Layer layer(s);
  row_logsumexp({layer.scores, {layer.lse.data(), {s[0], s[2]}}});
  std::vector<float> columns(layer.lse.size());
  AttentionMaps io{.scores = layer.scores,
                   .lse = View<const float, 2>(layer.lse.data(), {s[0], s[2]}),
                   .block = finest_map_block(s[2]),
                   .levels = {},
                   .column_sums = {columns.data(), {s[0], s[2]}}};
  std::vector<std::vector<float>> outputs;
  for (std::int64_t block = io.block; block < s[2]; block *= 2) {
    const std::int64_t side = map_blocks(s[2], block);
    MapLevel level;
    for (auto* view : {&level.mean, &level.max}) {
      outputs.emplace_back(static_cast<std::size_t>(s[0] * side * side));
      *view = {outputs.back().data(), {s[0], side, side}};
    }
    io.levels.push_back(level);
  }
  for (auto _ : state) attention_maps(io);
  count_products(state, s);
}

void logsumexp(benchmark::State& state, const Setting& s) {
  Layer layer(s);
  for (auto _ : state) row_logsumexp({layer.scores, {layer.lse.data(), {s[0], s[2]}}});
  count_products(state, s);
}

#define KVATLAS_MAP_BENCH(name, ...)                       \
  BENCHMARK_CAPTURE(maps, name, Setting{__VA_ARGS__})      \
      ->UseRealTime()                                      \
      ->Unit(benchmark::kMillisecond);                     \
  BENCHMARK_CAPTURE(logsumexp, name, Setting{__VA_ARGS__}) \
      ->UseRealTime()                                      \
      ->Unit(benchmark::kMillisecond)
KVATLAS_MAP_BENCH(d64_n1024, 9, 3, 1024, 64);
KVATLAS_MAP_BENCH(d64_n4096, 9, 3, 4096, 64);
KVATLAS_MAP_BENCH(d128_n4096, 8, 2, 4096, 128);
KVATLAS_MAP_BENCH(d256_n4096, 4, 1, 4096, 256);

}  // namespace
}  // namespace kvatlas::kernels
