// SPDX-License-Identifier: Apache-2.0
#include "analyzer/model/model_file.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/tiny_model.hpp"

namespace kvatlas::model {
namespace {

using testing::HasSubstr;
using namespace testing_support;

TEST(ModelFile, SaysWhyAPathIsNoModel) {
  const TemporaryFolder folder;
  const auto refusal = [](const std::filesystem::path& path) {
    return error_of([&] { ModelFile::open(path); });
  };
  EXPECT_THAT(refusal(""), HasSubstr("no model given"));
  EXPECT_THAT(refusal("org-x/some-model_1.5B"), HasSubstr("nothing is downloaded"));
  EXPECT_THAT(refusal("./absent/model"), HasSubstr("there is no file or folder"));
  EXPECT_THAT(refusal("absent/model.gguf"), HasSubstr("there is no file or folder"));
  EXPECT_THAT(refusal("absent/config.json"), HasSubstr("there is no file or folder"));
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
