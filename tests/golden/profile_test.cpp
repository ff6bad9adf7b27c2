// SPDX-License-Identifier: Apache-2.0
// `kvatlas profile` on the real model, read back from its file, against what numpy, scipy and
// kvpress made of transformers' forward pass.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analyzer/profile/statistics.hpp"
#include "kernels/kernels.hpp"
#include "kernels/layer_budgets.hpp"
#include "tests/support/dynamickv_paper.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/run_program.hpp"

namespace kvatlas::profile {
namespace {

using namespace testing_support;

constexpr std::int64_t kLayers = 30, kHeads = 9, kKvHeads = 3, kWindow = 16, kSink = 16;
const std::vector<std::string> kPrompts = {"prose", "code"};

std::size_t size(std::int64_t value) { return static_cast<std::size_t>(value); }

GoldenArray golden(const std::string& prompt, const std::string& name) {
  return read_golden(golden_path("smollm2.h5"), prompt + "/" + name);
}

/// The profile of both prompts, taken once for all tests: on the CPU, or in float32 on the device
/// that KVATLAS_TEST_DEVICE names.
const Reader& profile() {
  static const TemporaryFolder folder;
  static const std::unique_ptr<Reader> reader = [] {
    std::string lines;
    for (const auto& prompt : kPrompts)
      lines +=
          nlohmann::json{{"id", prompt}, {"tokens", golden(prompt, "tokens").integers()}}.dump() +
          "\n";
    const std::string file = (folder.path() / "p.h5").string();
    const char* device = std::getenv("KVATLAS_TEST_DEVICE");
    const Finished finished = run_kvatlas({"profile",
                                           "--device",
                                           device ? device : "cpu",
                                           "--dtype",
                                           "float32",
                                           "--model",
                                           demo_model().string(),
                                           "--prompts",
                                           folder.write("prompts.jsonl", lines).string(),
                                           "-o",
                                           file,
                                           "--capture",
                                           "default,argmax",
                                           "--map-type",
                                           "float32",
                                           "--keep",
                                           "qkv,scores",
                                           "--keep-layers",
                                           "0,10,18,29",
                                           "--initial",
                                           "4,16",
                                           "--recent",
                                           "64,240,256",
                                           "--lags",
                                           "64,128,256",
                                           "--ratios",
                                           "1/2,1/4,1/8"});
    if (finished.status != 0) throw std::runtime_error(finished.err);
    return std::make_unique<Reader>(file);
  }();
  return *reader;
}

/// The index of a setting on its axis.
std::int64_t on_axis(const std::string& axis, const std::string& label) {
  for (const auto& table : profile().header().axes)
    if (table.axis == axis)
      for (std::size_t i = 0; i < table.labels.size(); ++i)
        if (table.labels[i] == label) return static_cast<std::int64_t>(i);
  throw std::runtime_error("no " + label + " on axis " + axis);
}

/// All within absolute + relative * |want|, and the root mean square of the differences within
/// `rms` of that.
void expect_within(const std::string& what, const std::vector<float>& got,
                   const std::vector<double>& want, double absolute, double relative,
                   double rms = 1) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double worst = 0, squares = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double share =
        std::abs(static_cast<double>(got[i]) - want[i]) / (absolute + relative * std::abs(want[i]));
    if (!(share <= worst)) worst = share;  // a NaN is kept
    squares += share * share;
  }
  EXPECT_LE(worst, 1) << what;
  EXPECT_LE(std::sqrt(squares / static_cast<double>(got.size())), rms) << what;
}

class GoldenProfile : public testing::TestWithParam<std::size_t> {
 protected:
  std::string prompt() const { return kPrompts[GetParam()]; }
  GoldenArray expected(const std::string& name) const { return golden(prompt(), name); }
  std::int64_t tokens() const {
    return static_cast<std::int64_t>(profile().samples()[GetParam()].n_tokens);
  }

  /// The sample's row of a statistic.
  template <class T>
  std::vector<T> statistic(const std::string& name) const {
    const Array all = profile().statistic(name);
    const auto values = all.values<T>();
    const std::size_t each = values.size() / kPrompts.size();
    return {values.begin() + static_cast<std::ptrdiff_t>(GetParam() * each),
            values.begin() + static_cast<std::ptrdiff_t>((GetParam() + 1) * each)};
  }
  Array array(const std::string& name, const std::vector<std::int64_t>& at = {}) const {
    return profile().array(GetParam(), name, at);
  }
  template <class T>
  std::vector<T> values(const std::string& name, const std::vector<std::int64_t>& at = {}) const {
    const Array part = array(name, at);
    const auto all = part.values<T>();
    return {all.begin(), all.end()};
  }
  std::vector<float> powers(const std::string& name,
                            const std::vector<std::int64_t>& at = {}) const {
    auto logs = values<float>(name, at);
    for (float& value : logs) value = std::exp2(value);
    return logs;
  }
};

TEST_P(GoldenProfile, HoldsThePromptAndTheNextTokens) {
  const auto want = expected("tokens").integers();
  const auto& sample = profile().samples()[GetParam()];
  EXPECT_EQ(sample.id, prompt());
  const auto ids_of_prompt = profile().tokens(GetParam());
  EXPECT_EQ(std::vector<std::int64_t>(ids_of_prompt.begin(), ids_of_prompt.end()), want);

  const auto best = values<std::int32_t>(name::kArgmax);
  EXPECT_EQ(std::vector<std::int64_t>(best.begin(), best.end()),
            expected("argmax_every_position").integers());
  expect_within("top logits", statistic<float>(name::kTopLogits),
                expected("logits_last_top_values").values, 1e-3, 0);
  const auto ids = statistic<std::int32_t>(name::kTopIds);
  EXPECT_EQ(std::vector<std::int64_t>(ids.begin(), ids.end()),
            expected("logits_last_top_ids").integers());
  expect_within("sum of logits", statistic<float>(name::kLogitSum),
                expected("logits_last_sum").values, 5, 0);
}

TEST_P(GoldenProfile, HasItsLastRowsAndMasses) {
  std::vector<float> last_two;
  for (std::int64_t l = 0; l < kLayers; ++l)
    for (std::int64_t h = 0; h < kHeads; ++h) {
      const auto rows = powers(name::kRows, {l, h});
      last_two.insert(last_two.end(), rows.end() - 2 * tokens(), rows.end());
    }
  expect_within("attention rows", last_two, expected("rows_last2").values, 1e-5, 0);

  const auto masses = statistic<float>(name::kMass);
  const auto near = statistic<float>(name::kProximalLse), far = statistic<float>(name::kDistantLse);
  const auto each = static_cast<std::ptrdiff_t>(kLayers * kHeads * 32);
  for (const char* grid : {"4_64", "4_256", "16_240"}) {
    const std::string text = grid;
    const auto cut = text.find('_');
    const auto at =
        on_axis("proximity", "initial=" + text.substr(0, cut) + ",recent=" + text.substr(cut + 1)) *
        each;
    const std::vector<float> of_grid(masses.begin() + at, masses.begin() + at + each);
    const auto want = expected("proximal_mass_" + text).values;
    expect_within(text, of_grid, want, 1e-5, 0);
    // The mass is what the two log-sum-exps make of it, too.
    std::vector<float> from_sums;
    for (std::ptrdiff_t i = at; i < at + each; ++i)
      from_sums.push_back(1 / (1 + std::exp(far[size(i)] - near[size(i)])));
    expect_within(text + " from log-sum-exps", from_sums, want, 1e-5, 0);
  }
}

TEST_P(GoldenProfile, HasTheDivergenceAndBlocks) {
  const auto js = statistic<float>(name::kDivergence);
  expect_within("JS divergence", js, expected("js_divergence_q16").values, 1e-5, 0);

  // PoD's blocks from it (docs/pod.md).
  for (const char* delta_text : {"0.5", "0.7", "0.9"}) {
    const double delta = std::stod(delta_text);
    const auto want = expected(std::string("pod_block_of_layer_") + delta_text).integers();
    for (std::int64_t head = 0; head < kHeads; ++head) {
      std::int64_t block = 0, first = 0;
      bool close = false;  // a similarity that rounding could carry over delta
      for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        bool joins = true;
        for (std::int64_t m = first; m < layer; ++m) {
          const double similarity =
              1 - static_cast<double>(js[size((head * kLayers + layer) * kLayers + m)]);
          joins = joins && similarity >= delta;
          close = close || std::abs(similarity - delta) < 2e-5;
        }
        if (!joins) {
          ++block;
          first = layer;
        }
        if (!close) {
          ASSERT_EQ(block, want[size(head * kLayers + layer)])
              << "head " << head << ", layer " << layer << ", delta " << delta;
        }
      }
    }
  }
}

TEST_P(GoldenProfile, HasWindowScoresCountsAndBudgets) {
  const auto counts = statistic<std::int64_t>(name::kCounts);
  const std::int64_t n_budgets =
      static_cast<std::int64_t>(counts.size()) / kLayers / static_cast<std::int64_t>(2);
  for (const char* pooling : {"avg", "max"}) {
    const std::int64_t kind =
        on_axis("window_kind", std::string("window=16,kernel=7,pooling=") + pooling);
    std::vector<float> of_two;
    for (const std::int64_t l : {0, 15}) {
      const auto part = values<float>(name::kWindowScores, {kind, l});
      of_two.insert(of_two.end(), part.begin(), part.end());
    }
    expect_within(std::string("window scores, ") + pooling, of_two,
                  expected(std::string("window_scores_ws16_k7_") + pooling + "_layers_0_15").values,
                  1e-5, 0);
    for (const std::int64_t wt : {64, 128, 256}) {
      const std::int64_t row = kind * n_budgets + on_axis("budget", "budget=" + std::to_string(wt));
      const std::vector<std::int64_t> got(counts.begin() + row * kLayers,
                                          counts.begin() + (row + 1) * kLayers);
      const std::string group =
          "dynamickv_wt" + std::to_string(wt) + "_ws16_k7_" + pooling + "_rmax10/";
      EXPECT_EQ(got, expected(group + "counts").integers()) << group;
      const auto budgets = kernels::layer_budgets(got, wt - kWindow, tokens() - kWindow);
      EXPECT_EQ(budgets.raw, expected(group + "raw").integers()) << group;
      EXPECT_EQ(budgets.scaled, expected(group + "scaled").integers()) << group;
      EXPECT_EQ(budgets.exact, expected(group + "exact").integers()) << group;
    }
  }
}

/// Window scores of all layers of the demo model: budgets by the paper's algorithm, told plainly.
TEST_P(GoldenProfile, GivesTheBudgetsOfProgressiveUpdates) {
  const std::int64_t kind = on_axis("window_kind", "window=16,kernel=7,pooling=avg");
  DynamicKvInput in{{}, kHeads, tokens() - kWindow, 256 - kWindow, 10, 4};
  for (std::int64_t l = 0; l < kLayers; ++l)
    in.scores.push_back(values<float>(name::kWindowScores, {kind, l}));
  const auto budgets =
      kernels::progressive_budgets([&](std::int64_t layers) { return paper_counts(in, layers); },
                                   kLayers, in.update, in.base, in.positions, in.r_max);
  EXPECT_EQ(budgets.scaled, paper_lengths(in));
  // No early update cuts below what the last one leaves, so that the sum is as with one update: of
  // 7200 tokens rounding loses a few.
  const std::string once = "dynamickv_wt256_ws16_k7_avg_rmax10/";
  EXPECT_EQ(budgets.scaled, expected(once + "scaled").integers());
  EXPECT_EQ(budgets.exact, expected(once + "exact").integers());
  EXPECT_GE(std::accumulate(budgets.scaled.begin(), budgets.scaled.end(), std::int64_t{0}), 7183);
}

TEST_P(GoldenProfile, HasColumnSumsAndMaps) {
  // A sum of many rows of attention gathers the model's own float32 rounding: between transformers
  // in float32 and in float64 the sums differ by up to 4.4e-5 (layer 18), 1.8e-6 in the root mean
  // square, and between two machines in float32 by 3.9e-5. So the largest difference has room for
  // two such errors, the mean does not, and that the kernel adds none of its own is shown apart.
  expect_within("column sums", values<float>(name::kColumnSums), expected("column_sums").values, 0,
                1e-4, 0.04);

  // The level of 64-token blocks; the expected maps leave out the last, partial block.
  const auto blocks = values<std::int32_t>(name::kMapBlocks);
  const auto level = static_cast<int>(std::find(blocks.begin(), blocks.end(), 64) - blocks.begin());
  const std::int64_t side = (tokens() + 63) / 64, whole = tokens() / 64;
  for (const bool maximum : {false, true}) {
    std::vector<float> cells;
    for (std::int64_t l = 0; l < kLayers; ++l)
      for (std::int64_t h = 0; h < kHeads; ++h) {
        const auto map = powers(map_name(maximum, level), {l, h});
        ASSERT_EQ(static_cast<std::int64_t>(map.size()), side * side);
        for (std::int64_t i = 0; i < whole; ++i)
          cells.insert(cells.end(), map.begin() + i * side, map.begin() + i * side + whole);
      }
    expect_within(maximum ? "block maxima" : "block means", cells,
                  expected(maximum ? "block_max_64" : "block_mean_64").values, 1e-6, 1e-4);
  }
}

/// The kernel on the engine's own queries and keys, against the float64 reference on the same.
TEST_P(GoldenProfile, AddsNoErrorOfItsOwnToColumnSums) {
  const std::int64_t group = kHeads / kKvHeads, n = tokens(), layer = 18;
  std::vector<float> queries;
  for (std::int64_t h = kHeads - group; h < kHeads; ++h) {
    const auto head = values<float>(raw_name("query", layer), {h});
    queries.insert(queries.end(), head.begin(), head.end());
  }
  auto keys = values<float>(raw_name("key", layer), {kKvHeads - 1});
  kernels::CausalScores scores;
  scores.queries = View<float, 3>(queries.data(), {group, n, 64});
  scores.keys = View<float, 3>(keys.data(), {1, n, 64});
  scores.scale = 0.125f;
  std::vector<float> lse(size(group * n)), sums(size(group * n));
  const Exec reference{.backend = Backend::reference};
  kernels::row_logsumexp({scores, {lse.data(), {group, n}}}, reference);
  kernels::attention_maps({.scores = scores,
                           .lse = View<float, 2>(lse.data(), {group, n}),
                           .levels = {},
                           .column_sums = {sums.data(), {group, n}}},
                          reference);
  std::vector<float> got;
  for (std::int64_t h = kHeads - group; h < kHeads; ++h) {
    const auto of_layer = values<float>(name::kColumnSums, {layer});
    got.insert(got.end(), of_layer.begin() + h * n, of_layer.begin() + (h + 1) * n);
  }
  expect_within("column sums of layer 18", got, {sums.begin(), sums.end()}, 0, 1e-5);
}

TEST_P(GoldenProfile, KeepsWhatLagKVKeeps) {
  const std::int64_t n = tokens();
  const std::map<std::string, kernels::LagVariant> variants = {
      {"lag", kernels::LagVariant::lag},
      {"local", kernels::LagVariant::local},
      {"l2", kernels::LagVariant::l2}};
  const struct {
    std::int64_t lag;
    const char *ratio, *name;
  } settings[] = {{64, "1/2", "L64_r0.5"},
                  {128, "1/4", "L128_r0.25"},
                  {128, "1/8", "L128_r0.125"},
                  {256, "1/2", "L256_r0.5"}};
  for (const std::int64_t layer : {0, 10, 29})
    for (const auto& [variant_name, variant] : variants)
      for (const auto& [lag, ratio, name_of] : settings) {
        if (variant == kernels::LagVariant::l2 && layer == 0) continue;  // not cut by it
        const std::string what =
            "lagkv_layer" + std::to_string(layer) + "/kept_S16_" + name_of + "_" + variant_name;
        const auto want = expected(what);
        const auto wanted = want.integers();
        const auto selection =
            on_axis("selection", "lagkv:sink=16,lag=" + std::to_string(lag) + ",ratio=" + ratio +
                                     ",variant=" + variant_name);
        const auto mask = values<std::uint8_t>(name::kKeptMask, {selection, layer});
        // Scores, to tell ties from errors.
        auto keys = values<float>(raw_name("key", layer)),
             vals = values<float>(raw_name("value", layer));
        const std::int64_t scored = lag * kernels::lag_cut_partitions(n, kSink, lag);
        std::vector<float> scores(size(kKvHeads * scored));
        kernels::LagScores io;
        io.keys = View<float, 3>(keys.data(), {kKvHeads, n, 64});
        io.values = View<float, 3>(vals.data(), {kKvHeads, n, 64});
        io.sink = kSink;
        io.variant = variant;
        io.lags = {lag};
        io.scores = {View<float, 2>(scores.data(), {kKvHeads, scored})};
        kernels::lag_scores(io);
        for (std::int64_t head = 0; head < kKvHeads; ++head) {
          const std::int64_t kept = want.shape[1];
          const std::set<std::int64_t> a(wanted.begin() + head * kept,
                                         wanted.begin() + (head + 1) * kept);
          // What is in one alone: by partition, at most a token each, of nearly equal score.
          std::map<std::int64_t, std::vector<std::int64_t>> missing, added;
          std::int64_t count = 0;
          for (std::int64_t j = 0; j < n; ++j) {
            const bool has = (mask[size(head * ((n + 7) / 8) + j / 8)] >> (j % 8) & 1) != 0;
            count += has;
            if (has != a.contains(j)) (has ? added : missing)[(j - kSink) / lag].push_back(j);
          }
          ASSERT_EQ(count, kept) << what;
          for (const auto& [partition, lost] : missing) {
            const auto& others = added[partition];
            ASSERT_TRUE(lost.size() == 1 && others.size() == 1)
                << what << ", head " << head << ", partition " << partition;
            const auto score = [&](std::int64_t j) {
              return static_cast<double>(scores[size(head * scored + j - kSink)]);
            };
            EXPECT_LT(std::abs(score(lost[0]) - score(others[0])), 1e-7)
                << what << ", head " << head;
          }
        }
      }
}

TEST_P(GoldenProfile, HasTheLastKeysAndValues) {
  for (const std::int64_t layer : {0, 10, 29})
    for (const char* what : {"key", "value"}) {
      std::vector<float> last;
      for (std::int64_t head = 0; head < kKvHeads; ++head) {
        const auto all = values<float>(raw_name(what, layer), {head});
        last.insert(last.end(), all.end() - 64, all.end());
      }
      expect_within(std::string(what) + " of layer " + std::to_string(layer), last,
                    expected("lagkv_layer" + std::to_string(layer) + "/" + what + "_last").values,
                    1e-4, 1e-4);
    }
}

INSTANTIATE_TEST_SUITE_P(SmolLM2, GoldenProfile, testing::Range(std::size_t{0}, kPrompts.size()),
                         [](const auto& at) { return kPrompts[at.param]; });

}  // namespace
}  // namespace kvatlas::profile
