// SPDX-License-Identifier: Apache-2.0
// The CUDA bodies of the kernels in the shapes of Llama-3-8B at 32K tokens, each beside what the
// same GPU can do at most and beside LibTorch's own operations, in one run. './dev gpu' runs it.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>
#include <benchmark/benchmark.h>

#include "analyzer/capture/device.hpp"
#include "analyzer/capture/tensors-inl.hpp"
#include "kernels/attention_maps.hpp"
#include "kernels/js_divergence.hpp"
#include "kernels/lag_scores.hpp"
#include "kernels/last_rows.hpp"
#include "kernels/ragged_decode.hpp"
#include "kernels/top_counts.hpp"
#include "tests/bench/bench_program.hpp"
#include "tests/bench/gpu_limits.hpp"
#include "tests/bench/measure.hpp"

namespace kvatlas::bench {
namespace {

using namespace kernels;
using capture::any_view;
using capture::view_of;

constexpr std::int64_t kTokens = 32768, kHeads = 32, kKvHeads = 8, kHeadDim = 128, kLayers = 32;

at::TensorOptions on_device(at::ScalarType type) {
  return at::TensorOptions().device(at::kCUDA).dtype(type);
}
at::Tensor numbers(at::IntArrayRef sizes, at::ScalarType type = at::kBFloat16) {
  return at::randn(sizes, on_device(type));
}
at::Tensor room(at::IntArrayRef sizes) { return at::empty(sizes, on_device(at::kFloat)); }
std::shared_ptr<void> held(const at::Tensor& tensor) {
  return std::make_shared<at::Tensor>(tensor);
}

/// The work, to its end.
Work done(const Work& work) {
  return [work] {
    work();
    wait_for_device();
  };
}

Limit device_reading() {
  static const double rate = [] {
    constexpr std::int64_t kCount = 1 << 30;
    const auto values = at::zeros({kCount}, on_device(at::kFloat));
    const auto* data = static_cast<const float*>(values.const_data_ptr());
    return 4.0 * kCount / seconds_of(done([data] { read_on_device(data, kCount); }));
  }();
  return {rate, "reading the device's memory"};
}
Limit device_logarithms() {
  static const double rate = static_cast<double>(logarithms_on_device()) /
                             seconds_of(done([] { logarithms_on_device(); }));
  return {rate, "logarithms in registers"};
}
Limit device_products() {
  static const double rate = [] {
    constexpr std::int64_t kSide = 8192;
    const auto a = numbers({kSide, kSide}), b = numbers({kSide, kSide});
    return 2.0 * kSide * kSide * kSide / seconds_of(done([=] { at::matmul(a, b); }));
  }();
  return {rate, "LibTorch's matmul of 8192 x 8192"};
}

void add_last_rows(bool want_probs) {
  constexpr std::int64_t kRows = 32;
  add(std::string("1 last rows") + (want_probs ? " + rows" : "") + "/32 heads, 32 rows", [=] {
    const auto q = numbers({kHeads, kRows, kHeadDim}), k = numbers({kKvHeads, kTokens, kHeadDim});
    LastRows io;
    io.queries = any_view<3>(q);
    io.keys = any_view<3>(k);
    io.scale = 0.088f;
    for (const std::int64_t initial : {4, 16, 64})
      for (const std::int64_t recent : {64, 256, 1024, 2048}) io.grid.push_back({initial, recent});
    const auto entries = static_cast<std::int64_t>(io.grid.size());
    const auto statistics = room({3, entries, kHeads, kRows});
    io.mass = view_of<float, 3>(statistics[0]);
    io.proximal_lse = view_of<float, 3>(statistics[1]);
    io.distant_lse = view_of<float, 3>(statistics[2]);
    const auto probs = want_probs ? room({kHeads, kRows, kTokens}) : at::Tensor();
    if (want_probs) io.probs = view_of<float, 3>(probs);
    const auto tall = numbers({kKvHeads, kHeads / kKvHeads * kRows, kHeadDim});
    const auto across = k.transpose(1, 2);
    return Row{done([=] { last_rows(io); }),
               {held(q), held(k), held(statistics), held(probs)},
               2.0 * kKvHeads * kTokens * kHeadDim,
               "B",
               device_reading(),
               {{"LibTorch's matmul alone", done([=] { at::matmul(tall, across); })}}};
  });
}

void add_js() {
  constexpr std::int64_t kRows = 16;
  add("2 JS divergence/32 layers x 32 heads x 16 rows", [] {
    const auto probs = at::softmax(numbers({kLayers, kHeads, kRows, kTokens}, at::kFloat), -1);
    const auto mean = room({kHeads, kLayers, kLayers});
    const JsDivergence io{any_view<4>(probs), view_of<float, 3>(mean), {}};
    Row row{done([=] { js_divergence(io); }),
            {held(probs), held(mean)},
            0.5 * kLayers * (kLayers + 1) * kHeads * kRows * kTokens,
            "log2",
            device_logarithms(),
            {}};
    row.least_of_limit = 0.5;
    return row;
  });
}

void add_counts() {
  add("3 top-k counts/32 layers x 32 heads, six k", [] {
    const auto scores = at::rand({kLayers, kHeads, kTokens}, on_device(at::kFloat));
    TopCounts io;
    io.scores = view_of<const float, 3>(scores);
    for (const std::int64_t budget : {64, 96, 128, 256, 512, 1024})
      io.k.push_back((budget - 16) * kHeads * kLayers);
    const auto counts =
        at::empty({static_cast<std::int64_t>(io.k.size()), kLayers}, on_device(at::kLong));
    io.counts = view_of<std::int64_t, 2>(counts);
    const auto flat = scores.flatten();
    const std::int64_t first = io.k[0];
    return Row{done([=] { top_counts(io); }),
               {held(scores), held(counts)},
               4.0 * kLayers * kHeads * kTokens,
               "B",
               device_reading(),
               {{"torch.topk for one k", done([=] { at::topk(flat, first, 0, true, false); })}}};
  });
}

void add_maps(bool maps) {
  add(maps ? "5 maps and column sums/32 heads" : "5 row log-sum-exps/32 heads", [=] {
    const auto q = numbers({kHeads, kTokens, kHeadDim}), k = numbers({kKvHeads, kTokens, kHeadDim});
    const auto lse = room({kHeads, kTokens}), columns = room({kHeads, kTokens});
    const CausalScores scores{any_view<3>(q), any_view<3>(k), 0.088f};
    const RowLogSumExp of_rows{scores, view_of<float, 2>(lse)};
    row_logsumexp(of_rows);
    AttentionMaps io{.scores = scores,
                     .lse = view_of<float, 2>(lse),
                     .block = finest_map_block(kTokens),
                     .levels = {},
                     .column_sums = view_of<float, 2>(columns)};
    std::vector<std::shared_ptr<void>> arrays = {held(q), held(k), held(lse), held(columns)};
    for (std::int64_t block = io.block; block < kTokens; block *= 2) {
      const std::int64_t side = map_blocks(kTokens, block);
      const auto level = room({2, kHeads, side, side});
      io.levels.push_back({view_of<float, 3>(level[0]), view_of<float, 3>(level[1])});
      arrays.push_back(held(level));
    }
    // FlashAttention wants a key head for each query head.
    const auto query = q.unsqueeze(0);
    const auto key = k.repeat_interleave(kHeads / kKvHeads, 0).unsqueeze(0);
    return Row{maps ? done([=] { attention_maps(io); }) : done([=] { row_logsumexp(of_rows); }),
               arrays,
               1.0 * kHeads * kTokens * (kTokens + 1) * kHeadDim,
               "FLOP",
               device_products(),
               {{"FlashAttention, which multiplies by values too", done([=] {
                   at::_scaled_dot_product_flash_attention(query, key, key, 0.0, true);
                 })}}};
  });
}

void add_lag() {
  add("4 LagKV, L 128, 512, 1024/8 KV heads", [] {
    const auto keys = numbers({kKvHeads, kTokens, kHeadDim}),
               values = numbers({kKvHeads, kTokens, kHeadDim});
    LagScores io;
    io.keys = any_view<3>(keys);
    io.values = any_view<3>(values);
    io.lags = {128, 512, 1024};
    std::vector<std::shared_ptr<void>> arrays = {held(keys), held(values)};
    for (const std::int64_t lag : io.lags) {
      const auto scores = room({kKvHeads, lag * lag_cut_partitions(kTokens, io.sink, lag)});
      io.scores.push_back(view_of<float, 2>(scores));
      arrays.push_back(held(scores));
    }
    return Row{done([=] { lag_scores(io); }),
               arrays,
               2.0 * 2 * kKvHeads * kTokens * kHeadDim,
               "B",
               device_reading(),
               {}};
  });
}

/// Four candidates that keep 1/1, 1/2, 1/4 and 1/8 of the tokens, each in rows of its own.
void add_decode() {
  add("8 decode of 4 caches/8 KV heads, group 4", [] {
    std::vector<std::int64_t> lengths, starts;
    std::int64_t rows = 0;
    for (std::int64_t candidate = 0; candidate < 4; ++candidate)
      for (std::int64_t head = 0; head < kKvHeads; ++head) {
        starts.push_back(rows);
        lengths.push_back(kTokens >> candidate);
        rows += lengths.back();
      }
    const auto places = at::empty({2, 4, kKvHeads}, at::kLong);
    std::copy(starts.begin(), starts.end(), places.data_ptr<std::int64_t>());
    std::copy(lengths.begin(), lengths.end(), places.data_ptr<std::int64_t>() + starts.size());
    const auto there = places.to(at::kCUDA);
    const auto keys = numbers({rows, kHeadDim}), values = numbers({rows, kHeadDim});
    const auto queries = numbers({4, kHeads, kHeadDim}), out = room({4, kHeads, kHeadDim});
    const RaggedDecode io{any_view<3>(queries),
                          any_view<2>(keys),
                          any_view<2>(values),
                          view_of<const std::int64_t, 2>(there[0]),
                          view_of<const std::int64_t, 2>(there[1]),
                          0.088f,
                          0,
                          view_of<float, 3>(out),
                          {}};
    return Row{done([=] { ragged_decode(io); }),
               {held(there), held(keys), held(values), held(queries), held(out)},
               2.0 * 2 * static_cast<double>(rows) * kHeadDim,
               "B",
               device_reading(),
               {}};
  });
}

void run(int argc, char** argv) {
  const auto placement = capture::choose_placement("cuda", "bfloat16");
  std::printf("%s, bfloat16 unless a row says otherwise, %lld tokens\n",
              capture::device_text(placement).c_str(), static_cast<long long>(kTokens));
  add_last_rows(false);
  add_last_rows(true);
  add_js();
  add_counts();
  add_lag();
  add_maps(true);
  add_maps(false);
  add_decode();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}

}  // namespace
}  // namespace kvatlas::bench

int main(int argc, char** argv) {
  return kvatlas::bench::run_bench(kvatlas::bench::run, argc, argv);
}
