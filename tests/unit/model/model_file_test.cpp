// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/model_file.hpp"

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/golden.hpp"
#include "tests/support/tiny_model.hpp"

namespace kvatlas::model {
namespace {

using testing::HasSubstr;
using namespace testing_support;

std::vector<float> values_of(const Weight& weight) {
  std::vector<float> values(static_cast<std::size_t>(weight.rows() * weight.columns()));
  read_rows(weight, 0, weight.rows(), values.data());
  return values;
}

TEST(ModelFile, OpensEveryTinyCheckpoint) {
  std::set<std::string> opened;
  for (const auto& entry : std::filesystem::directory_iterator(golden_path("tiny"))) {
    const std::string name = entry.path().filename().string();
    if (name == "expected.h5") continue;
    SCOPED_TRACE(name);
    const auto model = ModelFile::open(entry.path());
    const Config& config = model->config();
    EXPECT_EQ(config.n_layers, 4);
    EXPECT_EQ(config.hidden_size, 64);
    EXPECT_EQ(model->layers().size(), 4u);
    EXPECT_EQ(model->fingerprint().size(), 16u);
    const std::int64_t queries = config.n_heads * config.head_dim;
    const std::int64_t keys = config.n_kv_heads * config.head_dim;
    for (const LayerWeights& layer : model->layers()) {
      EXPECT_EQ(layer.qkv.rows(), queries + 2 * keys);
      EXPECT_EQ(layer.qkv.columns(), 64);
      EXPECT_EQ(layer.gate_up.rows(), 320);
      EXPECT_EQ(layer.down.columns(), 160);
      EXPECT_EQ(layer.output.columns(), queries);
      EXPECT_EQ(layer.attention_norm.rows(), 1);
    }
    opened.insert(name);
  }
  EXPECT_EQ(opened.size(), 22u);
}

// The same model as a folder and as a GGUF file must give the same matrices: this checks the
// interleaved rows of q and k.
TEST(ModelFile, GgufOfALlamaHasTheRowsOfItsFolder) {
  const auto folder = ModelFile::open(golden_path("tiny/llama3_gqa_f32"));
  const auto gguf = ModelFile::open(golden_path("tiny/llama3_gqa_F16.gguf"));
  for (std::size_t i = 0; i < 4; ++i) {
    const auto expected = values_of(folder->layers()[i].qkv);
    const auto found = values_of(gguf->layers()[i].qkv);
    EXPECT_THAT(found, testing::Pointwise(testing::FloatNear(1e-3f), expected)) << "layer " << i;
  }
}

TEST(ModelFile, SaysWhatItsFormatIs) {
  EXPECT_EQ(ModelFile::open(golden_path("tiny/yi_bf16_sharded"))->format(),
            "safetensors, 3 shards");
  EXPECT_EQ(ModelFile::open(golden_path("tiny/llama3_gqa_f32"))->format(), "safetensors");
  EXPECT_EQ(ModelFile::open(golden_path("tiny/qwen2_tied_F32.gguf"))->format(), "GGUF v3");
}

TEST(ModelFile, ReadsTheConfigurationsOfTheTinyCheckpoints) {
  const auto config = [](const std::string& name) {
    return ModelFile::open(golden_path("tiny/" + name))->config();
  };
  EXPECT_EQ(config("llama31_rope_factors_F32.gguf").rope.divisors.size(), 8u);
  EXPECT_EQ(config("llama31_scaled_rope_bf16").rope.kind, RopeKind::llama3);
  EXPECT_EQ(config("phi3_longrope_f32").rope.kind, RopeKind::longrope);
  EXPECT_EQ(config("phi3_fused_f32").rope.kind, RopeKind::plain);
  EXPECT_EQ(config("qwen3_qknorm_f32").head_dim, 32);
  EXPECT_EQ(config("qwen2_tied_F32.gguf").tied_embeddings, true);
  EXPECT_THAT(config("gemma3_text_f32").window, testing::ElementsAre(32, 32, 0, 32));
  EXPECT_THAT(config("gemma2_f32").eos_tokens, testing::ElementsAre(2));
  EXPECT_EQ(config("mistral_bf16").name, "mistral_bf16");
}

TEST(ModelFile, SaysWhyAPathIsNoModel) {
  const TemporaryFolder folder;
  const auto refusal = [](const std::filesystem::path& path) {
    return error_of([&] { ModelFile::open(path); });
  };
  EXPECT_THAT(refusal(""), HasSubstr("no model given"));
  EXPECT_THAT(refusal("org-x/some-model_1.5B"), HasSubstr("nothing is downloaded"));
  EXPECT_THAT(refusal("./absent/model"), HasSubstr("there is no file or folder"));
  EXPECT_THAT(refusal("absent/model.gguf"), HasSubstr("there is no file or folder"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("holds no config.json"));
  EXPECT_THAT(refusal(folder.write("text.gguf", "not a model")), HasSubstr("not a GGUF file"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("give the file itself"));
  const std::string config = tiny_hf_config("llama");
  folder.write("a/config.json", config);
  EXPECT_THAT(refusal(folder.path() / "a"), HasSubstr("holds no model.safetensors"));
  EXPECT_THAT(refusal(folder.path() / "a/config.json"), HasSubstr("give the folder that holds it"));
  folder.write("a/pytorch_model.bin", "x");
  EXPECT_THAT(refusal(folder.path() / "a"), HasSubstr("convert them to safetensors"));
  folder.write("a/my_model.safetensors", "x");
  EXPECT_THAT(refusal(folder.path() / "a"), HasSubstr("holds 'my_model.safetensors' but neither"));
  folder.write("e/config.json", config);
  folder.write("e/model.gguf", "x");
  EXPECT_THAT(refusal(folder.path() / "e"), HasSubstr("give the file itself"));
  std::filesystem::create_directories(folder.path() / "b/config.json");
  EXPECT_THAT(refusal(folder.path() / "b"), HasSubstr("is a folder, expected a file"));
  folder.write("c/config.json", std::string(5 << 20, ' '));
  EXPECT_THAT(refusal(folder.path() / "c"), HasSubstr("expected at most"));
  folder.write("d/config.json", config);
  std::filesystem::create_directories(folder.path() / "d/model.safetensors");
  EXPECT_THAT(refusal(folder.path() / "d"), HasSubstr("is a folder, expected a file"));
}

TEST(ModelFile, TheFingerprintFollowsNumbersAndSettingsOnly) {
  const auto fingerprint = [](const std::string& config, const Tensors& tensors) {
    const TemporaryFolder folder;
    folder.write("config.json", config);
    folder.write("model.safetensors", safetensors_of(tensors));
    return ModelFile::open(folder.path())->fingerprint();
  };
  const std::string config = tiny_hf_config("llama");
  const Tensors tensors = tiny_hf_tensors("llama");
  const std::string first = fingerprint(config, tensors);
  EXPECT_EQ(fingerprint(config, tensors), first);
  std::string other = config;
  EXPECT_EQ(fingerprint(other.insert(1, R"("_name_or_path":"x",)"), tensors), first);
  other = config;
  EXPECT_NE(fingerprint(other.insert(1, R"("rope_theta":20000,)"), tensors), first);
  Tensors changed = tensors;
  changed["model.norm.weight"].values[3] += 1.0f;
  EXPECT_NE(fingerprint(config, changed), first);
}

TEST(ModelFile, NoticesAFileThatShrinks) {
  const TemporaryFolder folder;
  folder.write("config.json", tiny_hf_config("llama"));
  const auto path = folder.write("model.safetensors", safetensors_of(tiny_hf_tensors("llama")));
  const auto model = ModelFile::open(folder.path());
  model->require_intact();
  const StoredTensor& tensor = *model->embedding().parts[0].tensor;
  model->will_need(tensor);
  model->release(tensor);
  std::filesystem::resize_file(path, 100);
  std::vector<float> values(80);
  read_rows(model->embedding(), 0, 10, values.data());
  EXPECT_THAT(error_of([&] { model->require_intact(); }), HasSubstr("changed its size"));
}

}  // namespace
}  // namespace kvatlas::model
