// SPDX-License-Identifier: Apache-2.0
// What works on whole caches and on logits, beside a plain copy of the same bytes by all threads in
// the same run.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/base/parallel.hpp"
#include "kernels/gather.hpp"
#include "kernels/kv_quant.hpp"
#include "kernels/minicache_merge.hpp"
#include "kernels/ragged_decode.hpp"
#include "kernels/row_compare.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::kernels {
namespace {

constexpr std::int64_t kHeads = 8, kTokens = 16384, kDim = 128, kCache = kHeads * kTokens * kDim;

std::vector<float> normals(std::int64_t count) { return testing_support::Random(1).normals(count); }

/// Bytes read and written by one call.
void count_bytes(benchmark::State& state, std::int64_t bytes) {
  state.SetBytesProcessed(state.iterations() * bytes);
}

/// The limit: reads and writes that many bytes.
void copy(benchmark::State& state) {
  const auto from = normals(kCache);
  std::vector<float> to(from.size());
  constexpr std::int64_t kPiece = 1 << 18;
  for (auto _ : state)
    parallel_for(kCache / kPiece, [&](std::int64_t piece, int) {
      std::memcpy(to.data() + piece * kPiece, from.data() + piece * kPiece, kPiece * sizeof(float));
    });
  count_bytes(state, 2 * kCache * 4);
}
BENCHMARK(copy)->UseRealTime()->Unit(benchmark::kMillisecond);

void gather_quarter(benchmark::State& state) {
  const auto from = normals(kCache);
  std::vector<std::int64_t> positions, offsets = {0}, starts;
  for (std::int64_t g = 0; g < kHeads; ++g) {
    starts.push_back(offsets.back());
    for (std::int64_t i = g; i < kTokens; i += 4) positions.push_back(i);
    offsets.push_back(static_cast<std::int64_t>(positions.size()));
  }
  const std::int64_t kept = offsets.back();
  std::vector<float> to(static_cast<std::size_t>(kept * kDim));
  const Gather io{View<const float, 3>(from.data(), {kHeads, kTokens, kDim}),
                  {positions.data(), {kept}},
                  {offsets.data(), {kHeads + 1}},
                  {starts.data(), {kHeads}},
                  to.data(),
                  kept};
  for (auto _ : state) gather(io);
  count_bytes(state, 2 * kept * kDim * 4);
}
BENCHMARK(gather_quarter)->UseRealTime()->Unit(benchmark::kMillisecond);

/// range(0): query heads a KV head; four candidates that keep 1/1, 1/2, 1/4, 1/8.
void decode(benchmark::State& state) {
  const std::int64_t heads = kHeads * state.range(0), rows = kHeads * kTokens;
  const auto keys = normals(kCache), values = normals(kCache), queries = normals(4 * heads * kDim);
  std::vector<std::int64_t> starts, lengths;
  for (std::int64_t c = 0; c < 4; ++c) {
    for (std::int64_t g = 0; g < kHeads; ++g) {
      starts.push_back(g * kTokens);
      lengths.push_back(kTokens >> c);
    }
  }
  std::vector<float> out(queries.size());
  const RaggedDecode io{View<const float, 3>(queries.data(), {4, heads, kDim}),
                        View<const float, 2>(keys.data(), {rows, kDim}),
                        View<const float, 2>(values.data(), {rows, kDim}),
                        {starts.data(), {4, kHeads}},
                        {lengths.data(), {4, kHeads}},
                        0.1f,
                        0,
                        {out.data(), {4, heads, kDim}},
                        {}};
  for (auto _ : state) ragged_decode(io);
  count_bytes(state,
              2 * 4 * kDim * std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0}));
}
BENCHMARK(decode)->Arg(1)->Arg(4)->UseRealTime()->Unit(benchmark::kMillisecond);

void quantise(benchmark::State& state, QuantAxis axis, bool back) {
  const auto from = normals(kCache);
  std::vector<float> restored(back ? from.size() : 0);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(kCache / 2));
  std::vector<std::uint16_t> scales(static_cast<std::size_t>(kCache / kQuantGroup)), minima(scales);
  const auto sizes = axis == QuantAxis::per_token
                         ? std::array<std::int64_t, 3>{kHeads, kTokens, kDim / kQuantGroup}
                         : std::array<std::int64_t, 3>{kHeads, kTokens / kQuantGroup, kDim};
  const QuantisedCache cache{4,
                             axis,
                             {codes.data(), {kHeads, kTokens, kDim / 2}},
                             {scales.data(), sizes},
                             {minima.data(), sizes}};
  const KvQuantise in{View<const float, 3>(from.data(), {kHeads, kTokens, kDim}), cache};
  kv_quantise(in);
  for (auto _ : state) {
    if (back)
      kv_dequantise({cache, {restored.data(), {kHeads, kTokens, kDim}}});
    else
      kv_quantise(in);
  }
  count_bytes(state, kCache * 4 + kCache / 2 + kCache / kQuantGroup * 4);
}
BENCHMARK_CAPTURE(quantise, per_channel, QuantAxis::per_channel, false)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(quantise, per_token, QuantAxis::per_token, false)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(quantise, back_per_channel, QuantAxis::per_channel, true)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(quantise, back_per_token, QuantAxis::per_token, true)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void merge(benchmark::State& state) {
  const auto lower = normals(kCache), upper = normals(kCache);
  std::vector<float> first(lower.size()), second(lower.size());
  const std::array<std::int64_t, 3> sizes = {kHeads, kTokens, kDim};
  const MinicacheMerge io{View<const float, 3>(lower.data(), sizes),
                          View<const float, 3>(upper.data(), sizes),
                          0.6,
                          {first.data(), sizes},
                          {second.data(), sizes}};
  for (auto _ : state) minicache_merge(io);
  count_bytes(state, 4 * kCache * 4);
}
BENCHMARK(merge)->UseRealTime()->Unit(benchmark::kMillisecond);

void compare(benchmark::State& state) {
  constexpr std::int64_t kRows = 64, kVocab = 128256;
  const auto full = normals(kRows * kVocab),
             other = testing_support::Random(2).normals(kRows * kVocab);
  std::vector<float> kl(kRows), distance(kRows);
  std::vector<std::uint8_t> same(kRows);
  const RowCompare io{View<const float, 2>(full.data(), {kRows, kVocab}),
                      View<const float, 2>(other.data(), {kRows, kVocab}),
                      {kl.data(), {kRows}},
                      {distance.data(), {kRows}},
                      {same.data(), {kRows}}};
  for (auto _ : state) row_compare(io);
  count_bytes(state, 2 * kRows * kVocab * 4);
}
BENCHMARK(compare)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace kvatlas::kernels
