// SPDX-License-Identifier: Apache-2.0
#include "analyzer/checkpoint/app_models.hpp"

#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/checkpoint/hub_cache.hpp"
#include "base/str.hpp"
#include "tests/support/tiny_model.hpp"

namespace kvatlas::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace testing_support;

const std::string kDigest(64, 'a');

std::string manifest(const std::string& digest,
                     const std::string& kind = "application/vnd.ollama.image.model") {
  return str(
      R"({"schemaVersion": 2, "layers": [{"mediaType": "application/vnd.ollama.image.license",
      "digest": "sha256:b"}, {"mediaType": ")",
      kind, R"(", "digest": ")", digest, "\"}]}");
}

class AppModels : public testing::Test {
 protected:
  AppModels() {
    for (const char* name : {"HOME", "HF_HUB_CACHE"}) {
      const char* value = std::getenv(name);
      before_.emplace_back(name, value ? value : "");
    }
    setenv("HOME", folder_.path().c_str(), 1);
    setenv("HF_HUB_CACHE", (folder_.path() / "hub").c_str(), 1);
    unsetenv("OLLAMA_MODELS");
  }
  ~AppModels() override {
    for (const auto& [name, value] : before_)
      value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
    unsetenv("OLLAMA_MODELS");
  }

  void pull(const std::string& place, const std::string& text) {
    folder_.write(".ollama/models/manifests/" + place, text);
  }
  std::string found(const std::string& name) const {
    return std::filesystem::relative(found_model(name), folder_.path()).string();
  }
  static std::string refusal(const std::string& name) {
    return error_of([&] { found_model(name); });
  }

  TemporaryFolder folder_;
  std::vector<std::pair<std::string, std::string>> before_;
};

TEST_F(AppModels, OllamasByName) {
  const std::string blob = ".ollama/models/blobs/sha256-" + kDigest;
  pull("registry.ollama.ai/library/llama3.2/1b", manifest("sha256:" + kDigest));
  pull("registry.ollama.ai/library/llama3.2/latest", manifest("sha256:" + kDigest));
  pull("registry.ollama.ai/me/own/latest", manifest("sha256:" + kDigest));
  pull("hf.co/org/name-GGUF/Q4_K_M", manifest("sha256:" + kDigest));
  for (const char* name : {"llama3.2:1b", "ollama:llama3.2:1b", "ollama:llama3.2", "ollama:me/own",
                           "hf.co/org/name-GGUF:Q4_K_M"})
    EXPECT_EQ(found(name), blob) << name;
  EXPECT_EQ(found_model("llama3.2:3b"), "llama3.2:3b");  // a file, for all that is known
  EXPECT_THAT(refusal("ollama:llama3.2:3b"),
              AllOf(HasSubstr("Ollama's folder"), HasSubstr("nothing is downloaded"),
                    HasSubstr("'ollama pull llama3.2:3b' would fetch it")));
  setenv("OLLAMA_MODELS", (folder_.path() / "elsewhere").c_str(), 1);
  EXPECT_THAT(refusal("ollama:llama3.2:1b"), HasSubstr("elsewhere"));
}

TEST_F(AppModels, HostileNamesAndManifestsLeadNowhere) {
  folder_.write("secret", manifest("sha256:" + kDigest));
  for (const char* name : {"ollama:../../../../secret", "ollama:a/b/c/d", "ollama:x:../secret",
                           "ollama:", "ollama:x:", "ollama:/etc/passwd", "ollama:..:x"})
    EXPECT_THAT(refusal(name), HasSubstr("nothing is downloaded")) << name;
  const auto bad = [&](const std::string& text) {
    pull("registry.ollama.ai/library/bad/x", text);
    return refusal("bad:x");
  };
  EXPECT_THAT(bad(manifest("sha256:../../../../secret")), HasSubstr("is no digest of SHA-256"));
  EXPECT_THAT(bad(manifest("sha256:" + std::string(63, 'a') + "/")), HasSubstr("no digest"));
  EXPECT_THAT(bad(manifest("sha256:" + kDigest, "application/vnd.ollama.image.tensor")),
              HasSubstr("names 0 files of weights"));
  EXPECT_THAT(bad("[]"), HasSubstr("names 0 files"));
  EXPECT_THAT(bad(R"({"layers": "sha256"})"), HasSubstr("names 0 files"));
  EXPECT_THAT(bad("{"), AllOf(HasSubstr("library/bad/x"), HasSubstr("JSON")));
  EXPECT_NE(bad(std::string(2 << 20, ' ')), "");
}

TEST_F(AppModels, LmStudiosByName) {
  folder_.write(".lmstudio/models/org/one/one.Q4_K_M.gguf", "GGUF");
  folder_.write(".lmstudio/models/org/one/mmproj-one.gguf", "GGUF");
  folder_.write(".lmstudio/models/org/mlx/config.json", "{}");
  const std::string file = ".lmstudio/models/org/one/one.Q4_K_M.gguf";
  for (const char* name : {"org/one", "lmstudio:org/one", "lmstudio:org/one/one.Q4_K_M.gguf"})
    EXPECT_EQ(found(name), file) << name;
  EXPECT_EQ(found("org/mlx"), ".lmstudio/models/org/mlx");
  folder_.write("hub/models--org--one/refs/main", "aaa");
  folder_.write("hub/models--org--one/snapshots/aaa/config.json", "{}");
  EXPECT_EQ(found("org/one"), "hub/models--org--one/snapshots/aaa");  // which comes first
  folder_.write(".lmstudio/models/org/one/one.Q8_0.gguf", "GGUF");
  EXPECT_THAT(refusal("lmstudio:org/one"),
              AllOf(HasSubstr("has 2 models"), HasSubstr("lmstudio:org/one/one.Q4_K_M.gguf")));
  for (const char* name : {"lmstudio:org/two", "lmstudio:../../x", "lmstudio:"})
    EXPECT_THAT(refusal(name), HasSubstr("LM Studio's folder")) << name;
  EXPECT_THAT(refusal("org/two"), HasSubstr("or LM Studio's folder"));
}

}  // namespace
}  // namespace kvatlas::model
