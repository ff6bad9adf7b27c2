// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analyzer/config/config_files.hpp"
#include "tests/support/model_bytes.hpp"

namespace kvatlas::model::config_hf_tests {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::error_of;

/// The sizes that every architecture must state, and `changes` over them.
json base(const std::string& type, const json& changes = json::object()) {
  json config = {{"model_type", type},
                 {"hidden_size", 64},
                 {"intermediate_size", 160},
                 {"num_hidden_layers", 4},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},
                 {"max_position_embeddings", 512},
                 {"vocab_size", 256}};
  config.update(changes);
  return config;
}

HfConfig parse(const json& config, const std::string& generation = "") {
  return parse_hf_config(config.dump(), generation, "folder");
}
Config config_of(const std::string& type, const json& changes = json::object()) {
  return parse(base(type, changes)).config;
}
std::string refusal(const json& changes, const std::string& type = "llama") {
  return error_of([&] { parse(base(type, changes)); });
}

TEST(HfConfig, FillsInWhatALlamaLeavesOut) {
  const HfConfig hf = parse(base("llama"));
  const Config& config = hf.config;
  EXPECT_EQ(config.architecture, Architecture::llama);
  EXPECT_EQ(config.name, "folder");
  EXPECT_EQ(parse_hf_config(base("llama").dump(), "", "\xFF").config.name, "\xEF\xBF\xBD");
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.rotary_dim, 16);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_EQ(config.attention_scale, 0.25);
  EXPECT_EQ(config.rope.kind, RopeKind::plain);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_EQ(config.activation, Activation::silu);
  EXPECT_THAT(config.window, ElementsAre(0, 0, 0, 0));
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_FALSE(hf.qkv_bias || hf.output_bias || hf.mlp_bias || hf.untied_stated);
}

TEST(HfConfig, MissingKeyValueHeadsAreTheArchitecturesDefault) {
  json config = base("llama");
  config.erase("num_key_value_heads");
  EXPECT_EQ(parse(config).config.n_kv_heads, 4);
  config["model_type"] = "gemma2";
  config["num_attention_heads"] = 8;
  EXPECT_EQ(parse(config).config.n_kv_heads, 4);
  config["num_key_value_heads"] = nullptr;
  EXPECT_EQ(parse(config).config.n_kv_heads, 8);
}

TEST(HfConfig, TheArchitectureMayBeNamedByItsClass) {
  json config = base("");
  config.erase("model_type");
  config["architectures"] = {"Qwen2ForCausalLM"};
  EXPECT_EQ(parse(config).config.architecture, Architecture::qwen2);
}

TEST(HfConfig, OldAndNewSpellingsOfRopeAgree) {
  for (const auto& changes :
       {json{{"rope_theta", 5e5}, {"rope_scaling", {{"type", "linear"}, {"factor", 4}}}},
        json{{"rope_theta", 5e5}, {"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}}}},
        json{{"rope_parameters",
              {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 5e5}}}}}) {
    const Rope rope = config_of("llama", changes).rope;
    EXPECT_EQ(rope.kind, RopeKind::linear);
    EXPECT_EQ(rope.theta, 5e5);
    EXPECT_EQ(rope.factor, 4.0);
  }
}

TEST(HfConfig, ReadsEveryKindOfRope) {
  Rope rope = config_of("llama", {{"rope_scaling",
                                   {{"rope_type", "llama3"},
                                    {"factor", 8.0},
                                    {"low_freq_factor", 1.0},
                                    {"high_freq_factor", 4.0},
                                    {"original_max_position_embeddings", 64}}}})
                  .rope;
  EXPECT_EQ(rope.kind, RopeKind::llama3);
  EXPECT_EQ(rope.original_context, 64);

  rope = config_of("llama", {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}}}}).rope;
  EXPECT_EQ(rope.kind, RopeKind::dynamic);
  EXPECT_EQ(rope.original_context, 512);  // the model's own length

  rope = config_of("qwen2", {{"rope_scaling",
                              {{"rope_type", "yarn"},
                               {"factor", nullptr},
                               {"original_max_position_embeddings", 128},
                               {"truncate", false},
                               {"beta_fast", 16}}}})
             .rope;
  EXPECT_EQ(rope.kind, RopeKind::yarn);
  EXPECT_EQ(rope.factor, 4.0);  // 512 / 128
  EXPECT_EQ(rope.beta_fast, 16.0);
  EXPECT_EQ(rope.beta_slow, 1.0);
  EXPECT_FALSE(rope.truncate);

  const std::vector<double> eight(8, 1.5);
  for (const char* type : {"su", "longrope", "yarn"}) {
    rope = config_of("phi3", {{"original_max_position_embeddings", 64},
                              {"rope_scaling",
                               {{"type", type}, {"short_factor", eight}, {"long_factor", eight}}}})
               .rope;
    EXPECT_EQ(rope.kind, RopeKind::longrope) << type;
    EXPECT_EQ(rope.original_context, 64);
    EXPECT_EQ(rope.factor, 8.0);
    EXPECT_EQ(rope.long_factor, eight);
  }
}

TEST(HfConfig, PhiTurnsAPartOfEachHead) {
  EXPECT_EQ(config_of("phi3", {{"partial_rotary_factor", 0.75}}).rotary_dim, 12);
  EXPECT_EQ(config_of("phi3", {{"rope_parameters",
                                {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}}})
                .rotary_dim,
            8);
}

TEST(HfConfig, GemmaThreeHasTwoRopesInEverySpelling) {
  const json nested = {
      {"rope_parameters",
       {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 2e6}}},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 3e4}}}}}};
  const json flat = {{"rope_theta", 2e6},
                     {"rope_local_base_freq", 3e4},
                     {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}};
  for (const json& spelling : {nested, flat}) {
    const Config config = config_of("gemma3_text", spelling);
    EXPECT_EQ(config.rope.kind, RopeKind::linear);
    EXPECT_EQ(config.rope.theta, 2e6);
    ASSERT_TRUE(config.local_rope);
    EXPECT_EQ(config.local_rope->kind, RopeKind::plain);
    EXPECT_EQ(config.local_rope->theta, 3e4);
  }
  const Config defaults = config_of("gemma3_text");
  EXPECT_EQ(defaults.rope.theta, 1e6);
  EXPECT_EQ(defaults.local_rope->theta, 1e4);
}

TEST(HfConfig, MultimodalGemmaLeavesItsTextDefaultsOut) {
  const json config = {
      {"model_type", "gemma3"},
      {"eos_token_id", {1, 106}},
      {"text_config", {{"hidden_size", 2560}, {"num_hidden_layers", 12}, {"sliding_window", 1024}}},
      {"vision_config", {{"hidden_size", 1152}}}};
  const Config read = parse(config).config;
  EXPECT_EQ(read.architecture, Architecture::gemma3);
  EXPECT_EQ(read.hidden_size, 2560);
  EXPECT_EQ(read.n_heads, 8);
  EXPECT_EQ(read.n_kv_heads, 4);
  EXPECT_EQ(read.head_dim, 256);
  EXPECT_EQ(read.vocab_size, 262208);
  EXPECT_TRUE(read.tied_embeddings);
  EXPECT_EQ(read.attention_softcap, 0.0);
  EXPECT_THAT(read.eos_tokens, ElementsAre(1, 106));
  EXPECT_THAT(read.window,
              ElementsAre(1024, 1024, 1024, 1024, 1024, 0, 1024, 1024, 1024, 1024, 1024, 0));
}

TEST(HfConfig, GemmaTwoHasItsDefaults) {
  const Config config = config_of("gemma2");
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.attention_scale, 1.0 / 16.0);
  EXPECT_EQ(config.attention_softcap, 50.0);
  EXPECT_EQ(config.logit_softcap, 30.0);
  EXPECT_EQ(config.embedding_scale, 8.0);
  EXPECT_EQ(config.norm_offset, 1.0);
  EXPECT_EQ(config.activation, Activation::gelu_tanh);
  EXPECT_THAT(config.window, ElementsAre(4096, 0, 4096, 0));
  EXPECT_EQ(config_of("gemma2", {{"attn_logit_softcapping", nullptr}}).attention_softcap, 0.0);
}

TEST(HfConfig, WindowsFollowTheirArchitecture) {
  EXPECT_THAT(config_of("mistral", {{"sliding_window", 32}}).window, ElementsAre(32, 32, 32, 32));
  EXPECT_THAT(config_of("mistral", {{"sliding_window", nullptr}}).window, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(config_of("mistral").window, ElementsAre(4096, 4096, 4096, 4096));
  EXPECT_THAT(config_of("llama", {{"sliding_window", 32}}).window, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(config_of("phi3", {{"sliding_window", 32}}).window, ElementsAre(32, 32, 32, 32));
  EXPECT_THAT(config_of("phi3").window, ElementsAre(0, 0, 0, 0));
  const json qwen = {
      {"sliding_window", 32}, {"max_window_layers", 2}, {"use_sliding_window", true}};
  EXPECT_THAT(config_of("qwen2", qwen).window, ElementsAre(0, 0, 32, 32));
  json unused = qwen;
  unused["use_sliding_window"] = false;
  EXPECT_THAT(config_of("qwen3", unused).window, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(
      config_of("gemma3_text", {{"sliding_window", 32}, {"sliding_window_pattern", 2}}).window,
      ElementsAre(32, 0, 32, 0));
  const json types = {"full_attention", "sliding_attention", "full_attention", "full_attention"};
  EXPECT_THAT(config_of("gemma2", {{"sliding_window", 32}, {"layer_types", types}}).window,
              ElementsAre(0, 32, 0, 0));
}

TEST(HfConfig, LlamaFourHasChunksWhereItHasRope) {
  const Config published = config_of("llama4_text", {{"no_rope_layers", json::array()}});
  EXPECT_THAT(published.window, ElementsAre(8192, 8192, 8192, 0));
  EXPECT_THAT(published.rotated, ElementsAre(1, 1, 1, 0));
  EXPECT_TRUE(published.chunks);
  EXPECT_EQ(published.key_window(0).first_key(8191), 0);
  EXPECT_EQ(published.key_window(0).first_key(8192), 8192);
  EXPECT_EQ(published.experts.size, 160);
  EXPECT_EQ(published.intermediate_size, 16384);
  const json listed = {{"no_rope_layers", {1, 0, 1, 0}}, {"attention_chunk_size", 32}};
  EXPECT_THAT(config_of("llama4_text", listed).window, ElementsAre(32, 0, 32, 0));
  json types = listed;
  types["layer_types"] = {"full_attention", "full_attention", "chunked_attention",
                          "full_attention"};
  EXPECT_THAT(config_of("llama4_text", types).window, ElementsAre(0, 0, 32, 0));
  types["layer_types"][0] = "sliding_attention";
  EXPECT_THAT(refusal(types, "llama4_text"), HasSubstr("\"sliding_attention\" is not supported"));
  EXPECT_THAT(refusal({{"no_rope_layers", {1, 0}}}, "llama4_text"),
              HasSubstr("expected a list of 4 numbers"));
  EXPECT_THAT(refusal({{"moe_layers", 1}}, "llama4_text"), HasSubstr("expected a list of layers"));
}

TEST(HfConfig, GemmaThreeNHasSizesAndGatesByLayer) {
  const json sizes = {
      {"num_kv_shared_layers", 1},
      {"intermediate_size", {8, 12, 16, 24}},
      {"layer_types",
       {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
      {"activation_sparsity_pattern", {0.95, 0.5, 0.0, 0.0}}};
  const Config config = config_of("gemma3n_text", sizes);
  EXPECT_EQ(config.intermediate_size, 24);
  EXPECT_EQ(config.shape(2).intermediate_size, 16);
  EXPECT_EQ(config.shape(2).keys_of, 2);
  EXPECT_EQ(config.shape(3).keys_of, 1);
  EXPECT_NEAR(config.sparse_gates[0].value_or(0), 1.6448536269514722, 1e-12);
  EXPECT_NEAR(config.sparse_gates[1].value_or(1), 0, 1e-12);
  EXPECT_FALSE(config.sparse_gates[2]);
  const auto with = [&](const char* key, const json& value) {
    json changed = sizes;
    changed[key] = value;
    return refusal(changed, "gemma3n_text");
  };
  EXPECT_THAT(with("intermediate_size", {8, 12}), HasSubstr("expected a list of 4 numbers"));
  EXPECT_THAT(with("intermediate_size", {8, 12, 0, 1}), HasSubstr("whole numbers from 1"));
  EXPECT_THAT(with("activation_sparsity_pattern", {0, 1.0, 0, 0}), HasSubstr("below 1"));
  EXPECT_THAT(with("activation_sparsity_pattern", {0.5}), HasSubstr("a list of 4 numbers"));
  EXPECT_THAT(with("altup_active_idx", 4), HasSubstr("less than the 4 streams"));
  EXPECT_THAT(with("num_kv_shared_layers", 3), HasSubstr("reads the keys of an earlier layer"));
}

TEST(HfConfig, BiasesAndTies) {
  EXPECT_TRUE(parse(base("qwen2")).qkv_bias);
  EXPECT_FALSE(parse(base("qwen2")).output_bias);
  const HfConfig llama = parse(base("llama", {{"attention_bias", true}, {"mlp_bias", true}}));
  EXPECT_TRUE(llama.qkv_bias && llama.output_bias && llama.mlp_bias);
  const HfConfig internlm = parse(base("internlm2", {{"bias", true}}));
  EXPECT_TRUE(internlm.qkv_bias && internlm.output_bias);
  EXPECT_FALSE(internlm.mlp_bias);
  EXPECT_TRUE(parse(base("qwen2", {{"tie_word_embeddings", true}})).config.tied_embeddings);
  EXPECT_TRUE(parse(base("llama", {{"tie_word_embeddings", false}})).untied_stated);
}

TEST(HfConfig, CollectsEndTokensOfBothFiles) {
  const Config config =
      parse(base("llama", {{"eos_token_id", 2}}), R"({"eos_token_id":[2,7,9]})").config;
  EXPECT_THAT(config.eos_tokens, ElementsAre(2, 7, 9));
  EXPECT_TRUE(config_of("llama", {{"eos_token_id", -1}}).eos_tokens.empty());
}

TEST(HfConfig, NamesWhatIsNotSupported) {
  EXPECT_THAT(refusal(json::object(), "mamba"),
              HasSubstr("config.json: the architecture 'mamba' is not supported"));
  EXPECT_THAT(refusal({{"rope_scaling", {{"type", "mrope"}}}}),
              HasSubstr("the rope type 'mrope' is not supported"));
  EXPECT_THAT(refusal({{"hidden_act", "relu"}}),
              HasSubstr("the activation 'relu' is not supported"));
  EXPECT_THAT(refusal({{"use_bidirectional_attention", true}}, "gemma3_text"),
              HasSubstr("'use_bidirectional_attention' is not supported"));
  const json four = {"conv", "full_attention", "linear_attention", "conv"};
  EXPECT_THAT(refusal({{"layer_types", four}}, "lfm2"),
              HasSubstr("\"linear_attention\" is not supported"));
  EXPECT_THAT(refusal({{"layer_types", {"mamba", "attention", "mamba", "mamba"}},
                       {"mamba_n_heads", 1},
                       {"time_step_limit", {0.0, 4.0}}},
                      "granitemoehybrid"),
              HasSubstr("'time_step_limit': found [0.0,4.0], expected 0 and no upper limit"));
  const auto quantised = [](json settings) {
    return refusal({{"quantization_config", std::move(settings)}});
  };
  EXPECT_THAT(quantised({{"quant_method", "bitsandbytes"}}),
              HasSubstr("quantised by 'bitsandbytes'"));
  EXPECT_THAT(quantised({{"quant_method", "modelopt"}, {"quant_algo", "NVFP4_AWQ"}}),
              HasSubstr("quantised by 'modelopt' in the format 'NVFP4_AWQ'"));
  EXPECT_THAT(
      quantised({{"quant_method", "gptq"}, {"bits", 9}}),
      HasSubstr("'quantization_config.bits': found 9, expected a whole number from 1 to 8"));
  EXPECT_THAT(quantised({{"quant_method", "awq"}, {"version", "gemv"}}),
              HasSubstr("found \"gemv\", expected 'gemm'"));
  const auto packed = [&](json groups) {
    return quantised({{"quant_method", "compressed-tensors"},
                      {"format", "pack-quantized"},
                      {"config_groups", std::move(groups)}});
  };
  EXPECT_THAT(packed(3), HasSubstr("is no object"));
  EXPECT_THAT(packed({{"group_0", {{"targets", "Linear"}}}}), HasSubstr("has no 'weights'"));
  EXPECT_THAT(
      packed({{"a", {{"weights", {{"num_bits", 4}}}}}, {"b", {{"weights", {{"num_bits", 8}}}}}}),
      HasSubstr("matrices of 4 and of 8 bits in one model are not supported"));
  EXPECT_THAT(
      refusal({{"layer_types", {"full_attention", "chunked_attention", "x", "y"}}}, "gemma2"),
      HasSubstr("\"chunked_attention\" is not supported"));
}

TEST(HfConfig, NamesTheKeyOfAnImpossibleNumber) {
  for (const char* key :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "max_position_embeddings", "vocab_size", "head_dim"}) {
    for (const json& value :
         {json(-1), json(0), json(1.5), json(1e300), json("64"), json(true), json::array()})
      EXPECT_THAT(refusal({{key, value}}),
                  HasSubstr("config.json: '" + std::string(key) + "': found"))
          << value;
  }
  for (const char* key : {"rms_norm_eps", "rope_theta", "partial_rotary_factor"})
    for (const json& value : {json(-1.0), json(0), json(1e300), json("x")})
      EXPECT_THAT(refusal({{key, value}}), HasSubstr("'" + std::string(key) + "': found")) << value;
  EXPECT_THAT(refusal({{"rope_scaling", {{"type", "linear"}, {"factor", -2}}}}),
              HasSubstr("'rope_scaling.factor': found -2, expected a positive number"));
  EXPECT_THAT(refusal({{"rope_scaling", {{"type", "linear"}}}}),
              HasSubstr("'rope_scaling.factor' is missing"));
  EXPECT_THAT(refusal({{"rope_scaling", 7}}), HasSubstr("expected an object"));
  EXPECT_THAT(refusal({{"eos_token_id", "2"}}), HasSubstr("'eos_token_id'"));
  json config = base("llama");
  config.erase("hidden_size");
  EXPECT_THAT(error_of([&] { parse(config); }), HasSubstr("'hidden_size' is missing"));
}

TEST(HfConfig, RefusesNumbersThatJsonDoesNotKnow) {
  for (const char* number : {"NaN", "Infinity", "-Infinity", "1e999"}) {
    std::string text = base("llama", {{"rms_norm_eps", 0.125}}).dump();
    text.replace(text.find("0.125"), 5, number);
    EXPECT_THAT(error_of([&] { parse_hf_config(text, "", "folder"); }),
                HasSubstr("config.json: not valid JSON"))
        << number;
  }
}

TEST(HfConfig, RefusesSizesThatDoNotFitTogether) {
  EXPECT_THAT(refusal({{"num_key_value_heads", 3}}),
              HasSubstr("expected a multiple of the 3 key-value heads"));
  EXPECT_THAT(refusal({{"num_attention_heads", 6}}),
              HasSubstr("expected a multiple of the 6 heads"));
  EXPECT_THAT(refusal({{"num_attention_heads", 16384}, {"head_dim", 16384}}),
              HasSubstr("together"));
  EXPECT_THAT(refusal({{"rope_theta", 0.5}}), HasSubstr("rope theta 0.5, expected more than 1"));
  EXPECT_THAT(refusal({{"head_dim", 15}}), HasSubstr("a rotary dimension of 15"));
  EXPECT_THAT(refusal({{"partial_rotary_factor", 1.5}}), HasSubstr("expected at most 1"));
  EXPECT_THAT(refusal({{"partial_rotary_factor", 0.01}}), HasSubstr("a rotary dimension of 0"));
  EXPECT_THAT(refusal({{"rope_scaling",
                        {{"type", "longrope"}, {"short_factor", {1, 2}}, {"long_factor", {1, 2}}}}},
                      "phi3"),
              HasSubstr("2 values, expected 8"));
  EXPECT_THAT(refusal({{"rope_scaling",
                        {{"type", "longrope"}, {"short_factor", {1, 0}}, {"long_factor", {1, 2}}}}},
                      "phi3"),
              HasSubstr("a list of positive numbers"));
  EXPECT_THAT(refusal({{"head_dim", 2}, {"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}}),
              HasSubstr("dynamic rope scaling with a rotary dimension of 2"));
  EXPECT_THAT(refusal({{"rope_scaling",
                        {{"rope_type", "llama3"},
                         {"factor", 8},
                         {"low_freq_factor", 4},
                         {"high_freq_factor", 1},
                         {"original_max_position_embeddings", 16}}}}),
              HasSubstr("rope high_freq_factor 1, expected more than low_freq_factor, 4"));
  EXPECT_THAT(refusal({{"layer_types", {"full_attention"}}}, "gemma2"),
              HasSubstr("expected a list of 4 names"));
}

TEST(HfConfig, RefusesWhatIsNoObject) {
  const auto text_error = [](const std::string& text) {
    return error_of([&] { parse_hf_config(text, "", "folder"); });
  };
  EXPECT_THAT(text_error("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(text_error(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(text_error(std::string(1'000'000, '[')), HasSubstr("nested deeper than 32 levels"));
  EXPECT_THAT(error_of([&] { parse_hf_config(base("llama").dump(), "7", "folder"); }),
              HasSubstr("generation_config.json: expected a JSON object"));
}

}  // namespace
}  // namespace kvatlas::model::config_hf_tests
