// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/model_file.hpp"

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/golden.hpp"

namespace kvatlas::model {
namespace {

using testing_support::golden_path;

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

}  // namespace
}  // namespace kvatlas::model
