// SPDX-License-Identifier: Apache-2.0
#include "analyzer/config/cache_card.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "analyzer/config/config.hpp"
#include "analyzer/model/model_file.hpp"
#include "base/error.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/places.hpp"
#include "tests/support/tiny_model.hpp"

namespace kvatlas::model {
namespace {

using namespace testing_support;
using nlohmann::json;
using testing::HasSubstr;
using Kind = CachedLayer::Kind;

CacheCard card_of(const json& config) {
  const TemporaryFolder folder;
  return read_cache_card(folder.write("config.json", config.dump()));
}

json base(const json& changes) {
  json config = {{"model_type", "new"},      {"num_hidden_layers", 4},
                 {"num_attention_heads", 8}, {"num_key_value_heads", 2},
                 {"hidden_size", 512},       {"max_position_embeddings", 1000}};
  config.update(changes);
  return config;
}

std::vector<Kind> kinds(const CacheCard& card) {
  std::vector<Kind> out;
  for (const auto& layer : card.layers) out.push_back(layer.kind);
  return out;
}

/// The numbers that a sequence of so many tokens takes.
std::int64_t values_of(const CacheCard& card, std::int64_t tokens) {
  std::int64_t sum = 0;
  for (const auto& layer : card.layers)
    sum += layer.values_per_token() * (layer.tokens > 0 ? std::min(layer.tokens, tokens) : tokens);
  return sum;
}

TEST(CacheCard, ReadsTheOrdinaryKind) {
  const CacheCard card = card_of(base(json::object()));
  EXPECT_EQ(kinds(card), std::vector<Kind>(4, Kind::full));
  EXPECT_EQ(values_of(card, 1), 4 * 2 * 2 * 64);  // layers, KV heads, K and V, 512 / 8
}

TEST(CacheCard, KnowsOtherNamesOfTheSizes) {
  const CacheCard card = card_of({{"model_type", "old"},
                                  {"n_layer", 3},
                                  {"n_head", 4},
                                  {"n_embd", 64},
                                  {"multi_query", true}});
  EXPECT_EQ(card.layers.size(), 3U);
  EXPECT_EQ(card.layers[0].kv_heads, 1);
  EXPECT_EQ(card.layers[0].key_dim, 16);
  EXPECT_EQ(card.context_length, 0);
}

TEST(CacheCard, WindowsHoldTheirTokensAlone) {
  const CacheCard card = card_of(
      base({{"sliding_window", 100},
            {"layer_types",
             {"sliding_attention", "full_attention", "chunked_attention", "linear_attention"}},
            {"attention_chunk_size", 300}}));
  EXPECT_EQ(kinds(card), (std::vector<Kind>{Kind::window, Kind::full, Kind::chunk, Kind::state}));
  EXPECT_EQ(values_of(card, 1000), (100 + 1000 + 300) * 2 * 128);
  EXPECT_THAT(card.notes, testing::Contains(HasSubstr("state of fixed size")));
}

TEST(CacheCard, SaysWhatAFileLeavesOpen) {
  EXPECT_THAT(card_of(base({{"sliding_window", 100}})).notes,
              testing::Contains(HasSubstr("not of the layers that have it")));
  EXPECT_THAT(card_of(base({{"layer_types", {"sliding_attention"}}})).notes,
              testing::Contains(HasSubstr("does not say its size")));
}

// Sizes are those that the models' own files have.
TEST(CacheCard, LatentAttentionIsOneVectorAToken) {
  const CacheCard card = card_of({{"model_type", "deepseek_v3"},
                                  {"num_hidden_layers", 61},
                                  {"num_attention_heads", 128},
                                  {"num_key_value_heads", 128},
                                  {"hidden_size", 7168},
                                  {"kv_lora_rank", 512},
                                  {"qk_rope_head_dim", 64},
                                  {"v_head_dim", 128}});
  EXPECT_EQ(values_of(card, 1), 61 * 576);
}

TEST(CacheCard, HybridsAreSaidInManyWays) {
  const auto with_attention = [](const json& config) {
    std::vector<int> layers;
    const auto all = kinds(card_of(config));
    for (std::size_t l = 0; l < all.size(); ++l)
      if (all[l] == Kind::full) layers.push_back(static_cast<int>(l));
    return layers;
  };
  using Layers = std::vector<int>;
  EXPECT_EQ(with_attention(base({{"full_attention_interval", 4}})), Layers{3});
  EXPECT_EQ(with_attention(base({{"hybrid_override_pattern", "M-*E"}})), Layers{2});
  EXPECT_EQ(with_attention(base({{"attn_layer_period", 2}, {"attn_layer_offset", 1}})),
            (Layers{1, 3}));
  EXPECT_EQ(with_attention(base({{"full_attn_idxs", {0, 2}}})), (Layers{0, 2}));
  EXPECT_EQ(with_attention(base({{"attn_type_list", {0, 0, 0, 1}}})), Layers{3});
  EXPECT_EQ(with_attention(base({{"linear_attn_config", {{"full_attn_layers", {4}}}}})), Layers{3});
  EXPECT_EQ(with_attention(base({{"layers_block_type", {"mamba", "attention"}}})), (Layers{1, 3}));
  EXPECT_EQ(with_attention(base({{"model_type", "mamba2"}})), Layers{});
}

TEST(CacheCard, LayersMayHaveSizesOfTheirOwn) {
  const CacheCard card = card_of(
      {{"model_type", "gemma4"},
       {"text_config",
        base({{"layer_types",
               {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
              {"sliding_window", 10},
              {"head_dim", 16},
              {"global_head_dim", 32},
              {"num_global_key_value_heads", 1},
              {"num_kv_shared_layers", 2}})}});
  EXPECT_EQ(values_of(card, 1), 2 * 2 * 16 + 1 * 2 * 32);
  EXPECT_EQ(card.layers[3].kind, Kind::shared);
}

TEST(CacheCard, SenselessSizesAreNamed) {
  const auto refusal = [](const json& changes) {
    return error_of([&] { card_of(base(changes)); });
  };
  EXPECT_THAT(refusal({{"num_hidden_layers", -1}}), HasSubstr("'num_hidden_layers': found -1"));
  EXPECT_THAT(refusal({{"hidden_size", nullptr}}), HasSubstr("'hidden_size' is missing"));
  EXPECT_THAT(refusal({{"layer_types", {1, 2}}}), HasSubstr("'layer_types'"));
  EXPECT_THAT(refusal({{"full_attn_idxs", {"x"}}}), HasSubstr("a list of whole numbers"));
  const TemporaryFolder folder;
  const auto empty = folder.write("config.json", "[]");
  EXPECT_THAT(error_of([&] { read_cache_card(empty); }), HasSubstr("expected a JSON object"));
}

TEST(CacheCard, AGgufFileOfAnUnknownArchitectureIsRead) {
  GgufBytes keys = tiny_gguf_keys("new");
  keys.number("new.attention.sliding_window", 8u);
  const TemporaryFolder folder;
  const auto file = folder.write("a.gguf", gguf_of(keys, tiny_gguf_tensors("llama")));
  const CacheCard card = read_cache_card(file);
  EXPECT_EQ(card.architecture, "new");
  EXPECT_EQ(values_of(card, 1), static_cast<std::int64_t>(2 * TinySizes::keys));
  EXPECT_THAT(card.notes, testing::Contains(HasSubstr("not of the layers that have it")));
  EXPECT_GT(card.weight_bytes, 0);
}

/// Where the engine loads a model, the card counts the same layers and windows.
TEST(CacheCard, AgreesWithTheEngineOnEveryCheckpoint) {
  for (const char* set : {"tiny2", "tiny2_gguf"})
    for (const auto& entry : std::filesystem::directory_iterator(golden_path(set))) {
      const std::string name = entry.path().filename().string();
      const bool model = entry.is_directory() || entry.path().extension() == ".gguf";
      if (!model) continue;
      const auto opened = ModelFile::open(entry.path());
      const Config& config = opened->config();
      const CacheCard card = read_cache_card(entry.path());
      const auto& states = config.state_layers;
      const std::int64_t inner = states.value_heads * states.value_dim;
      const std::int64_t of_state =
          states.kind == StateLayers::Kind::short_conv
              ? (states.conv_kernel - 1) * config.hidden_size
              : (states.conv_kernel - 1) * (inner + 2 * states.key_heads * states.key_dim) +
                    inner * states.key_dim;
      const std::int64_t n_states =
          config.layer_numbers.empty() ? 0 : config.total_layers - config.n_layers;
      EXPECT_EQ(card.state_values(), n_states * of_state) << name;
      std::int64_t values = 0, at_once = 0;
      for (std::int64_t l = 0; l < config.n_layers; ++l) {
        values += config.cached_values(l);
        at_once += (config.window[l] > 0 ? std::min<std::int64_t>(config.window[l], 400) : 400) *
                   config.cached_values(l);
      }
      EXPECT_EQ(values_of(card, 1), values) << name;
      EXPECT_EQ(values_of(card, 400), at_once) << name;
    }
}

TEST(CacheCard, CachedValuesAreSaidWhereLayersAreNotAlike) {
  const auto values = [](const std::string& name) {
    return cached_values(ModelFile::open(golden_path("tiny2/" + name))->config());
  };
  // Gemma 3n's layers may share keys, or have blocks of other sizes; these have not.
  EXPECT_THAT(values("gemma3n_text"), testing::IsEmpty());
  EXPECT_THAT(values("qwen3_moe"), testing::IsEmpty());
  EXPECT_THAT(values("deepseek_v3"), testing::Each(40));
  EXPECT_EQ(values("gemma4_text").size(), 4U);
}

}  // namespace
}  // namespace kvatlas::model
