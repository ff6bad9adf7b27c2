// SPDX-License-Identifier: Apache-2.0
#include "analyzer/checkpoint/hub_cache.hpp"

#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/tiny_model.hpp"

namespace kvatlas::model {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using namespace testing_support;

class HubCache : public testing::Test {
 protected:
  HubCache() {
    setenv("HF_HUB_CACHE", folder_.path().c_str(), 1);
    folder_.write(kModel + "/refs/main", "aaa111\n");
    folder_.write(kModel + "/refs/pr/1", "bbb222");
    folder_.write(kModel + "/snapshots/aaa111/config.json", "{}");
    folder_.write(kModel + "/snapshots/bbb222/config.json", "{}");
  }
  ~HubCache() override { unsetenv("HF_HUB_CACHE"); }

  std::string found(const std::string& name) const {
    return std::filesystem::relative(found_model(name), folder_.path()).string();
  }
  static std::string refusal(const std::string& name) {
    return error_of([&] { found_model(name); });
  }

  TemporaryFolder folder_;
  const std::string kModel = "models--org--some-model";
};

TEST_F(HubCache, FindsModelsByNameAndRevision) {
  EXPECT_EQ(found("org/some-model"), kModel + "/snapshots/aaa111");
  EXPECT_EQ(found("org/some-model@main"), kModel + "/snapshots/aaa111");
  EXPECT_EQ(found("org/some-model@pr/1"), kModel + "/snapshots/bbb222");
  EXPECT_EQ(found("org/some-model@bbb222"), kModel + "/snapshots/bbb222");
  EXPECT_EQ(name_of_folder(found_model("org/some-model")), "org/some-model");
  EXPECT_EQ(name_of_folder(folder_.path() / "mine"), "mine");
}

TEST_F(HubCache, TakesTheOneGgufFileOfASnapshot) {
  folder_.write("models--org--m-GGUF/refs/main", "ccc");
  folder_.write("models--org--m-GGUF/snapshots/ccc/m.Q4_1.gguf", "GGUF");
  EXPECT_EQ(found("org/m-GGUF"), "models--org--m-GGUF/snapshots/ccc/m.Q4_1.gguf");
  folder_.write("models--org--m-GGUF/snapshots/ccc/m.Q8_0.gguf", "GGUF");
  EXPECT_EQ(found("org/m-GGUF"), "models--org--m-GGUF/snapshots/ccc");  // which names one of them
}

TEST_F(HubCache, SaysWhatWouldDownloadAModel) {
  EXPECT_THAT(refusal("org/other"),
              AllOf(HasSubstr(folder_.path().string()), HasSubstr("nothing is downloaded"),
                    HasSubstr("'hf download org/other' would fetch it")));
  EXPECT_THAT(refusal("org/some-model@v9"),
              HasSubstr("'hf download org/some-model --revision v9' would fetch it"));
}

TEST_F(HubCache, LeavesPathsAsTheyAreAndTheCacheAlone) {
  for (const char* path : {"", "name", "./org/some-model", "org/some-model/more", "a/b.gguf",
                           "../org/some-model", "org/..", "org/some-model@../../x", "org/m@"})
    EXPECT_EQ(found_model(path), path);
  folder_.write("models--org--bad/refs/main", "../../../etc");  // no commit
  EXPECT_THAT(refusal("org/bad"), HasSubstr("nothing is downloaded"));
  EXPECT_EQ(found_model(folder_.path() / kModel), folder_.path() / kModel);
}

}  // namespace
}  // namespace kvatlas::model
