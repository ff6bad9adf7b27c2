// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/checkpoint/gguf.hpp"
#include "analyzer/config/config_files.hpp"
#include "tests/support/tiny_model.hpp"

namespace kvatlas::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace testing_support;

using Change = std::function<void(GgufBytes&)>;

Config parse(const std::string& bytes) {
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes.data(), bytes.size())));
  return gguf_config(file, "file");
}

/// The configuration of a tiny model with more keys.
Config config_of(
    const std::string& architecture, const Change& change = [](GgufBytes&) {},
    const Tensors& more = {}) {
  GgufBytes keys = tiny_gguf_keys(architecture);
  change(keys);
  Tensors tensors = tiny_gguf_tensors(architecture);
  tensors.insert(more.begin(), more.end());
  return parse(gguf_of(keys, tensors));
}

/// The error of a file whose keys, but for the architecture, are only what `fill` writes.
std::string refusal(const Change& fill) {
  GgufBytes keys;
  keys.text("general.architecture", "llama");
  fill(keys);
  return error_of([&] { parse(gguf_of(keys, tiny_gguf_tensors("llama"))); });
}

/// The error of a tiny llama in which one key has another value.
std::string refusal_with(const std::string& key, const Change& write) {
  return refusal([&](GgufBytes& file) {
    for (const auto& [name, value] :
         std::map<std::string, std::uint32_t>{{"block_count", 1},
                                              {"context_length", 64},
                                              {"embedding_length", 8},
                                              {"feed_forward_length", 12},
                                              {"attention.head_count", 4},
                                              {"attention.head_count_kv", 2},
                                              {"attention.key_length", 4}})
      if ("llama." + name != key) file.number("llama." + name, value);
    if (key != "llama.attention.layer_norm_rms_epsilon")
      file.number("llama.attention.layer_norm_rms_epsilon", 1e-6f);
    write(file);
  });
}

TEST(GgufConfig, ReadsALlama) {
  const Config config = config_of("llama", [](GgufBytes& keys) {
    keys.text("general.name", "Tiny").number("llama.rope.freq_base", 5e5f);
    keys.number("llama.rope.dimension_count", 2u);
    keys.number("tokenizer.ggml.bos_token_id", 1u).number("tokenizer.ggml.eos_token_id", 2u);
    keys.number("tokenizer.ggml.eot_token_id", 7u).number("tokenizer.ggml.eom_token_id", 2u);
  });
  EXPECT_EQ(config.architecture, Architecture::llama);
  EXPECT_EQ(config.name, "Tiny");
  EXPECT_EQ(config.n_layers, 1);
  EXPECT_EQ(config.n_heads, 4);
  EXPECT_EQ(config.n_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.vocab_size, 10);
  EXPECT_EQ(config.rotary_dim, 2);
  EXPECT_EQ(config.rope.theta, 5e5);
  EXPECT_EQ(config.rope.kind, RopeKind::plain);
  EXPECT_EQ(config.attention_scale, 0.5);
  EXPECT_EQ(config.norm_offset, 0.0);
  EXPECT_THAT(config.window, ElementsAre(0));
  EXPECT_THAT(config.eos_tokens, ElementsAre(2, 7));
}

TEST(GgufConfig, ReadsTheKindsOfRope) {
  const auto scaled = [](const char* type) {
    return [type](GgufBytes& keys) {
      keys.text("qwen2.rope.scaling.type", type).number("qwen2.rope.scaling.factor", 4.0f);
      keys.number("qwen2.rope.scaling.original_context_length", 16u);
      keys.number("qwen2.rope.scaling.attn_factor", 2.0f);
    };
  };
  EXPECT_EQ(config_of("qwen2", scaled("none")).rope.kind, RopeKind::plain);
  const Rope linear = config_of("qwen2", scaled("linear")).rope;
  EXPECT_EQ(linear.kind, RopeKind::linear);
  EXPECT_EQ(linear.factor, 4.0);
  const Rope yarn = config_of("qwen2", scaled("yarn")).rope;
  EXPECT_EQ(yarn.kind, RopeKind::yarn);
  EXPECT_EQ(yarn.original_context, 16);
  EXPECT_DOUBLE_EQ(yarn.attention_factor.value(), 2.0 * (0.1 * std::log(4.0) + 1.0));
  EXPECT_THAT(error_of([&] { config_of("qwen2", scaled("spiral")); }),
              HasSubstr("the rope type 'spiral' is not supported"));
  const auto of_type = [](const char* type) {
    return error_of([&] {
      config_of("phi3", [&](GgufBytes& keys) { keys.text("phi3.rope.scaling.type", type); });
    });
  };
  EXPECT_THAT(of_type("longrope"), HasSubstr("'rope_factors_long.weight' is missing"));
  EXPECT_THAT(of_type("yarn"), HasSubstr("the key 'phi3.rope.scaling.factor' is missing"));
}

TEST(GgufConfig, ReadsTheRopeFactorTensors) {
  const Rope divided =
      config_of("llama", [](GgufBytes&) {}, {{"rope_freqs.weight", counting({2}, 1)}}).rope;
  EXPECT_EQ(divided.kind, RopeKind::plain);
  EXPECT_THAT(divided.divisors, ElementsAre(1.0, 2.0));
  const auto original = [](GgufBytes& keys) {
    keys.number("phi3.rope.scaling.original_context_length", 16u);
  };
  const Rope longrope = config_of("phi3", original,
                                  {{"rope_factors_long.weight", counting({2}, 3)},
                                   {"rope_factors_short.weight", counting({2}, 1)}})
                            .rope;
  EXPECT_EQ(longrope.kind, RopeKind::longrope);
  EXPECT_EQ(longrope.factor, 4.0);
  EXPECT_EQ(longrope.original_context, 16);
  EXPECT_THAT(longrope.long_factor, ElementsAre(3.0, 4.0));
  EXPECT_THAT(longrope.short_factor, ElementsAre(1.0, 2.0));

  const auto with = [](const Tensors& more) {
    return error_of([&] {
      config_of(
          "phi3", [](GgufBytes&) {}, more);
    });
  };
  EXPECT_THAT(with({{"rope_factors_long.weight", counting({2}, 3)}}), HasSubstr("is missing"));
  EXPECT_THAT(with({{"rope_freqs.weight", counting({3}, 1)}}),
              HasSubstr("shape [3] of F32, expected [2]"));
  EXPECT_THAT(with({{"rope_freqs.weight", counting({2}, 0)}}),
              HasSubstr("expected positive numbers"));
}

TEST(GgufConfig, WindowsFollowTheirArchitecture) {
  const auto window = [](const std::string& architecture,
                         const std::function<void(GgufBytes&)>& more = nullptr) {
    GgufBytes file;
    file.text("general.architecture", architecture);
    for (const auto& [name, value] :
         std::map<std::string, std::uint32_t>{{"block_count", 7},
                                              {"context_length", 64},
                                              {"embedding_length", 8},
                                              {"feed_forward_length", 12},
                                              {"attention.head_count", 4},
                                              {"attention.head_count_kv", 2},
                                              {"attention.sliding_window", 32}})
      file.number(architecture + "." + name, value);
    file.number(architecture + ".attention.layer_norm_rms_epsilon", 1e-6f);
    if (more) more(file);
    return parse(gguf_of(file, tiny_gguf_tensors(architecture))).window;
  };
  EXPECT_THAT(window("llama"), ElementsAre(32, 32, 32, 32, 32, 32, 32));
  EXPECT_THAT(window("phi3"), ElementsAre(32, 32, 32, 32, 32, 32, 32));
  EXPECT_THAT(window("gemma2"), ElementsAre(32, 0, 32, 0, 32, 0, 32));
  EXPECT_THAT(window("gemma3"), ElementsAre(32, 32, 32, 32, 32, 0, 32));
  EXPECT_THAT(window("qwen3"), ElementsAre(0, 0, 0, 0, 0, 0, 0));
  const auto pattern = [&](std::uint32_t number) {
    return window("gemma3", [&](GgufBytes& file) {
      file.number("gemma3.attention.sliding_window_pattern", number);
    });
  };
  EXPECT_THAT(pattern(3), ElementsAre(32, 32, 0, 32, 32, 0, 32));
  EXPECT_THAT(pattern(0), ElementsAre(32, 32, 32, 32, 32, 32, 32));
  const auto list = [&](const std::string& flags) {
    std::string bytes = std::string(4, '\0') + char(flags.size()) + std::string(7, '\0') + flags;
    bytes[0] = 7;  // truth values
    return window("gemma2", [&](GgufBytes& file) {
      file.key("gemma2.attention.sliding_window_pattern", 9, bytes);
    });
  };
  EXPECT_THAT(list({1, 0, 0, 1, 1, 0, 1}), ElementsAre(32, 0, 0, 32, 32, 0, 32));
  EXPECT_THAT(error_of([&] { list({1, 0, 0}); }), HasSubstr("found 3 layers, expected 7"));
}

TEST(GgufConfig, ReadsGemma) {
  const Config second = config_of("gemma2");
  EXPECT_EQ(second.activation, Activation::gelu_tanh);
  EXPECT_EQ(second.attention_softcap, 50.0);
  EXPECT_EQ(second.logit_softcap, 30.0);
  EXPECT_DOUBLE_EQ(second.embedding_scale, std::sqrt(8.0));
  EXPECT_EQ(second.norm_offset, 0.0);  // the converter has added the one
  EXPECT_FALSE(second.local_rope);
  const Config third = config_of("gemma3", [](GgufBytes& keys) {
    keys.text("gemma3.rope.scaling.type", "linear").number("gemma3.rope.scaling.factor", 8.0f);
    keys.number("gemma3.rope.freq_base", 1e6f);
  });
  EXPECT_EQ(third.attention_softcap, 0.0);
  EXPECT_EQ(third.rope.kind, RopeKind::linear);
  ASSERT_TRUE(third.local_rope);
  EXPECT_EQ(third.local_rope->kind, RopeKind::plain);
  EXPECT_EQ(third.local_rope->theta, 10000.0);
}

// No key says so: only the largest models scale attention by the width of a head's share.
TEST(GgufConfig, GemmaOf27BScalesAttentionByItsWidth) {
  for (const auto& [architecture, layers] :
       {std::pair{"gemma2", 46u}, std::pair{"gemma3", 62u}, std::pair{"gemma2", 45u}}) {
    GgufBytes file;
    file.text("general.architecture", architecture);
    for (const auto& [name, value] :
         std::map<std::string, std::uint32_t>{{"block_count", layers},
                                              {"context_length", 64},
                                              {"embedding_length", 8},
                                              {"feed_forward_length", 12},
                                              {"attention.head_count", 4},
                                              {"attention.key_length", 4}})
      file.number(str(architecture, ".", name), value);
    file.number(str(architecture, ".attention.layer_norm_rms_epsilon"), 1e-6f);
    const double scale = parse(gguf_of(file, tiny_gguf_tensors(architecture))).attention_scale;
    EXPECT_DOUBLE_EQ(scale, layers == 45 ? 0.5 : std::sqrt(4.0 / 8.0)) << architecture;
  }
}

TEST(GgufConfig, NamesWhatIsNotSupported) {
  const auto architecture = [](const char* name) {
    return error_of([&] { parse(gguf_of(tiny_gguf_keys(name), tiny_gguf_tensors("llama"))); });
  };
  EXPECT_THAT(architecture("mamba"), HasSubstr("the architecture 'mamba' is not supported"));
  EXPECT_THAT(architecture("mamba"), HasSubstr("qwen3next, seed_oss"));
  GgufBytes experts = tiny_gguf_keys("llama");
  experts.number("llama.expert_count", 8u).number("llama.expert_used_count", 2u);
  EXPECT_THAT(error_of([&] { parse(gguf_of(experts, tiny_gguf_tensors("llama"))); }),
              HasSubstr("'ffn_gate_exps.weight' is missing in every layer"));
  EXPECT_THAT(refusal([](GgufBytes& keys) { keys.number("split.count", 3u); }),
              HasSubstr("one of 3 parts of a split GGUF"));
  EXPECT_THAT(refusal([](GgufBytes& keys) { keys.text("general.type", "adapter"); }),
              HasSubstr("a part of a model of the type 'adapter'"));
  EXPECT_THAT(refusal_with("llama.attention.head_count_kv",
                           [](GgufBytes& keys) {
                             keys.key("llama.attention.head_count_kv", kGgufArray,
                                      bytes_of(kGgufU32) + bytes_of<std::uint64_t>(2) +
                                          bytes_of(2u) + bytes_of(4u));
                           }),
              HasSubstr("layers of different sizes"));
  EXPECT_THAT(
      refusal_with("", [](GgufBytes& keys) { keys.number("llama.attention.value_length", 8u); }),
      HasSubstr("keys of 4 and values of 8 numbers a head"));
}

TEST(GgufConfig, NamesTheKeyOfAnImpossibleNumber) {
  EXPECT_EQ(refusal_with("", [](GgufBytes&) {}), "");
  for (const char* name : {"block_count", "context_length", "embedding_length",
                           "feed_forward_length", "attention.head_count", "attention.head_count_kv",
                           "attention.key_length", "rope.dimension_count"}) {
    const std::string key = std::string("llama.") + name;
    EXPECT_THAT(refusal_with(key, [&](GgufBytes& file) { file.number(key, 0u); }),
                HasSubstr("key '" + key + "': found 0, expected a number from 1 to"));
    EXPECT_THAT(refusal_with(key, [&](GgufBytes& file) { file.key(key, kGgufI32, bytes_of(-1)); }),
                HasSubstr("key '" + key + "': found -1"));
    EXPECT_THAT(refusal_with(key,
                             [&](GgufBytes& file) {
                               file.key(key, kGgufU64, bytes_of(std::uint64_t{1} << 50));
                             }),
                HasSubstr("key '" + key + "': found"));
    EXPECT_THAT(refusal_with(key, [&](GgufBytes& file) { file.text(key, "4"); }),
                HasSubstr("key '" + key + "': expected a whole number"));
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* key : {"llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base",
                          "llama.rope.scaling.factor"})
    for (float value : {nan, -1.0f, 0.0f, std::numeric_limits<float>::infinity()})
      EXPECT_THAT(refusal_with(key, [&](GgufBytes& file) { file.number(key, value); }),
                  HasSubstr(str("key '", key, "': found ", value, ", expected a positive number")));
  for (const char* name :
       {"block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.layer_norm_rms_epsilon"})
    EXPECT_EQ(refusal_with(str("llama.", name), [](GgufBytes&) {}),
              str("the key 'llama.", name, "' is missing"));
}

/// Keys of a model of three layers with a list of key-value heads, and others.
GgufBytes layered(const std::string& architecture, const std::vector<std::uint32_t>& kv_heads,
                  const std::map<std::string, std::uint32_t>& more) {
  GgufBytes file;
  file.text("general.architecture", architecture);
  std::map<std::string, std::uint32_t> numbers{{"block_count", 3},
                                               {"context_length", 64},
                                               {"embedding_length", 8},
                                               {"feed_forward_length", 12},
                                               {"attention.head_count", 4}};
  numbers.insert(more.begin(), more.end());
  for (const auto& [name, value] : numbers) file.number(architecture + "." + name, value);
  file.number(architecture + ".attention.layer_norm_rms_epsilon", 1e-6f);
  std::string list = bytes_of(kGgufU32) + bytes_of<std::uint64_t>(kv_heads.size());
  for (const auto heads : kv_heads) list += bytes_of(heads);
  file.key(architecture + ".attention.head_count_kv", kGgufArray, list);
  return file;
}

TEST(GgufConfig, LayersWithoutKeyValueHeadsHaveNoAttention) {
  const auto read = [](const std::string& architecture, const std::vector<std::uint32_t>& kv_heads,
                       const std::map<std::string, std::uint32_t>& more) {
    return parse(gguf_of(layered(architecture, kv_heads, more), tiny_gguf_tensors(architecture)));
  };
  const Config lfm2 = read("lfm2", {0, 2, 0}, {{"shortconv.l_cache", 3}});
  EXPECT_EQ(lfm2.n_layers, 1);
  EXPECT_EQ(lfm2.total_layers, 3);
  EXPECT_EQ(lfm2.n_kv_heads, 2);
  EXPECT_THAT(lfm2.layer_numbers, ElementsAre(1));
  std::map<std::string, std::uint32_t> sizes{{"ssm.conv_kernel", 4},
                                             {"ssm.group_count", 1},
                                             {"ssm.state_size", 6},
                                             {"ssm.time_step_rank", 4},
                                             {"ssm.inner_size", 16}};
  const Config granite = read("granitehybrid", {2, 0, 2}, sizes);
  EXPECT_THAT(granite.layer_numbers, ElementsAre(0, 2));
  EXPECT_EQ(granite.state_layers.value_dim, 4);
  const auto refused = [&](const std::vector<std::uint32_t>& kv_heads) {
    return error_of([&] { read("granitehybrid", kv_heads, sizes); });
  };
  EXPECT_THAT(refused({0, 0, 0}), HasSubstr("no layer of the model has attention"));
  EXPECT_THAT(refused({2, 0}), HasSubstr("found 2 layers, expected 3"));
  EXPECT_THAT(refused({2, 0, 1u << 31}), HasSubstr("expected numbers from 0 to"));
  sizes["ssm.time_step_rank"] = 5;
  EXPECT_THAT(refused({2, 0, 2}), HasSubstr("found 5, expected a divisor of the 16 inner values"));
}

TEST(GgufConfig, LlamaFourHasTheChunksOfLlamaCpp) {
  const Config config = config_of("llama4");
  EXPECT_TRUE(config.chunks);
  EXPECT_THAT(config.window, testing::Each(8192));
  EXPECT_THAT(config.rotated, testing::Each(1));
}

TEST(GgufConfig, NeedsAnEmbedding) {
  EXPECT_EQ(error_of([] { parse(gguf_of(tiny_gguf_keys("llama"), {})); }),
            "the tensor 'token_embd.weight' is missing");
}

}  // namespace
}  // namespace kvatlas::model
