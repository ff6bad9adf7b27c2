// SPDX-License-Identifier: Apache-2.0
// Model files as users have them: every tiny checkpoint opens, blocks decode to the expected bits.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/checkpoint/safetensors.hpp"
#include "analyzer/checkpoint/tensor.hpp"
#include "analyzer/model/model_file.hpp"
#include "analyzer/model/weights.hpp"
#include "base/mapped_file.hpp"
#include "tests/support/golden.hpp"

namespace kvatlas::model {
namespace {

using testing_support::golden_members;
using testing_support::golden_path;
using testing_support::read_golden;

TEST(Nvfp4, EqualsCompressedTensorsBitForBit) {
  const auto file = MappedFile::open(golden_path("nvfp4.safetensors"));
  const auto tensors = parse_safetensors(file.bytes());
  const auto find = [&](std::string_view name) -> const StoredTensor* {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const StoredTensor& one) { return one.name == name; });
    return found == tensors.end() ? nullptr : &*found;
  };
  const TensorFinder finder(find);
  for (const std::string name : {"packed", "any", "modelopt"}) {
    SCOPED_TRACE(name);
    const StoredTensor* decoded = find(name + ".decoded");
    ASSERT_TRUE(decoded != nullptr);
    const auto rows = decoded->shape.at(0), columns = decoded->shape.at(1);
    std::vector<float> expected(static_cast<std::size_t>(rows * columns)), got(expected.size());
    dequantize(decoded->type, decoded->bytes.data(), std::ssize(expected), expected.data());
    Weight weight;
    weight.parts = {finder.nvfp4(name, rows, columns)};
    read_rows(weight, 0, rows, got.data());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(expected[i]))
          << i << ": " << got[i] << ", expected " << expected[i];
  }
}

TEST(Dequantize, EqualsTheGoldenBlocksBitForBit) {
  const auto file = golden_path("tiny/expected.h5");
  std::map<std::string, TensorType> types;
  for (int i = 0; i <= static_cast<int>(TensorType::iq4_xs); ++i)
    types[tensor_type_name(static_cast<TensorType>(i))] = static_cast<TensorType>(i);
  const auto names = golden_members(file, "gguf_blocks");
  ASSERT_EQ(names.size(), 12u);
  for (const auto& name : names) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(types.contains(name));
    const BlockShape block = block_shape(types[name]);
    const auto stored = read_golden(file, "gguf_blocks/" + name + "/bytes");
    const auto expected = read_golden(file, "gguf_blocks/" + name + "/values").floats();
    ASSERT_EQ(stored.shape.back(), block.bytes);
    ASSERT_EQ(expected.size(), static_cast<std::size_t>(stored.shape.front() * block.values));
    // One byte off any alignment, as a mapped tensor may lie.
    std::vector<std::byte> bytes(1);
    for (double value : stored.values) bytes.push_back(static_cast<std::byte>(value));
    std::vector<float> values(expected.size());
    dequantize(types[name], bytes.data() + 1, static_cast<std::int64_t>(values.size()),
               values.data());
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(expected[i]));
  }
}

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

}  // namespace
}  // namespace kvatlas::model
