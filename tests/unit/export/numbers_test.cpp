// SPDX-License-Identifier: Apache-2.0
// The numbers in exported files, read as the runtimes read them, are those of what the runtime is
// said to make of the policy (runtimes.hpp).
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/str.hpp"
#include "export/exporters.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::exporting {
namespace {

using calibrate::Document;
using calibrate::DynamicKv;
using calibrate::LagKv;
using calibrate::LazyHeads;
using calibrate::Part;
using calibrate::Pooling;
using calibrate::SimLayerKv;
using nlohmann::json;
using testing::HasSubstr;
using testing_support::error_of;
using testing_support::Random;

Document document_of(const Part& part, const std::string& architecture = "llama") {
  Document document;
  document.model = {"Tiny", architecture, "", 6, 4, 2, 8};
  document.provenance.lengths = {512, 2048};
  document.sections[calibrate::section_name(part)] = calibrate::section_of(part);
  return document;
}

using Files = std::map<std::string, std::string>;

Files exported(const Document& document, const std::string& runtime, std::int64_t length = 0) {
  ExportRequest request;
  request.runtime = runtime;
  request.length = length;
  Files files;
  const auto result = export_document(document, request);
  for (const auto& [path, content] : result.policies.at(0).files) files[path] = content;
  return files;
}

/// What the runtime is said to run.
template <class T>
T theirs(const Part& part, const char* runtime) {
  const calibrate::Policy policy{.name = "it", .parts = {part}};
  return std::get<T>(
      calibrate::as_runtime_behaves(policy, runtime, document_of(part).model).policy.parts.at(0));
}

SimLayerKv random_lazy(Random& random, bool whole_layers) {
  SimLayerKv part;
  part.keep = {random.integer(0, 64), random.integer(2, 700)};
  part.fixed.emplace();
  for (int layer = 0; layer < 6; ++layer) {
    auto& row = part.fixed->emplace_back(whole_layers ? 1 : 2);
    for (auto& lazy : row) lazy = static_cast<std::uint8_t>(random.integer(0, 1));
  }
  return part;
}

DynamicKv random_budgets(Random& random, std::int64_t most) {
  DynamicKv part;
  part.select.window = random.integer(1, 32);
  part.fixed.emplace();
  for (int layer = 0; layer < 6; ++layer) part.fixed->push_back(random.integer(0, most));
  part.fixed->front() = most;
  return part;
}

std::int64_t python_int(double number) { return static_cast<std::int64_t>(number); }

TEST(KvpressNumbers, RatiosGiveTheCounts) {
  Random random(1);
  for (int round = 0; round < 50; ++round) {
    const std::int64_t length = random.integer(100, 9000);
    const auto lazy = random_lazy(random, true);
    const auto budgets = random_budgets(random, 2000);
    const auto check = [&](const Part& part, auto keep) {
      const auto file = str("kvatlas_press_", length, ".json");
      const auto press = json::parse(exported(document_of(part), "kvpress", length).at(file));
      const auto& ratios = press.at("arguments").at("compression_ratios");
      ASSERT_EQ(ratios.size(), 6);
      for (std::size_t layer = 0; layer < 6; ++layer)
        EXPECT_EQ(python_int(static_cast<double>(length) * (1 - ratios[layer].get<double>())),
                  std::min<std::int64_t>(keep(layer), length));
    };
    const auto run = theirs<SimLayerKv>(lazy, "kvpress");
    check(lazy, [&](std::size_t layer) {
      return run.fixed->at(layer)[0] != 0 ? run.keep.initial + run.keep.recent : length;
    });
    const auto select = theirs<DynamicKv>(budgets, "kvpress");
    check(budgets,
          [&](std::size_t layer) { return select.fixed->at(layer) + select.select.window; });
  }
}

TEST(KvpressNumbers, ScorersAreThePolicys) {
  DynamicKv part;
  part.fixed = {1, 2, 3, 4, 5, 6};
  part.select = {24, 100, 5, Pooling::maximum};
  const auto run = theirs<DynamicKv>(part, "kvpress").select;
  EXPECT_EQ(run.pooling, Pooling::average);
  const auto press =
      json::parse(exported(document_of(part), "kvpress").at("kvatlas_press_2048.json"));
  EXPECT_EQ(press.at("scorer_arguments"),
            (json{{"window_size", run.window}, {"kernel_size", run.kernel}}));
}

TEST(KvpressNumbers, Threshold) {
  SimLayerKv part;
  part.threshold = 0.875;
  part.keep = {7, 300};
  const auto run = theirs<SimLayerKv>(part, "kvpress");
  const auto press = json::parse(exported(document_of(part), "kvpress").at("kvatlas_press.json"));
  const auto& arguments = press.at("arguments");
  EXPECT_EQ(arguments.at("lazy_threshold"), run.threshold);
  EXPECT_EQ(arguments.at("n_initial"), run.keep.initial);
  EXPECT_EQ(arguments.at("n_recent").get<int>() - arguments.at("n_last").get<int>(),
            run.keep.recent);
  part.keep.recent = 1;
  EXPECT_THAT(error_of([&] { exported(document_of(part), "kvpress"); }),
              HasSubstr("calibrate with at least 2 recent tokens"));
}

TEST(KvpressNumbers, LagKeepsTheLength) {
  for (const char* ratio : {"1/2", "1/6", "0.29"})
    for (const std::int64_t length : {100, 271, 272, 1000, 4097}) {
      LagKv part;
      part.ratio = ratio;
      const auto file = str("kvatlas_press_", length, ".json");
      const auto press = json::parse(exported(document_of(part), "kvpress", length).at(file));
      const double removed = press.at("arguments").at("compression_ratio");
      EXPECT_EQ(python_int(static_cast<double>(length) * (1 - removed)), part.kept(length));
      EXPECT_EQ(press.at("arguments").at("n_sink"), part.sink);
      EXPECT_EQ(press.at("arguments").at("lag_size"), part.lag);
    }
}

TEST(KvpressNumbers, SelectionsKeepTheBudget) {
  for (const std::int64_t budget : {2, 37, 600})
    for (const std::int64_t length : {100, 599, 600, 601, 4097})
      for (const Part& part : {Part(calibrate::Tova{budget}), Part(calibrate::KeyDiff{budget}),
                               Part(calibrate::AdaKv{{.window = 1, .budget = budget}})}) {
        const auto file = str("kvatlas_press_", length, ".json");
        const auto press = json::parse(exported(document_of(part), "kvpress", length).at(file));
        const bool scored = press.contains("scorer");
        EXPECT_EQ(scored, std::holds_alternative<calibrate::AdaKv>(part));
        const double removed =
            press.at(scored ? "scorer_arguments" : "arguments").at("compression_ratio");
        EXPECT_EQ(python_int(static_cast<double>(length) * (1 - removed)),
                  std::min(budget, length));
        EXPECT_EQ(press.at("kept"), std::min(budget, length));
      }
}

/// The arithmetic of LUKVPress, in its float32.
std::vector<std::int64_t> lukv_kept(const std::vector<double>& prune, std::int64_t length) {
  std::vector<float> ideal;
  float sum = 0;
  std::int64_t left = 0;
  std::vector<std::int64_t> kept;
  for (const double ratio : prune) {
    ideal.push_back(std::clamp(1.0f - static_cast<float>(ratio), 0.0f, 1.0f) *
                    static_cast<float>(length));
    sum += ideal.back();
    kept.push_back(static_cast<std::int64_t>(std::floor(ideal.back())));
    left -= kept.back();
  }
  left += std::clamp(std::llround(sum), static_cast<long long>(ideal.size()),
                     static_cast<long long>(ideal.size()) * length);
  std::vector<std::size_t> order(ideal.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return ideal[a] - std::floor(ideal[a]) > ideal[b] - std::floor(ideal[b]);
  });
  for (std::size_t i = 0; i < order.size() && static_cast<std::int64_t>(i) < left; ++i)
    ++kept[order[i]];
  return kept;
}

TEST(KvpressNumbers, HeadsKeepTheirBudgets) {
  testing_support::Random random(8);
  for (const std::int64_t length : {100, 599, 4097, 131072})
    for (int repeat = 0; repeat < 20; ++repeat) {
      calibrate::HeadKv part;
      part.select = {.window = 16, .budget = 128};
      const Document shape = document_of(part);
      part.fixed.emplace();
      for (std::int64_t l = 0; l < shape.model.layers; ++l)
        for (auto& row = part.fixed->emplace_back(); std::ssize(row) < shape.model.kv_heads;)
          row.push_back(random.integer(0, length));
      const auto file = str("kvatlas_press_", length, ".json");
      const auto press = json::parse(exported(document_of(part), "kvpress", length).at(file));
      EXPECT_EQ(press.at("press"), "LUKVPress");
      EXPECT_GE(press.at("arguments").at("compression_ratio"), 0);
      EXPECT_LT(press.at("arguments").at("compression_ratio"), 1);
      for (std::size_t l = 0; l < part.fixed->size(); ++l) {
        std::vector<std::int64_t> expected;
        for (const auto budget : (*part.fixed)[l])
          expected.push_back(std::min(budget + 16, length));
        EXPECT_EQ(press.at("kept").at(l), expected);
        EXPECT_EQ(lukv_kept(press.at("head_ratios").at(l), length), expected);
      }
    }
}

TEST(KvpressNumbers, SelectionsWithoutAPressAreRefused) {
  calibrate::Decoding decoding;
  decoding.by = calibrate::Decoding::By::h2o;
  for (const auto& [part, form] :
       {std::pair<Part, calibrate::Form>{calibrate::H2o{}, calibrate::Form::selected},
        std::pair<Part, calibrate::Form>{decoding, calibrate::Form::decoding}}) {
    const Document document = document_of(calibrate::KeyDiff{});
    const PartRequest request{document,    calibrate::runtime_named("kvpress"), part, form, {}, 512,
                              std::nullopt};
    EXPECT_THAT(error_of([&] { exporter_of("kvpress")(request); }),
                HasSubstr("no press of kvpress is known for " + calibrate::name_of(part)));
  }
}

TEST(KvpressNumbers, ChunksAreAsManyAsTheBudgetHolds) {
  for (const std::int64_t budget : {17, 128, 600})
    for (const std::int64_t chunk : {1, 7, 20})
      for (const std::int64_t length : {19, 100, 599, 600, 601, 4097}) {
        const calibrate::ChunkKv part{{.budget = budget}, chunk};
        const auto file = str("kvatlas_press_", length, ".json");
        const auto press = json::parse(exported(document_of(part), "kvpress", length).at(file));
        const double removed = press.at("scorer_arguments").at("compression_ratio");
        EXPECT_EQ(std::max<std::int64_t>(
                      1, python_int(static_cast<double>(part.chunks(length)) * (1 - removed))),
                  part.chunks_kept(length));
        EXPECT_EQ(press.at("arguments").at("chunk_length"), chunk);
      }
}

TEST(KvpressNumbers, KvZipsArguments) {
  for (const bool layerwise : {false, true})
    for (const std::int64_t budget : {5, 37, 600})
      for (const std::int64_t length : {100, 599, 600, 601, 4097}) {
        const calibrate::KvZip part{budget, {3, 700}, layerwise};
        const Document document = document_of(part);
        const auto file = str("kvatlas_press_", length, ".json");
        const auto press = json::parse(exported(document, "kvpress", length).at(file));
        const json& arguments = press.at("arguments");
        // It removes so many of the tokens of all heads that share a budget.
        const std::int64_t heads =
            document.model.kv_heads * (layerwise ? 1 : document.model.layers);
        const double ratio = arguments.at("compression_ratio");
        EXPECT_EQ(python_int(static_cast<double>(heads * length) * ratio),
                  heads * std::max<std::int64_t>(0, length - budget));
        EXPECT_EQ(ratio > 0, length > budget);
        EXPECT_EQ(press.at("kept"), std::min(budget, length));
        EXPECT_EQ(arguments.at("n_sink"), 3);
        EXPECT_EQ(arguments.at("chunk_size"), 700);
        EXPECT_EQ(arguments.at("layerwise"), layerwise);
      }
}

TEST(KvpressNumbers, CriticalKvsArguments) {
  const calibrate::CriticalKv part{{.window = 9, .budget = 100, .kernel = 3}, 0.25, 0.5};
  const auto press =
      json::parse(exported(document_of(part), "kvpress").at("kvatlas_press_2048.json"));
  EXPECT_EQ(press.at("arguments"), (json{{"first_stage_ratio", 0.25}, {"epsilon", 0.5}}));
  const auto& scorer = press.at("scorer_arguments");
  EXPECT_EQ(scorer.at("window_size"), 9);
  EXPECT_EQ(scorer.at("kernel_size"), 3);
  const double removed = scorer.at("compression_ratio");
  EXPECT_EQ(python_int(2048 * (1 - removed)), 100);
  // Its own arithmetic of the first stage.
  EXPECT_EQ(python_int((1 - removed) * 2048 * 0.25), part.first());
}

TEST(KvpressNumbers, ExpectedAttentionsArguments) {
  const calibrate::ExpectedAttention part{100, 7, 300, false, true, 0.5};
  const auto press =
      json::parse(exported(document_of(part), "kvpress").at("kvatlas_press_2048.json"));
  EXPECT_EQ(press.at("kept"), 100);
  const auto& arguments = press.at("arguments");
  EXPECT_EQ(arguments.at("n_sink"), 7);
  EXPECT_EQ(arguments.at("n_future_positions"), 300);
  EXPECT_EQ(arguments.at("use_covariance"), false);
  EXPECT_EQ(arguments.at("use_vnorm"), true);
  EXPECT_EQ(arguments.at("epsilon"), 0.5);
}

/// [layer][head] 1 for retrieval heads, as DuoAttention makes them of a table.
std::vector<int> sparsified(std::vector<double> table, double sparsity, Random& random) {
  for (double& number : table) number += 1e-6 * random.uniform();
  auto sorted = table;
  std::sort(sorted.begin(), sorted.end());
  const double rank = sparsity * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(std::floor(rank));
  const auto high = std::min(low + 1, sorted.size() - 1);
  double threshold = sorted[low] + (sorted[high] - sorted[low]) * (rank - static_cast<double>(low));
  if (sparsity >= 1) threshold = 2;
  if (sparsity <= 0) threshold = -1;
  std::vector<int> full;
  for (const double number : table) full.push_back(number >= threshold ? 1 : 0);
  return full;
}

TEST(DuoAttentionNumbers, TheQuantileRuleGivesTheTable) {
  Random random(2);
  for (int round = 0; round < 100; ++round) {
    auto part = random_lazy(random, false);
    if (round == 0) part.fixed = LazyHeads(6, {1, 1});
    if (round == 1) part.fixed = LazyHeads(6, {0, 0});
    const auto run = theirs<SimLayerKv>(part, "duo-attention");
    const auto files = exported(document_of(part), "duo-attention");
    std::istringstream in(files.at("full_attention_heads.tsv"));
    std::vector<double> table;
    for (double number = 0; in >> number;) table.push_back(number);
    std::vector<int> expected;
    for (const auto& row : *run.fixed)
      for (const auto lazy : row) expected.push_back(lazy != 0 ? 0 : 1);
    if (part.fixed->front().size() == 1) continue;
    const auto& readme = files.at("README.txt");
    const double sparsity = std::stod(readme.substr(readme.find("--sparsity ") + 11));
    EXPECT_EQ(sparsified(table, sparsity, random), expected);
    const auto sizes = json::parse(files.at("config.json"));
    EXPECT_EQ(sizes.at("sink_size"), run.keep.initial);
    EXPECT_EQ(sizes.at("recent_size"), run.keep.recent);
  }
}

TEST(DuoAttentionNumbers, RefusesWhatItsReaderFlattens) {
  SimLayerKv part;
  part.fixed = LazyHeads(6, {1});
  auto document = document_of(part);
  document.model.kv_heads = 1;
  EXPECT_THAT(error_of([&] { exported(document, "duo-attention"); }),
              HasSubstr("at least 2 layers and 2 KV heads, found 6 and 1"));
}

/// The capacities that run_longbench.py computes of a file, in its order of the heads.
std::vector<std::int64_t> head_capacities(const Files& files) {
  const auto& readme = files.at("README.txt");
  const double cap = std::stod(readme.substr(readme.find("--max_capacity_prompts ") + 23));
  const double beta = std::stod(readme.substr(readme.find("--head_beta ") + 12));
  const auto& line = files.at("headkv.json");
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << "it reads one line";
  std::vector<double> scores;
  double sum = 0;
  for (const auto& entry : nlohmann::ordered_json::parse(line)) {
    scores.push_back(entry.at(0).get<double>());
    sum += scores.back();
  }
  const double pool = std::floor(cap / beta) * static_cast<double>(scores.size());
  std::vector<std::int64_t> capacities;
  for (const double score : scores)
    capacities.push_back(std::llrint(score / sum * pool + (cap - std::floor(cap / beta))));
  return capacities;
}

TEST(KvcacheFactoryNumbers, TheProgramComputesTheBudgets) {
  Random random(4);
  int halves = 0;
  for (int round = 0; round < 300; ++round) {
    const auto part = random_budgets(random, random.integer(1, 3000));
    const auto run = theirs<DynamicKv>(part, "kvcache-factory");
    EXPECT_EQ(run.select.window, 8);
    const auto files = exported(document_of(part), "kvcache-factory");
    const auto capacities = head_capacities(files);
    ASSERT_EQ(capacities.size(), 6 * 4);
    std::int64_t more = 0;
    for (std::size_t i = 0; i < capacities.size(); ++i)
      more += std::abs(capacities[i] - run.fixed->at(i / 4));
    const bool half = files.at("README.txt").find("a token more") != std::string::npos;
    // A head has two query heads here.
    EXPECT_EQ(more, half ? 2 : 0);
    halves += half ? 1 : 0;
  }
  EXPECT_GT(halves, 0);
}

TEST(KvcacheFactoryNumbers, LazyHeadsHaveTheirTokens) {
  Random random(5);
  for (int round = 0; round < 50; ++round) {
    auto part = random_lazy(random, false);
    part.fixed->front() = {0, 1};
    const auto capacities = head_capacities(exported(document_of(part), "kvcache-factory", 4096));
    if (part.keep.initial + part.keep.recent < 8) continue;
    for (std::size_t i = 0; i < capacities.size(); ++i)
      EXPECT_NEAR(static_cast<double>(capacities[i]),
                  part.fixed->at(i / 4)[i % 4 / 2] != 0
                      ? static_cast<double>(part.keep.initial + part.keep.recent - 8)
                      : 4096.0,
                  1);
  }
}

TEST(LagKvNumbers, TheRatioGivesTheTokensOfAPartition) {
  for (std::int64_t lag = 2; lag <= 400; ++lag)
    for (const char* ratio : {"0.29", "0.07", "1/3", "7/9"}) {
      LagKv part;
      part.lag = lag;
      part.ratio = ratio;
      const auto run = theirs<LagKv>(part, "lagkv");
      const auto numbers = json::parse(exported(document_of(part), "lagkv").at("lagkv.json"));
      EXPECT_EQ(python_int(numbers.at("ratio").get<double>() * static_cast<double>(lag)),
                run.keep());
      EXPECT_EQ(numbers.at("lag_size"), run.lag);
      EXPECT_EQ(numbers.at("sink_size"), run.sink);
    }
}

TEST(SimLayerKvNumbers, TheThresholdAlone) {
  SimLayerKv part;
  part.threshold = 0.88246;
  part.keep = {8, 256};
  const auto run = theirs<SimLayerKv>(part, "simlayerkv");
  const auto files = exported(document_of(part), "simlayerkv");
  EXPECT_EQ(json::parse(files.at("simlayerkv.json")), (json{{"threshold", run.threshold}}));
  EXPECT_THAT(files.at("README.txt"), HasSubstr("threshold = 0.88246\n"));
  EXPECT_THAT(files.at("README.txt"), HasSubstr(str("it keeps ", run.keep.recent, " recent")));
  EXPECT_THAT(error_of([&] { exported(document_of(part, "gemma2"), "simlayerkv"); }),
              HasSubstr("patches Llama"));
}

TEST(ExportDocument, BitsAloneGetNoFiles) {
  Document document = document_of(LagKv{});
  document.sections.clear();
  document.kv_bits = 4;
  for (const char* runtime : {"vllm", "transformers-cache"})
    EXPECT_THAT(error_of([&] { exported(document, runtime); }),
                HasSubstr(" gets no files for a policy of 4 bits alone"));
}

TEST(DynamicKvNumbers, SettingsOfTheCommand) {
  DynamicKv part;
  part.select = {24, 512, 5, Pooling::maximum};
  part.r_max = 2.5;
  const auto run = theirs<DynamicKv>(part, "dynamickv");
  const auto script = exported(document_of(part), "dynamickv").at("run_dynamickv.sh");
  EXPECT_THAT(script, HasSubstr(str("--max_capacity_prompts ", run.select.budget, " ")));
  EXPECT_THAT(script, HasSubstr(str("--window_size ", run.select.window, " ")));
  EXPECT_THAT(script, HasSubstr(str("--kernel_sizes ", run.select.kernel, " --pooling maxpool")));
  EXPECT_THAT(script, HasSubstr("--radio_max 2.5 "));
  EXPECT_THAT(script, HasSubstr("--model_name llama "));
  EXPECT_THAT(error_of([&] { exported(document_of(part, "phi3"), "dynamickv"); }),
              HasSubstr("changes nothing of others"));
}

TEST(MinferenceNumbers, QueryHeadsHaveTheirKvHeadsPattern) {
  Random random(6);
  const auto part = random_lazy(random, false);
  const auto run = theirs<SimLayerKv>(part, "minference");
  const auto layers =
      json::parse(exported(document_of(part), "minference").at("kvatlas_best_pattern.json"));
  ASSERT_EQ(layers.size(), 6);
  for (std::size_t layer = 0; layer < 6; ++layer) {
    ASSERT_EQ(layers[layer].size(), 4);
    for (std::size_t head = 0; head < 4; ++head) {
      const json expected = run.fixed->at(layer)[head / 2] != 0
                                ? json{"stream_llm", run.keep.initial, run.keep.recent, 1}
                                : json{"vertical_and_slash", 1000, 6096, 1};
      EXPECT_EQ(layers[layer].at(str(head)), expected);
    }
  }
}

TEST(TransformersCacheNumbers, TheDocumentIsThePolicy) {
  Random random(7);
  SimLayerKv by_input;
  by_input.threshold = 0.625;
  const Part parts[] = {random_lazy(random, false), random_budgets(random, 300), LagKv{}, by_input,
                        calibrate::Streaming{}};
  for (const auto& part : parts) {
    const auto document = document_of(part);
    const auto written =
        calibrate::parse_document(exported(document, "transformers-cache").at("policy.json"));
    EXPECT_EQ(written.sections, document.sections);
  }
}

}  // namespace
}  // namespace kvatlas::exporting
