// SPDX-License-Identifier: Apache-2.0
// What stands in the files of the runtimes with windows is what runtimes.hpp says they do.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "export/exporters.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/random.hpp"

namespace kvatlas::exporting::window_numbers_tests {
namespace {

using calibrate::as_runtime_behaves;
using calibrate::Document;
using calibrate::SimLayerKv;
using nlohmann::json;
using testing::HasSubstr;
using testing_support::error_of;

Document document_with(const calibrate::Part& part, const std::string& architecture,
                       std::int64_t layers) {
  Document document;
  document.model = {"m", architecture, "", layers, 4, 2, 8};
  document.provenance.lengths = {1000};
  document.sections[calibrate::section_name(part)] = calibrate::section_of(part);
  return document;
}

/// Some layers are lazy, and at least one, but not all.
SimLayerKv random_lazy(testing_support::Random& random, std::int64_t layers) {
  SimLayerKv part;
  part.keep = {random.integer(0, 8), random.integer(2, 600)};
  part.fixed.emplace();
  for (std::int64_t layer = 0; layer < layers; ++layer)
    part.fixed->push_back({static_cast<std::uint8_t>(random.integer(0, 1))});
  part.fixed->front() = {1};
  part.fixed->back() = {0};
  return part;
}

std::string exported(const Document& document, const std::string& runtime,
                     const std::optional<json>& config = std::nullopt) {
  ExportRequest request;
  request.runtime = runtime;
  request.config = config;
  return export_document(document, request).policies.at(0).files.at(0).content;
}

/// The number behind the key, in JSON or YAML.
std::int64_t number(const std::string& text, const std::string& key) {
  std::smatch found;
  EXPECT_TRUE(std::regex_search(text, found, std::regex(key + "\"?: (-?[0-9]+)"))) << key;
  return found.empty() ? -1 : std::stoll(found[1]);
}

std::vector<std::uint8_t> sliding_layers(const std::string& text) {
  std::vector<std::uint8_t> layers;
  const std::regex word("(full|sliding)_attention");
  for (std::sregex_iterator at(text.begin(), text.end(), word), end; at != end; ++at)
    layers.push_back((*at)[1] == "sliding");
  return layers;
}

std::vector<std::uint8_t> lazy_rows(const SimLayerKv& part) {
  std::vector<std::uint8_t> layers;
  for (const auto& row : *part.fixed) layers.push_back(row.front());
  return layers;
}

TEST(ExportedNumbers, Windows) {
  const std::pair<const char*, const char*> engines[] = {
      {"sglang", "qwen2"},   {"transformers", "llama"}, {"transformers", "qwen3"},
      {"sglang", "llama"},   {"mlx-lm", "llama"},       {"tensorrt-llm", "mistral"},
      {"mlx-lm", "mistral"}, {"sglang", "phi3"}};
  testing_support::Random random(5);
  for (int trial = 0; trial < 40; ++trial)
    for (const auto& [runtime, architecture] : engines) {
      const auto layers = random.integer(2, 40);
      const auto part = random_lazy(random, layers);
      const auto document = document_with(part, architecture, layers);
      const auto policy = calibrate::policies_of(document).at(0);
      const auto theirs = as_runtime_behaves(policy, runtime, document.model).policy;
      const auto& behaves = std::get<SimLayerKv>(theirs.parts.at(0));
      const auto text = exported(document, runtime);
      const int beside = std::string_view(runtime) == "sglang" ? 1 : 0;
      EXPECT_EQ(number(text, "sliding_window") + beside, behaves.keep.recent) << runtime;
      EXPECT_EQ(sliding_layers(text), lazy_rows(behaves)) << runtime;
      EXPECT_EQ(behaves.keep.initial, 0) << runtime;
    }
}

TEST(ExportedNumbers, TensorRtListsAgree) {
  testing_support::Random random(6);
  const auto part = random_lazy(random, 12);
  const auto text = exported(document_with(part, "mistral", 12), "tensorrt-llm");
  std::smatch list;
  ASSERT_TRUE(std::regex_search(text, list, std::regex("max_attention_window: (\\[.*\\])")));
  const auto windows = json::parse(list[1].str());
  ASSERT_EQ(windows.size(), 12U);
  for (std::size_t layer = 0; layer < 12; ++layer)
    EXPECT_EQ(windows[layer],
              lazy_rows(part)[layer] != 0 ? part.keep.recent : std::int64_t{1} << 24);
}

TEST(ExportedNumbers, BudgetsAsWindows) {
  calibrate::DynamicKv part;
  part.fixed = {100, 120, 0, 148};
  const auto config = json::parse(exported(document_with(part, "llama", 4), "transformers"));
  for (std::size_t layer = 0; layer < 4; ++layer)
    EXPECT_EQ(config.at("per_layer_config").at(std::to_string(layer)).at("sliding_window"),
              part.fixed->at(layer) + part.select.window);
  EXPECT_EQ(config.at("layer_types").size(), 4U);
  EXPECT_THAT(exported(document_with(part, "llama", 4), "tensorrt-llm"),
              HasSubstr("prompt_budget: 108\n"));  // 92 in the mean, and the window
}

/// What OpenVINO's constructor and pipeline ask for.
void expect_valid_eviction(const json& sizes) {
  for (const char* size : {"start_size", "recent_size", "max_cache_size"}) {
    EXPECT_EQ(sizes.at(size).get<std::int64_t>() % 32, 0) << size;
    EXPECT_GT(sizes.at(size), 0) << size;
  }
  EXPECT_GT(
      sizes.at("max_cache_size").get<std::int64_t>(),
      sizes.at("start_size").get<std::int64_t>() + sizes.at("recent_size").get<std::int64_t>());
}

TEST(ExportedNumbers, OpenVino) {
  testing_support::Random random(7);
  for (int trial = 0; trial < 100; ++trial) {
    calibrate::Streaming streaming;
    streaming.keep = {random.integer(0, 100), random.integer(1, 500)};
    const auto document = document_with(streaming, "llama", 4);
    const auto policy = calibrate::policies_of(document).at(0);
    const auto theirs = as_runtime_behaves(policy, "openvino", document.model).policy;
    const auto keep = std::get<calibrate::Streaming>(theirs.parts.at(0)).keep;
    const auto sizes = json::parse(exported(document, "openvino")).at("cache_eviction_config");
    EXPECT_EQ(sizes.at("start_size"), keep.initial);
    EXPECT_EQ(sizes.at("max_cache_size"), keep.initial + keep.recent);
    expect_valid_eviction(sizes);

    calibrate::DynamicKv budgets;
    budgets.fixed.emplace(4, random.integer(0, 400));
    const auto mean = document_with(budgets, "llama", 4);
    const auto heavy =
        as_runtime_behaves(calibrate::policies_of(mean).at(0), "openvino", mean.model).policy;
    const auto mean_sizes = json::parse(exported(mean, "openvino")).at("cache_eviction_config");
    EXPECT_EQ(mean_sizes.at("max_cache_size"), std::get<calibrate::H2o>(heavy.parts.at(0)).budget);
    expect_valid_eviction(mean_sizes);

    const auto part = random_lazy(random, 4);
    expect_valid_eviction(json::parse(exported(document_with(part, "llama", 4), "openvino"))
                              .at("cache_eviction_config"));
  }
}

TEST(ExportedNumbers, MlcCountsFirstTokensInTheWindow) {
  calibrate::Streaming part;
  part.keep = {8, 100};
  const auto config = json::parse(exported(document_with(part, "mistral", 4), "mlc-llm"));
  EXPECT_EQ(config.at("attention_sink_size"), 8);
  EXPECT_EQ(config.at("sliding_window_size"), 108);
}

/// Layers of 6, and a window of the model's own on all but the last.
json gemma_config(const char* type, std::int64_t window = 512) {
  return {{"model_type", type}, {"num_hidden_layers", 6}, {"sliding_window", window}};
}

Document lazy_document(const char* architecture, const std::vector<int>& lazy,
                       std::int64_t recent = 256) {
  SimLayerKv part;
  part.keep = {0, recent};
  part.fixed.emplace();
  for (const int flag : lazy) part.fixed->push_back({static_cast<std::uint8_t>(flag)});
  return document_with(part, architecture, static_cast<std::int64_t>(lazy.size()));
}

std::string refusal(const Document& document, const std::string& runtime,
                    const std::optional<json>& config = std::nullopt) {
  return error_of([&] { exported(document, runtime, config); });
}

TEST(ExportWindows, OfTheModelsOwn) {
  const auto all_local = lazy_document("gemma3", {1, 1, 1, 1, 1, 0});
  EXPECT_THAT(refusal(all_local, "sglang"), HasSubstr("give its config.json"));
  EXPECT_EQ(refusal(all_local, "sglang", gemma_config("gemma3_text")), "");
  EXPECT_THAT(
      refusal(lazy_document("gemma3", {1, 1, 1, 1, 1, 1}), "sglang", gemma_config("gemma3_text")),
      HasSubstr("layer 5 is one of the model's full layers"));
  EXPECT_THAT(
      refusal(lazy_document("gemma3", {1, 0, 1, 1, 1, 0}), "sglang", gemma_config("gemma3_text")),
      HasSubstr("layer 1 has a window of the model's own, of 512 tokens, and all"));
  EXPECT_THAT(refusal(all_local, "sglang", gemma_config("gemma3_text", 128)),
              HasSubstr("would widen"));
  // The same size is one window for all: layer 1 keeps its own.
  const auto same = exported(lazy_document("gemma3", {1, 0, 1, 1, 1, 0}), "sglang",
                             gemma_config("gemma3_text", 256));
  EXPECT_EQ(sliding_layers(same), (std::vector<std::uint8_t>{1, 1, 1, 1, 1, 0}));
  // Gemma 2 has one rotation: its full layers can be trimmed too.
  EXPECT_EQ(refusal(lazy_document("gemma2", {1, 1, 1, 0, 1, 0}), "sglang", gemma_config("gemma2")),
            "");
  json listed = gemma_config("gemma2");
  listed["layer_types"] = json::array({"full_attention"});
  EXPECT_THAT(refusal(lazy_document("gemma2", {1, 1, 1, 0, 1, 0}), "sglang", listed),
              HasSubstr("layer_types has 1 entries, expected 6"));
  listed["layer_types"] = json::array();
  for (int layer = 0; layer < 6; ++layer)
    listed["layer_types"].push_back(layer == 5 ? "sliding_attention" : "full_attention");
  EXPECT_THAT(refusal(lazy_document("gemma2", {1, 1, 1, 0, 1, 0}), "sglang", listed),
              HasSubstr("layer 5 has a window"));
  json qwen = {{"model_type", "qwen2"},
               {"num_hidden_layers", 3},
               {"sliding_window", 4096},
               {"max_window_layers", 2}};
  const auto half = lazy_document("qwen2", {1, 0, 0});
  EXPECT_EQ(refusal(half, "sglang", qwen), "");  // use_sliding_window is not set
  qwen["use_sliding_window"] = true;
  EXPECT_THAT(refusal(half, "sglang", qwen), HasSubstr("layer 2 has a window"));
}

TEST(ExportWindows, Config) {
  const auto lazy = lazy_document("llama", {1, 0, 1});
  const json mistral = {{"model_type", "mistral"}, {"num_hidden_layers", 3}};
  EXPECT_THAT(refusal(lazy, "transformers", mistral), HasSubstr("of architecture 'mistral': "));
  EXPECT_EQ(refusal(lazy, "sglang", mistral), "");
  const auto way_out = lazy_document("mistral", {1, 0, 1});
  EXPECT_THAT(refusal(way_out, "transformers"), HasSubstr("model_type ministral"));
  const json ministral = {{"model_type", "ministral"}, {"num_hidden_layers", 3}};
  EXPECT_EQ(refusal(way_out, "transformers", ministral), "");
  EXPECT_THAT(refusal(lazy, "sglang", json{{"num_hidden_layers", 4}}), HasSubstr("with 4 layers"));
  EXPECT_THAT(refusal(lazy, "sglang", json{{"num_hidden_layers", "4"}}),
              HasSubstr("num_hidden_layers is \"4\", expected a whole number"));
  EXPECT_EQ(refusal(lazy, "sglang", json{{"model_type", 3}, {"sliding_window", 64}}), "");
  const json untyped = {{"model_type", "phi3"}, {"sliding_window", -1}};
  EXPECT_THAT(refusal(lazy, "sglang", untyped), HasSubstr("sliding_window is -1"));
}

TEST(ExportVllm, LayersOfThePolicyAndOfTheModel) {
  auto document = lazy_document("gemma3", {1, 1, 0, 1});
  const auto text = exported(document, "vllm");
  EXPECT_THAT(text, HasSubstr("layers: [0, 1, 3]"));
  EXPECT_THAT(text, HasSubstr("block-size: 32"));
  // What vLLM frees by itself needs no policy, and must not be narrowed by one.
  document.model.windows = {256, 0, 256, 0};
  EXPECT_THAT(exported(document, "vllm"), HasSubstr("layers: [1, 3]"));
  document.model.windows = {257, 0, 256, 0};
  EXPECT_THAT(refusal(document, "vllm"), HasSubstr("layer 0 has a window of the model's own"));
  EXPECT_THAT(refusal(lazy_document("llama", {0, 0}), "vllm"), HasSubstr("cuts no layer"));
}

TEST(ExportWindows, NothingToDo) {
  EXPECT_THAT(refusal(lazy_document("llama", {0, 0}), "sglang"), HasSubstr("trims no layer"));
  EXPECT_THAT(refusal(lazy_document("llama", {1, 0}, 1), "sglang"), HasSubstr("one token"));
}

TEST(ExportWindows, LlamaCppTakesAPeriodOrAList) {
  json config = gemma_config("gemma2");
  const auto metadata = [&](const Document& document) {
    return json::parse(exported(document, "llama.cpp", config)).at("metadata");
  };
  const auto own = metadata(lazy_document("gemma2", {1, 0, 1, 0, 1, 0}));
  EXPECT_EQ(own.at("gemma2.attention.sliding_window"), 256);
  EXPECT_EQ(own.at("gemma2.attention.sliding_window_pattern"), 2);
  const auto all = metadata(lazy_document("gemma2", {1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(all.at("gemma2.attention.sliding_window_pattern"), 0);
  EXPECT_EQ(metadata(lazy_document("gemma2", {1, 1, 1, 1, 1, 0}))
                .at("gemma2.attention.sliding_window_pattern"),
            6);
  EXPECT_EQ(metadata(lazy_document("gemma2", {1, 1, 1, 0, 1, 0}))
                .at("gemma2.attention.sliding_window_pattern"),
            json({true, true, true, false, true, false}));
}

TEST(ExportWindows, LlamaCppNamesArchitecturesItsOwnWay) {
  json config = {{"model_type", "gpt_oss"}, {"sliding_window", 256}, {"num_hidden_layers", 4}};
  const auto metadata = [&](const char* architecture, const std::vector<int>& lazy) {
    config["model_type"] = architecture;
    return json::parse(exported(lazy_document(architecture, lazy), "llama.cpp", config))
        .at("metadata");
  };
  EXPECT_EQ(metadata("gpt_oss", {1, 1, 1, 0}).at("gpt-oss.attention.sliding_window_pattern"), 4);
  EXPECT_EQ(metadata("olmo3", {1, 1, 1, 0}).at("olmo2.attention.sliding_window_pattern"), 4);
  EXPECT_EQ(metadata("cohere2", {1, 0, 0, 0}).at("cohere2.attention.sliding_window_pattern"), 4);
  EXPECT_THAT(refusal(lazy_document("cohere2", {1, 0, 0, 1}), "llama.cpp", config),
              HasSubstr("a full one is not"));
  config["model_type"] = "exaone4";
  EXPECT_THAT(refusal(lazy_document("exaone4", {1, 0, 0, 0}), "llama.cpp", config),
              HasSubstr("with 64 layers alone"));
}

}  // namespace
}  // namespace kvatlas::exporting::window_numbers_tests
