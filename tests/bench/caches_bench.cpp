// SPDX-License-Identifier: Apache-2.0
// What works on whole caches. Small is SmolLM2-135M at 4096 tokens, large a layer of
// Llama-3-8B at 16384.
#include <array>
#include <numeric>

#include "kernels/kv_quant.hpp"
#include "kernels/lag_scores.hpp"
#include "kernels/ragged_decode.hpp"
#include "tests/bench/measure.hpp"

namespace kvatlas::bench {
namespace {

using namespace kernels;

struct Shape {
  std::int64_t heads, tokens, dim;
  std::array<std::int64_t, 3> sizes() const { return {heads, tokens, dim}; }
  std::int64_t count() const { return heads * tokens * dim; }
  std::string text() const {
    return std::to_string(heads) + " x " + std::to_string(tokens) + " x " + std::to_string(dim);
  }
};

void add_lag(const Shape& s, const char* what, LagVariant variant,
             const std::vector<std::int64_t>& lags) {
  add(std::string("4 ") + what + "/" + s.text(), [=] {
    const auto keys = normals(s.count()), values = normals(s.count());
    LagScores io;
    io.keys = View<const float, 3>(keys->data(), s.sizes());
    io.values = View<const float, 3>(values->data(), s.sizes());
    io.variant = variant;
    io.lags = lags;
    std::vector<std::shared_ptr<void>> arrays = {keys, values};
    for (const std::int64_t lag : lags) {
      const std::int64_t scored = lag * lag_cut_partitions(s.tokens, io.sink, lag);
      const auto scores = zeros<float>(s.heads * scored);
      io.scores.push_back({scores->data(), {s.heads, scored}});
      arrays.push_back(scores);
    }
    const std::int64_t bytes = 2 * 4 * s.count();
    Row row{[=] { lag_scores(io); }, arrays, static_cast<double>(bytes), "B", reading(bytes), {}};
    // A value: minimum and maximum; for each lag a difference, a sum and two multiply-adds.
    row.operations =
        static_cast<double>(2 * s.count()) * (2 + 6 * static_cast<double>(lags.size()));
    row.least_of_limit = 0.5;
    return row;
  });
}

void add_quantise(const Shape& s, QuantAxis axis, bool back) {
  const char* what = back                           ? "7 from 4 bits, per token/"
                     : axis == QuantAxis::per_token ? "7 to 4 bits, per token/"
                                                    : "7 to 4 bits, per channel/";
  add(what + s.text(), [=] {
    const auto from = normals(s.count());
    const auto codes = zeros<std::uint8_t>(s.count() / 2);
    const auto scales = zeros<std::uint16_t>(2 * s.count() / kQuantGroup);
    const auto sizes = axis == QuantAxis::per_token
                           ? std::array<std::int64_t, 3>{s.heads, s.tokens, s.dim / kQuantGroup}
                           : std::array<std::int64_t, 3>{s.heads, s.tokens / kQuantGroup, s.dim};
    const QuantisedCache cache{4,
                               axis,
                               {codes->data(), {s.heads, s.tokens, s.dim / 2}},
                               {scales->data(), sizes},
                               {scales->data() + s.count() / kQuantGroup, sizes}};
    const KvQuantise in{View<const float, 3>(from->data(), s.sizes()), cache};
    kv_quantise(in);
    const auto restored = zeros<float>(back ? s.count() : 0);
    const KvDequantise out{cache, {restored->data(), s.sizes()}};
    const std::int64_t bytes = s.count() * 4 + s.count() / 2 + s.count() / kQuantGroup * 4;
    return Row{back ? Work([=] { kv_dequantise(out); }) : [=] { kv_quantise(in); },
               {from, codes, scales, restored},
               static_cast<double>(bytes),
               "B",
               copying(bytes),
               {}};
  });
}

/// A decode step of four candidates that keep 1/1, 1/2, 1/4 and 1/8 of the tokens, each in rows of
/// its own, or if `sharing` is given, of so many that all read the same cache.
void add_decode(const Shape& s, std::int64_t group, std::int64_t sharing = 0) {
  const bool shared = sharing > 0;
  const std::int64_t candidates = shared ? sharing : 4;
  const std::string name =
      shared ? "of one cache by " + std::to_string(sharing) : std::string("of 4 caches");
  add("8 decode " + name + ", group " + std::to_string(group) + "/" + s.text(), [=] {
    const auto lengths = zeros<std::int64_t>(0), starts = zeros<std::int64_t>(0);
    std::int64_t rows = 0;
    for (std::int64_t c = 0; c < candidates; ++c)
      for (std::int64_t g = 0; g < s.heads; ++g) {
        starts->push_back(shared ? g * s.tokens : rows);
        lengths->push_back(shared ? s.tokens : s.tokens >> c);
        rows = starts->back() + lengths->back();
      }
    const auto keys = normals(rows * s.dim), values = normals(rows * s.dim);
    const std::int64_t heads = group * s.heads;
    const auto queries = normals(candidates * heads * s.dim),
               out = zeros<float>(candidates * heads * s.dim);
    const RaggedDecode io{View<const float, 3>(queries->data(), {candidates, heads, s.dim}),
                          View<const float, 2>(keys->data(), {rows, s.dim}),
                          View<const float, 2>(values->data(), {rows, s.dim}),
                          {starts->data(), {candidates, s.heads}},
                          {lengths->data(), {candidates, s.heads}},
                          0.1f,
                          0,
                          {out->data(), {candidates, heads, s.dim}},
                          {}};
    const std::int64_t bytes = 2 * 4 * rows * s.dim;
    Row row{[=] { ragged_decode(io); },
            {lengths, starts, keys, values, queries, out},
            static_cast<double>(bytes),
            "B",
            reading(bytes),
            {}};
    // Of each query and row: a product with the key, and one with the value.
    for (const auto length : *lengths)
      row.operations += static_cast<double>(4 * group * length * s.dim);
    return row;
  });
}

const bool registered = [] {
  constexpr Shape kSmall{3, 4096, 64}, kLarge{8, 16384, 128};
  for (const Shape& s : {kSmall, kLarge}) add_lag(s, "LagKV, L 128", LagVariant::lag, {128});
  add_lag(kLarge, "LagKV, L 128, 512, 1024", LagVariant::lag, {128, 512, 1024});
  add_lag(kLarge, "LocalKV, L 128", LagVariant::local, {128});
  for (const Shape& s : {kSmall, kLarge}) {
    add_quantise(s, QuantAxis::per_channel, false);
    add_quantise(s, QuantAxis::per_token, false);
    add_quantise(s, QuantAxis::per_token, true);
  }
  add_decode(kSmall, 3);
  add_decode({3, 1024, 64}, 3, 180);
  add_decode(kLarge, 1);
  add_decode(kLarge, 4);
  return true;
}();

}  // namespace
}  // namespace kvatlas::bench
