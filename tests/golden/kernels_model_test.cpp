// SPDX-License-Identifier: Apache-2.0
// The kernels on what SmolLM2's attention reads, layer by layer during one forward pass, against
// what numpy and kvpress made of transformers' forward pass.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "analyzer/capture/engine.hpp"
#include "kernels/kernels.hpp"
#include "tests/support/golden.hpp"

namespace kvatlas::kernels {
namespace {

constexpr std::int64_t kRows = 32;  // last rows that are kept
constexpr std::int64_t kJsRows = 16, kWindow = 16, kBlock = 64;
constexpr std::int64_t kSink = 16;
const std::vector<Proximity> kGrid = {{4, 64}, {4, 256}, {16, 240}};
constexpr std::array<Pooling, 2> kPoolings = {Pooling::average, Pooling::maximum};

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

/// A dense array and a view of it.
template <class T, std::size_t N>
struct Array {
  std::array<std::int64_t, N> shape{};
  std::vector<T> values;

  explicit Array(const std::array<std::int64_t, N>& sizes) : shape(sizes) {
    std::int64_t count = 1;
    for (const auto size : sizes) count *= size;
    values.resize(static_cast<std::size_t>(count));
  }
  View<T, N> view() { return {values.data(), shape}; }
  /// The part of one layer, where the first axis is layers.
  View<T, N - 1> layer(std::int64_t l) {
    std::array<std::int64_t, N - 1> sizes;
    std::copy(shape.begin() + 1, shape.end(), sizes.begin());
    const std::int64_t each = static_cast<std::int64_t>(values.size()) / shape[0];
    return {values.data() + l * each, sizes};
  }
};

/// LagKV's scores and kept positions of one layer and setting.
struct Cut {
  std::int64_t layer, lag, keep;
  std::string name;                     // of the expected dataset
  std::vector<float> scores;            // [n_kv_heads, partitions * lag]
  std::vector<std::int64_t> positions;  // [n_kv_heads, kept]
};

/// All that the kernels make of one prompt.
struct Statistics {
  Statistics(std::int64_t layers, std::int64_t heads, std::int64_t tokens)
      : n_layers(layers), n_heads(heads), n_tokens(tokens) {}

  std::int64_t n_layers, n_heads, n_tokens;
  Array<float, 4> rows{{n_layers, n_heads, kRows, n_tokens}};
  Array<float, 4> mass{{n_layers, 3, n_heads, kRows}};
  Array<float, 3> columns{{n_layers, n_heads, n_tokens}};
  std::int64_t side = map_blocks(n_tokens, kBlock);
  Array<float, 4> mean{{n_layers, n_heads, side, side}}, max{{n_layers, n_heads, side, side}};
  std::vector<Cut> cuts;
  // Of the query heads of the last KV head in layer 18: the kernel and the float64 reference on the
  // same queries and keys.
  std::vector<float> own_columns;
  std::vector<double> own_columns_expected;

  void add_layer(const capture::AttentionInputs& in);

 private:
  void add_cuts(const capture::AttentionInputs& in);
  void add_reference_columns(CausalScores scores);
};

void Statistics::add_layer(const capture::AttentionInputs& in) {
  const auto scale = static_cast<float>(in.scale), soft_cap = static_cast<float>(in.softcap);
  LastRows last;
  last.queries = in.query;
  last.queries.sizes[1] = kRows;
  last.queries.data =
      static_cast<const float*>(in.query.data) + (in.query.sizes[1] - kRows) * in.query.strides[1];
  last.keys = in.key;
  last.scale = scale;
  last.soft_cap = soft_cap;
  last.window = in.window;
  last.probs = rows.layer(in.layer);
  last.grid = kGrid;
  last.mass = mass.layer(in.layer);
  last_rows(last);

  const CausalScores scores = {in.query, in.key, scale, in.window, soft_cap};
  Array<float, 2> lse({n_heads, n_tokens});
  row_logsumexp({scores, lse.view()});
  attention_maps({.scores = scores,
                  .lse = lse.view(),
                  .block = kBlock,
                  .levels = {{mean.layer(in.layer), max.layer(in.layer)}},
                  .column_sums = columns.layer(in.layer)});
  if (in.layer == 0 || in.layer == 10 || in.layer == 29) add_cuts(in);
  if (in.layer == 18) add_reference_columns(scores);
}

void Statistics::add_reference_columns(CausalScores scores) {
  const std::int64_t kv_heads = scores.keys.sizes[0], group = n_heads / kv_heads;
  const auto leave_last = [](AnyView<3>& heads, std::int64_t count) {
    heads.data =
        static_cast<const float*>(heads.data) + (heads.sizes[0] - count) * heads.strides[0];
    heads.sizes[0] = count;
  };
  leave_last(scores.queries, group);
  leave_last(scores.keys, 1);
  const auto run = [&](Backend backend) {
    Array<float, 2> lse({group, n_tokens}), sums({group, n_tokens});
    row_logsumexp({scores, lse.view()}, {.backend = backend});
    attention_maps({.scores = scores, .lse = lse.view(), .levels = {}, .column_sums = sums.view()},
                   {.backend = backend});
    return sums.values;
  };
  own_columns = run(Backend::automatic);
  const auto expected = run(Backend::reference);
  own_columns_expected.assign(expected.begin(), expected.end());
}

void Statistics::add_cuts(const capture::AttentionInputs& in) {
  const std::map<LagVariant, std::string> variants = {
      {LagVariant::lag, "lag"}, {LagVariant::local, "local"}, {LagVariant::l2, "l2"}};
  const struct {
    std::int64_t lag, keep;
    const char* name;
  } settings[] = {{64, 32, "L64_r0.5"},
                  {128, 32, "L128_r0.25"},
                  {128, 16, "L128_r0.125"},
                  {256, 128, "L256_r0.5"}};
  for (const auto& [variant, variant_name] : variants) {
    if (variant == LagVariant::l2 && in.layer == 0) continue;  // the first layers are not cut by it
    for (const auto& [lag, keep, name] : settings) {
      const std::int64_t heads = in.key.sizes[0];
      Array<float, 2> scores({heads, lag * lag_cut_partitions(n_tokens, kSink, lag)});
      LagScores score;
      score.keys = in.key;
      score.values = in.value;
      score.sink = kSink;
      score.variant = variant;
      score.lags = {lag};
      score.scores = {scores.view()};
      lag_scores(score);
      Array<std::int64_t, 2> positions({heads, lag_length(n_tokens, kSink, lag, keep)});
      lag_kept({scores.view(), n_tokens, kSink, lag, keep, positions.view()});
      cuts.push_back(
          {in.layer, lag, keep,
           "lagkv_layer" + std::to_string(in.layer) + "/kept_S16_" + name + "_" + variant_name,
           scores.values, positions.values});
    }
  }
}

class GoldenModelKernels : public testing::TestWithParam<const char*> {
 protected:
  testing_support::GoldenArray expected(const std::string& name) const {
    return testing_support::read_golden(testing_support::golden_path("smollm2.h5"),
                                        std::string(GetParam()) + "/" + name);
  }

  Statistics measure() const {
    capture::Engine engine(model::ModelFile::open(testing_support::demo_model()), {});
    const auto& config = engine.model().config();
    const auto tokens = expected("tokens").integers();
    Statistics out(config.n_layers, config.n_heads, static_cast<std::int64_t>(tokens.size()));
    capture::Sequence sequence = engine.sequence();
    const capture::Engine::Step step{&sequence, tokens};
    engine.run({&step, 1}, capture::Logits::none,
               {.attention = [&](const capture::AttentionInputs& in) { out.add_layer(in); },
                .logits = {},
                .progress = {}});
    return out;
  }

  /// All within absolute + relative * |want|, and the root mean square of the differences within
  /// `rms` of that.
  void expect_within(const std::string& what, const std::vector<float>& got,
                     const std::vector<double>& want, double absolute, double relative,
                     double rms = 1) const {
    ASSERT_EQ(got.size(), want.size()) << what;
    double worst = 0, squares = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double share = std::abs(static_cast<double>(got[i]) - want[i]) /
                           (absolute + relative * std::abs(want[i]));
      if (!(share <= worst)) worst = share;  // a NaN is kept
      squares += share * share;
    }
    EXPECT_LE(worst, 1) << what;
    EXPECT_LE(std::sqrt(squares / static_cast<double>(got.size())), rms) << what;
  }

  void check_rows(Statistics& s) const;
  void check_js(Statistics& s) const;
  void check_window_scores(Statistics& s) const;
  void check_maps(Statistics& s) const;
  void check_cuts(const Statistics& s) const;
};

void GoldenModelKernels::check_rows(Statistics& s) const {
  std::vector<float> last_two;
  for (std::int64_t head = 0; head < s.n_layers * s.n_heads; ++head) {
    const auto end = s.rows.values.begin() + (head + 1) * kRows * s.n_tokens;
    last_two.insert(last_two.end(), end - 2 * s.n_tokens, end);
  }
  expect_within("attention rows", last_two, expected("rows_last2").values, 1e-5, 0);
  for (std::int64_t entry = 0; entry < 3; ++entry) {
    std::vector<float> masses;
    for (std::int64_t l = 0; l < s.n_layers; ++l)
      for (std::int64_t i = 0; i < s.n_heads * kRows; ++i)
        masses.push_back(s.mass.values[size((l * 3 + entry) * s.n_heads * kRows + i)]);
    const auto& [initial, recent] = kGrid[size(entry)];
    const std::string name =
        "proximal_mass_" + std::to_string(initial) + "_" + std::to_string(recent);
    expect_within(name, masses, expected(name).values, 1e-5, 0);
  }
}

void GoldenModelKernels::check_js(Statistics& s) const {
  auto last = s.rows.view();
  last.data += (kRows - kJsRows) * s.n_tokens;
  last.sizes[2] = kJsRows;
  Array<float, 3> js({s.n_heads, s.n_layers, s.n_layers});
  js_divergence({View<const float, 4>(last), js.view(), {}});
  expect_within("JS divergence", js.values, expected("js_divergence_q16").values, 1e-5, 0);

  // PoD's blocks from it (methods.md, section 2).
  for (const char* delta_text : {"0.5", "0.7", "0.9"}) {
    const double delta = std::stod(delta_text);
    const auto want = expected(std::string("pod_block_of_layer_") + delta_text).integers();
    for (std::int64_t head = 0; head < s.n_heads; ++head) {
      std::int64_t block = 0, first = 0;
      bool close = false;  // a similarity that rounding could carry over delta
      for (std::int64_t layer = 0; layer < s.n_layers; ++layer) {
        bool joins = true;
        for (std::int64_t m = first; m < layer; ++m) {
          const double similarity = 1 - static_cast<double>(js.view()(head, layer, m));
          joins = joins && similarity >= delta;
          close = close || std::abs(similarity - delta) < 2e-5;
        }
        if (!joins) {
          ++block;
          first = layer;
        }
        if (!close) {
          ASSERT_EQ(block, want[size(head * s.n_layers + layer)])
              << "head " << head << ", layer " << layer << ", delta " << delta;
        }
      }
    }
  }
}

void GoldenModelKernels::check_window_scores(Statistics& s) const {
  const std::int64_t n_positions = s.n_tokens - kWindow;
  for (const Pooling pooling : kPoolings) {
    const std::string name = pooling == Pooling::average ? "avg" : "max";
    Array<float, 3> scores({s.n_layers, s.n_heads, n_positions});
    for (std::int64_t l = 0; l < s.n_layers; ++l)
      window_scores({View<const float, 3>(s.rows.layer(l)), kWindow, 7, pooling, scores.layer(l)});
    std::vector<float> of_two;
    for (const std::int64_t l : {0, 15}) {
      const auto begin = scores.values.begin() + l * s.n_heads * n_positions;
      of_two.insert(of_two.end(), begin, begin + s.n_heads * n_positions);
    }
    expect_within("window scores, " + name, of_two,
                  expected("window_scores_ws16_k7_" + name + "_layers_0_15").values, 1e-5, 0);
    TopCounts top;
    top.scores = scores.view();
    const std::vector<std::int64_t> budgets = {64, 128, 256};
    for (const std::int64_t wt : budgets)
      top.k.push_back(std::min(wt - kWindow, n_positions) * s.n_heads * s.n_layers);
    Array<std::int64_t, 2> counts({3, s.n_layers});
    top.counts = counts.view();
    top_counts(top);
    for (std::int64_t i = 0; i < 3; ++i) {
      const auto of_budget = counts.layer(i);
      EXPECT_EQ(std::vector<std::int64_t>(of_budget.data, of_budget.data + s.n_layers),
                expected("dynamickv_wt" + std::to_string(budgets[size(i)]) + "_ws16_k7_" + name +
                         "_rmax10/counts")
                    .integers());
    }
  }
}

void GoldenModelKernels::check_maps(Statistics& s) const {
  // A sum of many rows of attention gathers the model's own float32 rounding: between transformers
  // in float32 and in float64 the sums differ by up to 4.4e-5 (layer 18), 1.8e-6 in the root mean
  // square, and between two machines in float32 by 3.9e-5. So the largest difference has room for
  // two such errors, the mean does not, and that the kernel adds none of its own is shown apart.
  expect_within("column sums", s.columns.values, expected("column_sums").values, 0, 1e-4, 0.04);
  expect_within("column sums beside the reference", s.own_columns, s.own_columns_expected, 0, 1e-5);
  // The expected maps leave out the last, partial block.
  const auto mean = expected("block_mean_64"), max = expected("block_max_64");
  const std::int64_t whole = s.n_tokens / kBlock;
  ASSERT_EQ(mean.shape[3], whole);
  std::vector<float> means, maxima;
  for (std::int64_t head = 0; head < s.n_layers * s.n_heads; ++head)
    for (std::int64_t bi = 0; bi < whole; ++bi)
      for (std::int64_t bj = 0; bj < whole; ++bj) {
        means.push_back(s.mean.values[size((head * s.side + bi) * s.side + bj)]);
        maxima.push_back(s.max.values[size((head * s.side + bi) * s.side + bj)]);
      }
  expect_within("block means", means, mean.values, 1e-6, 1e-4);
  expect_within("block maxima", maxima, max.values, 1e-6, 1e-4);
}

void GoldenModelKernels::check_cuts(const Statistics& s) const {
  for (const Cut& cut : s.cuts) {
    const auto want = expected(cut.name);
    const std::int64_t heads = want.shape[0], kept = want.shape[1];
    ASSERT_EQ(static_cast<std::int64_t>(cut.positions.size()), heads * kept) << cut.name;
    const std::int64_t scored = static_cast<std::int64_t>(cut.scores.size()) / heads;
    const auto positions = want.integers();
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::set<std::int64_t> a(positions.begin() + head * kept,
                                     positions.begin() + (head + 1) * kept),
          b(cut.positions.begin() + head * kept, cut.positions.begin() + (head + 1) * kept);
      // What is in one alone: by partition, at most a token each, of nearly equal score.
      std::map<std::int64_t, std::vector<std::int64_t>> missing, added;
      for (const std::int64_t j : a)
        if (b.count(j) == 0) missing[(j - kSink) / cut.lag].push_back(j);
      for (const std::int64_t j : b)
        if (a.count(j) == 0) added[(j - kSink) / cut.lag].push_back(j);
      ASSERT_EQ(missing.size(), added.size()) << cut.name;
      for (const auto& [partition, tokens] : missing) {
        const auto& others = added[partition];
        ASSERT_TRUE(tokens.size() == 1 && others.size() == 1)
            << cut.name << ", head " << head << ", partition " << partition;
        const auto score = [&](std::int64_t j) {
          return static_cast<double>(cut.scores[size(head * scored + j - kSink)]);
        };
        EXPECT_LT(std::abs(score(tokens[0]) - score(others[0])), 1e-7)
            << cut.name << ", head " << head << ": " << others[0] << " instead of " << tokens[0];
      }
    }
  }
}

/// One forward pass a prompt serves all comparisons.
TEST_P(GoldenModelKernels, AgreeWithTheReferenceStatistics) {
  Statistics s = measure();
  ASSERT_EQ(s.cuts.size(), 32u);
  ASSERT_FALSE(s.own_columns.empty());
  check_rows(s);
  check_js(s);
  check_window_scores(s);
  check_maps(s);
  check_cuts(s);
}

INSTANTIATE_TEST_SUITE_P(SmolLM2, GoldenModelKernels, testing::Values("prose", "code"),
                         [](const auto& prompt) { return std::string(prompt.param); });

}  // namespace
}  // namespace kvatlas::kernels
