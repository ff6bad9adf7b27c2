// SPDX-License-Identifier: Apache-2.0
// What is made of attention: last rows, JS divergence, window scores and counts, maps. Small is
// SmolLM2-135M, large Llama-3-8B.
#include <array>
#include <cmath>
#include <string>

#include "kernels/attention_maps.hpp"
#include "kernels/causal_attention.hpp"
#include "kernels/js_divergence.hpp"
#include "kernels/last_rows.hpp"
#include "kernels/top_counts.hpp"
#include "tests/bench/measure.hpp"
#include "tests/bench/torch_peers.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::bench {
namespace {

using namespace kernels;

/// Rows that sum to 1, each a base row begun elsewhere: the kernels' time does not hang on values.
Array<float> softmax_rows(std::int64_t rows, std::int64_t n_tokens) {
  const auto base = testing_support::Random(1).softmax_row(n_tokens, 3);
  auto out = zeros<float>(0);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto from = base.begin() + row * 7919 % n_tokens;
    out->insert(out->end(), from, base.end());
    out->insert(out->end(), base.begin(), from);
  }
  return out;
}

void add_last_rows(const std::string& shape, std::int64_t heads, std::int64_t kv_heads,
                   std::int64_t q_rows, std::int64_t n_tokens, std::int64_t head_dim,
                   bool want_probs) {
  add("1 last rows" + std::string(want_probs ? " + rows/" : "/") + shape, [=] {
    const auto q = normals(heads * q_rows * head_dim), k = normals(kv_heads * n_tokens * head_dim);
    LastRows io;
    io.queries = View<const float, 3>(q->data(), {heads, q_rows, head_dim});
    io.keys = View<const float, 3>(k->data(), {kv_heads, n_tokens, head_dim});
    io.scale = 0.125f;
    for (const std::int64_t initial : {4, 16, 64})
      for (const std::int64_t recent : {64, 256, 1024, 2048}) io.grid.push_back({initial, recent});
    const auto probs = zeros<float>(want_probs ? heads * q_rows * n_tokens : 0);
    if (want_probs) io.probs = {probs->data(), {heads, q_rows, n_tokens}};
    const auto entries = static_cast<std::int64_t>(io.grid.size());
    const auto statistics = zeros<float>(3 * entries * heads * q_rows);
    View<float, 3>* outs[] = {&io.mass, &io.proximal_lse, &io.distant_lse};
    for (int i = 0; i < 3; ++i)
      *outs[i] = {statistics->data() + i * entries * heads * q_rows, {entries, heads, q_rows}};
    Row row{[=] { last_rows(io); },
            {q, k, probs, statistics},
            2.0 * static_cast<double>(heads * q_rows * n_tokens * head_dim),
            "FLOP",
            multiply_adds(),
            {{"LibTorch's matmul alone",
              torch_thin_matmul(heads, kv_heads, q_rows, n_tokens, head_dim)}}};
    row.most_of_peer = 1.2;
    return row;
  });
}

void add_js(const std::string& shape, std::int64_t layers, std::int64_t heads,
            std::int64_t n_tokens, bool with_peer) {
  constexpr std::int64_t kRows = 16;
  add("2 JS divergence/" + shape, [=] {
    const auto probs = softmax_rows(layers * heads * kRows, n_tokens);
    const auto mean = zeros<float>(heads * layers * layers);
    const JsDivergence io{View<const float, 4>(probs->data(), {layers, heads, kRows, n_tokens}),
                          {mean->data(), {heads, layers, layers}},
                          {}};
    Row row{[=] { js_divergence(io); },
            {probs, mean},
            static_cast<double>(layers * (layers + 1) / 2 * heads * kRows * n_tokens),
            "log2",
            logarithms(),
            {}};
    row.least_of_limit = 0.8;
    if (with_peer) row.peers = {{"LibTorch's xlogy", torch_js(layers, heads, kRows, n_tokens)}};
    return row;
  });
}

void add_counts(const std::string& shape, std::int64_t layers, std::int64_t heads,
                std::int64_t n_positions, const std::vector<std::int64_t>& budgets) {
  add("3 top-k counts/" + shape, [=] {
    const auto scores = normals(layers * heads * n_positions);
    for (float& score : *scores) score = std::exp(3 * score);
    TopCounts io;
    io.scores = {scores->data(), {layers, heads, n_positions}};
    for (const std::int64_t budget : budgets) io.k.push_back((budget - 16) * heads * layers);
    const auto n_k = static_cast<std::int64_t>(budgets.size());
    const auto counts = zeros<std::int64_t>(n_k * layers);
    io.counts = {counts->data(), {n_k, layers}};
    const std::int64_t bytes = 4 * layers * heads * n_positions;
    Row row{[=] { top_counts(io); },
            {scores, counts},
            static_cast<double>(bytes),
            "B",
            reading(bytes),
            {{"torch.topk for one k", torch_topk(layers * heads * n_positions, io.k[0])}}};
    if (n_k == 1) row.most_of_peer = 0.2;
    return row;
  });
}

void add_maps(const std::string& shape, std::int64_t heads, std::int64_t kv_heads,
              std::int64_t n_tokens, std::int64_t head_dim) {
  const auto row = [=](bool maps) {
    const auto q = normals(heads * n_tokens * head_dim),
               k = normals(kv_heads * n_tokens * head_dim);
    const auto lse = zeros<float>(heads * n_tokens), columns = zeros<float>(heads * n_tokens);
    const CausalScores scores{View<const float, 3>(q->data(), {heads, n_tokens, head_dim}),
                              View<const float, 3>(k->data(), {kv_heads, n_tokens, head_dim}),
                              0.125f};
    const RowLogSumExp of_rows{scores, {lse->data(), {heads, n_tokens}}};
    row_logsumexp(of_rows);
    AttentionMaps io{.scores = scores,
                     .lse = View<const float, 2>(lse->data(), {heads, n_tokens}),
                     .block = finest_map_block(n_tokens),
                     .levels = {},
                     .column_sums = {columns->data(), {heads, n_tokens}}};
    std::vector<std::shared_ptr<void>> arrays = {q, k, lse, columns};
    for (std::int64_t block = io.block; block < n_tokens; block *= 2) {
      const std::int64_t side = map_blocks(n_tokens, block);
      MapLevel level;
      for (auto* view : {&level.mean, &level.max}) {
        const auto output = zeros<float>(heads * side * side);
        *view = {output->data(), {heads, side, side}};
        arrays.push_back(output);
      }
      io.levels.push_back(level);
    }
    const Work kernel = maps ? Work([=] { attention_maps(io); }) : [=] { row_logsumexp(of_rows); };
    Row made{
        kernel,
        arrays,
        static_cast<double>(heads * n_tokens * (n_tokens + 1) * head_dim),
        "FLOP",
        multiply_adds(),
        {{"LibTorch's matmul alone", torch_triangle_matmul(heads, kv_heads, n_tokens, head_dim)}}};
    made.most_of_peer = maps ? 1.6 : 0;
    return made;
  };
  add("5 maps and column sums/" + shape, [row] { return row(true); });
  add("5 row log-sum-exps/" + shape, [row] { return row(false); });
}

void add_attention(const std::string& shape, std::int64_t heads, std::int64_t kv_heads,
                   std::int64_t n_tokens, std::int64_t head_dim) {
  add("9 causal attention/" + shape, [=] {
    const auto q = normals(heads * n_tokens * head_dim),
               k = normals(kv_heads * n_tokens * head_dim),
               v = normals(kv_heads * n_tokens * head_dim);
    const auto out = zeros<float>(heads * n_tokens * head_dim),
               lse = zeros<float>(heads * n_tokens);
    const CausalAttention<float> io{.queries = {q->data(), {heads, n_tokens, head_dim}},
                                    .keys = {k->data(), {kv_heads, n_tokens, head_dim}},
                                    .values = {v->data(), {kv_heads, n_tokens, head_dim}},
                                    .scale = 0.125f,
                                    .out = {out->data(), {n_tokens, heads, head_dim}},
                                    .lse = {lse->data(), {heads, n_tokens}}};
    return Row{[=] { causal_attention(io); },
               {q, k, v, out, lse},
               2.0 * static_cast<double>(heads * n_tokens * (n_tokens + 1) * head_dim),
               "FLOP",
               multiply_adds(),
               {{"LibTorch's flash attention",
                 torch_flash_attention(heads, kv_heads, n_tokens, head_dim)}}};
  });
}

const bool registered = [] {
  add_last_rows("9 heads, 16 rows x 4096, dim 64", 9, 3, 16, 4096, 64, false);
  add_last_rows("32 heads, 32 rows x 8192, dim 128", 32, 8, 32, 8192, 128, false);
  add_last_rows("32 heads, 32 rows x 8192, dim 128", 32, 8, 32, 8192, 128, true);
  add_js("30 layers x 9 heads x 16 x 4096", 30, 9, 4096, true);
  add_js("32 layers x 32 heads x 16 x 8192", 32, 32, 8192, false);
  add_counts("30 x 9 x 4080, one k", 30, 9, 4080, {128});
  add_counts("32 x 32 x 8176, one k", 32, 32, 8176, {512});
  add_counts("32 x 32 x 8176, six k", 32, 32, 8176, {64, 96, 128, 256, 512, 1024});
  add_maps("9 heads x 4096, dim 64", 9, 3, 4096, 64);
  add_maps("8 heads x 4096, dim 128", 8, 2, 4096, 128);
  for (const std::int64_t n : {512, 1024, 2048, 4096, 8192})
    add_attention("9 heads x " + std::to_string(n) + ", dim 64", 9, 3, n, 64);
  add_attention("8 heads x 4096, dim 128", 8, 2, 4096, 128);
  return true;
}();

}  // namespace
}  // namespace kvatlas::bench
