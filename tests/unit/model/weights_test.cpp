// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/weights.hpp"

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/model/model_file.hpp"
#include "tests/support/tiny_model.hpp"

namespace kvatlas::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using namespace testing_support;

std::vector<float> values_of(const Weight& weight) {
  std::vector<float> values(static_cast<std::size_t>(weight.rows() * weight.columns()));
  read_rows(weight, 0, weight.rows(), values.data());
  return values;
}

/// The first column of a matrix: which rows it is made of.
std::vector<float> first_column(const Weight& weight) {
  std::vector<float> column;
  const auto values = values_of(weight);
  for (std::int64_t row = 0; row < weight.rows(); ++row)
    column.push_back(values[row * weight.columns()]);
  return column;
}

/// A model whose files are gone already: a mapping outlives them.
struct Opened {
  std::shared_ptr<const ModelFile> model;
  const LayerWeights& layer() const { return model->layers().front(); }
};

void write_folder(const TemporaryFolder& folder, const std::string& config,
                  const Tensors& tensors) {
  folder.write("config.json", config);
  folder.write("model.safetensors", safetensors_of(tensors));
}

Opened open_folder(const std::string& type) {
  const TemporaryFolder folder;
  write_folder(folder, tiny_hf_config(type), tiny_hf_tensors(type));
  return {ModelFile::open(folder.path())};
}

Opened open_gguf(const std::string& architecture, const Tensors& more = {}) {
  const TemporaryFolder folder;
  Tensors tensors = tiny_gguf_tensors(architecture);
  tensors.insert(more.begin(), more.end());
  return {
      ModelFile::open(folder.write("model.gguf", gguf_of(tiny_gguf_keys(architecture), tensors)))};
}

std::string folder_refusal(const std::string& type, const Tensors& tensors) {
  const TemporaryFolder folder;
  write_folder(folder, tiny_hf_config(type), tensors);
  return error_of([&] { ModelFile::open(folder.path()); });
}

std::vector<float> joined(const Tensors& tensors, const std::vector<std::string>& names) {
  std::vector<float> values;
  for (const auto& name : names)
    values.insert(values.end(), tensors.at(name).values.begin(), tensors.at(name).values.end());
  return values;
}

TEST(Weights, EveryArchitectureOpensInBothKindsOfFile) {
  for (const char* type :
       {"llama", "mistral", "qwen2", "qwen3", "internlm2", "phi3", "gemma2", "gemma3_text"}) {
    SCOPED_TRACE(type);
    const auto opened = open_folder(type);
    EXPECT_EQ(opened.model->format(), "safetensors");
    EXPECT_EQ(opened.layer().qkv.rows(), 32);
    EXPECT_EQ(opened.layer().gate_up.rows(), 24);
  }
  for (const char* architecture :
       {"llama", "qwen2", "qwen3", "internlm2", "phi3", "gemma2", "gemma3"}) {
    SCOPED_TRACE(architecture);
    const auto opened = open_gguf(architecture);
    EXPECT_EQ(opened.model->format(), "GGUF v3");
    EXPECT_EQ(opened.layer().qkv.rows(), 32);
    EXPECT_EQ(opened.layer().gate_up.rows(), 24);
  }
}

TEST(Weights, PartsLieOneUnderTheOther) {
  const auto opened = open_folder("qwen2");
  const Tensors stored = tiny_hf_tensors("qwen2");
  const std::string at = "model.layers.0.";
  EXPECT_EQ(values_of(opened.layer().qkv),
            joined(stored, {at + "self_attn.q_proj.weight", at + "self_attn.k_proj.weight",
                            at + "self_attn.v_proj.weight"}));
  EXPECT_EQ(values_of(opened.layer().gate_up),
            joined(stored, {at + "mlp.gate_proj.weight", at + "mlp.up_proj.weight"}));
  EXPECT_EQ(opened.layer().qkv_bias.rows(), 1);
  EXPECT_EQ(values_of(opened.layer().qkv_bias),
            joined(stored, {at + "self_attn.q_proj.bias", at + "self_attn.k_proj.bias",
                            at + "self_attn.v_proj.bias"}));
  EXPECT_FALSE(opened.layer().output_bias);
  EXPECT_FALSE(opened.layer().q_norm);
}

TEST(Weights, ReadRowsGivesAnyRange) {
  const auto opened = open_folder("internlm2");
  for (const Weight* weight : {&opened.layer().qkv, &opened.layer().gate_up}) {
    const auto all = values_of(*weight);
    for (std::int64_t first = 0; first < weight->rows(); ++first)
      for (std::int64_t count = 0; first + count <= weight->rows(); ++count) {
        std::vector<float> some(static_cast<std::size_t>(count * weight->columns()), -1.0f);
        read_rows(*weight, first, count, some.data());
        EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first * weight->columns()));
      }
  }
  float unused = 0;
  EXPECT_THAT(error_of([&] { read_rows(opened.layer().qkv, 30, 3, &unused); }),
              HasSubstr("of 32 rows"));
}

/// A llama whose down projection [8, 12] GPTQ has packed, in two groups of columns.
struct Packed {
  Tensors tensors = tiny_hf_tensors("llama");
  std::string at = "model.layers.0.mlp.down_proj.", config = tiny_hf_config("llama");

  Packed() {
    config.insert(1, R"("quantization_config":{"quant_method":"gptq","bits":4,"group_size":6},)");
    tensors.erase(at + "weight");
    FloatTensor words{{2, 8}, std::vector<float>(16, 0), true};
    for (int row = 0; row < 8; ++row) {
      words.values[row] = static_cast<float>(row + 5 * 16 + 15 * 16 * 16);  // columns 0 to 2
      words.values[8 + row] = static_cast<float>(9 << 12);                  // column 11
    }
    tensors[at + "qweight"] = words;
    tensors[at + "qzeros"] = {{2, 1}, {0x654321, 0x777777}, true};  // those of rows 6 and 7 are 0
    tensors[at + "scales"] = {{2, 8}, {1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0.5F, 1}, false};
  }
  std::shared_ptr<const ModelFile> open() const {
    const TemporaryFolder folder;
    write_folder(folder, config, tensors);
    return ModelFile::open(folder.path());
  }
  std::string refusal() const {
    return error_of([&] { open(); });
  }
};

TEST(Weights, PackedNumbersLoseTheirZerosAndAreScaled) {
  Packed packed;
  auto model = packed.open();
  const auto at = [&](std::int64_t row, std::int64_t column) {
    return values_of(model->layers()[0].down)[static_cast<std::size_t>(row * 12 + column)];
  };
  EXPECT_EQ(at(0, 0), 0 - 2);  // the first format stores zeros less 1
  EXPECT_EQ(at(3, 0), (3 - 5) * 2);
  EXPECT_EQ(at(3, 1), (5 - 5) * 2);
  EXPECT_EQ(at(2, 2), 15 - 4);
  EXPECT_EQ(at(7, 2), 15 - 1);
  EXPECT_EQ(at(6, 11), (9 - 1) * 0.5F);
  EXPECT_EQ(at(5, 11), 9 - 8);
  // Groups in any order.
  packed.tensors[packed.at + "g_idx"] = {{12}, {1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}, true};
  model = packed.open();
  EXPECT_EQ(at(0, 0), 0 - 8);
  EXPECT_EQ(at(6, 0), (6 - 1) * 0.5F);
  EXPECT_EQ(at(2, 2), 15 - 4);
}

TEST(Weights, RefusesPackedNumbersThatDoNotFit) {
  const auto changed = [](const std::string& name, FloatTensor tensor) {
    Packed packed;
    packed.tensors[packed.at + name] = std::move(tensor);
    return packed.refusal();
  };
  EXPECT_THAT(changed("g_idx", {{12}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}, true}),
              HasSubstr("names a group beyond the 2 that there are"));
  EXPECT_THAT(changed("g_idx", {{12}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1}, true}),
              HasSubstr("names a group beyond"));
  EXPECT_THAT(changed("g_idx", counting({12})), HasSubstr("F32, expected I32"));
  EXPECT_THAT(changed("qweight", {{3, 8}, std::vector<float>(24), true}),
              HasSubstr("shape [3, 8], expected [2, 8]"));
  EXPECT_THAT(changed("qzeros", {{2, 2}, std::vector<float>(4), true}),
              HasSubstr("shape [2, 2], expected [2, 1]"));
  EXPECT_THAT(changed("scales", counting({3, 8})), HasSubstr("3 groups of 6 columns"));
  EXPECT_THAT(changed("scales", {{2, 8}, std::vector<float>(16), true}),
              HasSubstr("holds no matrix of numbers"));
  Packed packed;
  packed.tensors.erase(packed.at + "scales");
  EXPECT_THAT(packed.refusal(), HasSubstr("holds no matrix of numbers"));
}

/// A matrix [2, 32] in NVFP4 among tensors in memory.
struct Nvfp4 {
  std::vector<std::byte> zeros = std::vector<std::byte>(64, std::byte{0});
  float global = 2;
  std::vector<StoredTensor> tensors = {
      stored("m.weight_packed", TensorType::u8, {2, 16}),
      stored("m.weight_scale", TensorType::f8_e4m3, {2, 2}),
      {"m.weight_global_scale", TensorType::f32, "", {1}, std::as_bytes(std::span(&global, 1))}};

  StoredTensor stored(const char* name, TensorType type, std::vector<std::int64_t> shape) const {
    return {name, type, "", std::move(shape), zeros};
  }
  std::string refusal(std::int64_t columns = 32) const {
    const TensorFinder finder([&](std::string_view name) -> const StoredTensor* {
      for (const auto& tensor : tensors)
        if (tensor.name == name) return &tensor;
      return nullptr;
    });
    return error_of([&] { finder.nvfp4("m", 2, columns); });
  }
};

TEST(Weights, RefusesNvfp4ThatDoesNotFit) {
  EXPECT_EQ(Nvfp4().refusal(), "");
  EXPECT_THAT(Nvfp4().refusal(24), HasSubstr("rows of 24 values, expected a multiple of 16"));
  EXPECT_THAT(Nvfp4().refusal(64), HasSubstr("shape [2, 16], expected [2, 32]"));
  const auto changed = [](std::size_t which, TensorType type, std::vector<std::int64_t> shape) {
    Nvfp4 one;
    one.tensors[which].type = type;
    one.tensors[which].shape = std::move(shape);
    return one.refusal();
  };
  EXPECT_THAT(changed(0, TensorType::i8, {2, 16}), HasSubstr("expected U8, F8_E4M3 and F32"));
  EXPECT_THAT(changed(1, TensorType::u8, {2, 2}), HasSubstr("expected U8, F8_E4M3 and F32"));
  EXPECT_THAT(changed(1, TensorType::f8_e4m3, {2, 1}), HasSubstr("shape [2, 1], expected [2, 2]"));
  EXPECT_THAT(changed(2, TensorType::f32, {2}), HasSubstr("shape [2], expected [1]"));
  for (const float wrong : {0.0F, -1.0F, std::nanf(""), HUGE_VALF}) {
    Nvfp4 one;
    one.global = wrong;
    EXPECT_THAT(one.refusal(), HasSubstr("expected a scale above 0"));
  }
  Nvfp4 lacking;
  lacking.tensors.erase(lacking.tensors.begin() + 1);
  EXPECT_THAT(lacking.refusal(), HasSubstr("'m.weight_scale' is missing"));
}

// [kv head][two queries, key, value][4 rows], so query heads 0 to 3 begin at rows 0, 4, 16, 20.
TEST(Weights, InternLm2IsTakenOutOfItsGroups) {
  const auto opened = open_folder("internlm2");
  std::vector<float> expected;
  const float base =
      tiny_hf_tensors("internlm2").at("model.layers.0.attention.wqkv.weight").values[0];
  for (int head_start : {0, 4, 16, 20, 8, 24, 12, 28})
    for (int i = 0; i < 4; ++i)
      expected.push_back(base + 8.0f * static_cast<float>(head_start + i));
  EXPECT_EQ(first_column(opened.layer().qkv), expected);
}

TEST(Weights, InternLm2BiasesAreTakenOutOfTheirGroups) {
  const TemporaryFolder folder;
  Tensors tensors = tiny_hf_tensors("internlm2");
  tensors["model.layers.0.attention.wqkv.bias"] = counting({32});
  tensors["model.layers.0.attention.wo.bias"] = counting({8});
  std::string config = tiny_hf_config("internlm2");
  config.insert(1, R"("bias":true,)");
  write_folder(folder, config, tensors);
  const auto model = ModelFile::open(folder.path());
  EXPECT_THAT(values_of(model->layers()[0].qkv_bias),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23,  // queries
                          8, 9, 10, 11, 24, 25, 26, 27,                            // keys
                          12, 13, 14, 15, 28, 29, 30, 31));                        // values
}

TEST(Weights, EveryProjectionMayHaveABias) {
  const std::string at = "model.layers.0.";
  Tensors biases = {{at + "self_attn.q_proj.bias", counting({16})},
                    {at + "self_attn.k_proj.bias", counting({8})},
                    {at + "self_attn.v_proj.bias", counting({8})},
                    {at + "self_attn.o_proj.bias", counting({8}, 100)},
                    {at + "mlp.gate_proj.bias", counting({12}, 200)},
                    {at + "mlp.up_proj.bias", counting({12}, 300)},
                    {at + "mlp.down_proj.bias", counting({8}, 400)}};
  const TemporaryFolder folder;
  Tensors tensors = tiny_hf_tensors("llama");
  tensors.insert(biases.begin(), biases.end());
  std::string config = tiny_hf_config("llama");
  config.insert(1, R"("attention_bias":true,"mlp_bias":true,)");
  write_folder(folder, config, tensors);
  const auto as_folder = ModelFile::open(folder.path());
  const auto as_gguf = open_gguf("qwen2", {{"blk.0.attn_output.bias", counting({8}, 100)},
                                           {"blk.0.ffn_gate.bias", counting({12}, 200)},
                                           {"blk.0.ffn_up.bias", counting({12}, 300)},
                                           {"blk.0.ffn_down.bias", counting({8}, 400)}});
  for (const auto& layer : {as_folder->layers()[0], as_gguf.layer()}) {
    EXPECT_EQ(values_of(layer.output_bias), counting({8}, 100).values);
    EXPECT_EQ(values_of(layer.gate_up_bias),
              joined({{"gate", counting({12}, 200)}, {"up", counting({12}, 300)}}, {"gate", "up"}));
    EXPECT_EQ(values_of(layer.down_bias), counting({8}, 400).values);
  }
  tensors.erase(at + "mlp.down_proj.bias");
  const TemporaryFolder lacking;
  write_folder(lacking, config, tensors);
  EXPECT_THAT(error_of([&] { ModelFile::open(lacking.path()); }), HasSubstr("mlp.down_proj.bias"));
}

// Rows of a head are stored as 0, 2, 1, 3 of the rotate-half order.
TEST(Weights, GgufOfTheLlamaKindIsPutInRotateHalfOrder) {
  for (const char* architecture : {"llama", "internlm2"}) {
    const auto opened = open_gguf(architecture, {{"blk.0.attn_q.bias", counting({16})},
                                                 {"blk.0.attn_k.bias", counting({8}, 100)},
                                                 {"blk.0.attn_v.bias", counting({8}, 200)}});
    EXPECT_THAT(values_of(opened.layer().qkv_bias),
                ElementsAre(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15,  //
                            100, 102, 101, 103, 104, 106, 105, 107,                //
                            200, 201, 202, 203, 204, 205, 206, 207));
    const auto column = first_column(opened.layer().qkv);
    const float q = tiny_gguf_tensors(architecture).at("blk.0.attn_q.weight").values[0];
    EXPECT_EQ(column[1], q + 16.0f);
    EXPECT_EQ(column[2], q + 8.0f);
  }
  const auto opened = open_gguf("qwen2");
  EXPECT_EQ(values_of(opened.layer().qkv_bias)[1], values_of(opened.layer().qkv_bias)[0] + 1.0f);
}

TEST(Weights, GemmaHasFourNorms) {
  const auto folder = open_folder("gemma2");
  const Tensors stored = tiny_hf_tensors("gemma2");
  const std::string at = "model.layers.0.";
  EXPECT_EQ(values_of(folder.layer().attention_norm),
            stored.at(at + "input_layernorm.weight").values);
  EXPECT_EQ(values_of(folder.layer().post_attention_norm),
            stored.at(at + "post_attention_layernorm.weight").values);
  EXPECT_EQ(values_of(folder.layer().mlp_norm),
            stored.at(at + "pre_feedforward_layernorm.weight").values);
  EXPECT_EQ(values_of(folder.layer().post_mlp_norm),
            stored.at(at + "post_feedforward_layernorm.weight").values);
  const auto llama = open_folder("llama");
  EXPECT_FALSE(llama.layer().post_attention_norm);
  EXPECT_EQ(values_of(llama.layer().mlp_norm),
            tiny_hf_tensors("llama").at(at + "post_attention_layernorm.weight").values);
}

TEST(Weights, TheHeadIsTheEmbeddingWhereThereIsNoOther) {
  EXPECT_FALSE(open_folder("llama").model->config().tied_embeddings);
  const auto gemma = open_folder("gemma2");
  EXPECT_TRUE(gemma.model->config().tied_embeddings);
  EXPECT_EQ(gemma.model->head().parts[0].tensor, gemma.model->embedding().parts[0].tensor);
  EXPECT_TRUE(open_gguf("llama").model->config().tied_embeddings);
  EXPECT_FALSE(
      open_gguf("llama", {{"output.weight", counting({10, 8})}}).model->config().tied_embeddings);

  Tensors headless = tiny_hf_tensors("llama");
  headless.erase("lm_head.weight");
  EXPECT_EQ(folder_refusal("llama", headless), "");
  // A file that says that it has a head of its own must have it.
  const TemporaryFolder folder;
  std::string config = tiny_hf_config("llama");
  config.insert(1, R"("tie_word_embeddings":false,)");
  write_folder(folder, config, headless);
  EXPECT_THAT(error_of([&] { ModelFile::open(folder.path()); }),
              HasSubstr("the tensor 'lm_head.weight' is missing"));
}

TEST(Weights, TheVisionModelsPrefixesAreFound) {
  for (const std::string prefix : {"language_model.", "model.language_model."}) {
    Tensors renamed;
    for (const auto& [name, tensor] : tiny_hf_tensors("gemma3_text"))
      renamed[prefix + (prefix.starts_with("model.") ? name.substr(6) : name)] = tensor;
    EXPECT_EQ(folder_refusal("gemma3_text", renamed), "") << prefix;
  }
}

TEST(Weights, EveryTensorMustBeThereInItsShape) {
  for (const char* type : {"qwen2", "qwen3", "internlm2", "phi3", "gemma3_text"}) {
    for (const auto& [name, tensor] : tiny_hf_tensors(type)) {
      Tensors damaged = tiny_hf_tensors(type);
      damaged.erase(name);
      const bool head = name == "lm_head.weight" || name == "output.weight";
      const std::string missing = head ? "" : "the tensor '" + name + "' is missing";
      EXPECT_THAT(folder_refusal(type, damaged), testing::EndsWith(missing));
      EXPECT_EQ(folder_refusal(type, damaged).empty(), head);
      damaged[name] = counting({3, 5});
      EXPECT_THAT(
          folder_refusal(type, damaged),
          HasSubstr("tensor '" + name + "': shape [3, 5], expected " + list_str(tensor.shape)));
    }
  }
  for (const char* architecture : {"qwen2", "qwen3", "phi3", "gemma3"}) {
    for (const auto& [name, tensor] : tiny_gguf_tensors(architecture)) {
      if (name == "token_embd.weight") continue;  // its rows are the vocabulary
      Tensors damaged = tiny_gguf_tensors(architecture);
      damaged[name] = counting({3, 5});
      const TemporaryFolder folder;
      const auto path = folder.write("a.gguf", gguf_of(tiny_gguf_keys(architecture), damaged));
      EXPECT_THAT(
          error_of([&] { ModelFile::open(path); }),
          HasSubstr("tensor '" + name + "': shape [3, 5], expected " + list_str(tensor.shape)));
    }
  }
}

TEST(Weights, ATensorOfAForeignTypeIsNamed) {
  GgufBytes file = tiny_gguf_keys("llama");
  for (const auto& [name, tensor] : tiny_gguf_tensors("llama"))
    if (name != "blk.0.attn_v.weight") file.floats(name, tensor.shape, tensor.values);
  file.tensor("blk.0.attn_v.weight", {1, 256}, 40, std::string(36 * 4, 'x'));
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { ModelFile::open(folder.write("a.gguf", file.build())); }),
              HasSubstr("tensor 'blk.0.attn_v.weight' has the type NVFP4, which is not supported"));
}

}  // namespace
}  // namespace kvatlas::model
