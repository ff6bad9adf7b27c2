// SPDX-License-Identifier: Apache-2.0
#include "viewer/models/search_form.hpp"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "calibrate/policy/policy_files.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/model_bytes.hpp"

namespace kvatlas::viewer {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing_support::error_of;

class SearchRequestTest : public testing::Test {
 protected:
  SearchForm request() const {
    SearchForm request;
    request.model = "m.gguf";
    request.saving = 0.5;
    request.context = 4096;
    request.output = folder_.path() / "p.json";
    return request;
  }
  testing_support::TemporaryFolder folder_;
};

TEST_F(SearchRequestTest, BecomesTheWordsOfTheCommand) {
  SearchForm wish = request();
  const std::string output = wish.output.string();
  EXPECT_THAT(search_words(wish),
              ElementsAre("calibrate", "auto", "--model", "m.gguf", "--kv-saving", "0.5",
                          "--context", "4096", "--batch", "1", "--max-loss", "1", "-o", output));
  wish.saving.reset();
  wish.memory = "24GiB";
  wish.profile = "-odd name.h5";
  wish.runtime = "vllm";
  EXPECT_THAT(search_words(wish),
              ElementsAre("calibrate", "auto", "--model", "m.gguf", "--profile", "-odd name.h5",
                          "--memory", "24GiB", "--context", "4096", "--batch", "1", "--max-loss",
                          "1", "--for", "vllm", "-o", output));
}

TEST_F(SearchRequestTest, SaysWhatIsMissing) {
  const auto refusal = [&](auto change) {
    SearchForm wish = request();
    change(wish);
    return error_of([&] { search_words(wish); });
  };
  EXPECT_THAT(refusal([](SearchForm& o) { o.model.clear(); }), HasSubstr("which model"));
  EXPECT_THAT(refusal([](SearchForm& o) { o.saving.reset(); }), HasSubstr("how much memory"));
  EXPECT_THAT(refusal([](SearchForm& o) { o.context = 0; }), HasSubstr("context"));
  EXPECT_THAT(refusal([](SearchForm& o) { o.output.clear(); }), HasSubstr("where to write"));
}

TEST_F(SearchRequestTest, GoesOnAndReplacesOnlyWhenAllowed) {
  SearchForm wish = request();
  std::ofstream(calibrate::trials_beside(wish.output)) << "{}\n";
  EXPECT_THAT(search_words(wish), Contains("--resume"));
  std::ofstream(wish.output) << "{}\n";
  EXPECT_THAT(search_words(wish), Contains("--resume"));  // it was to replace this one
  std::filesystem::remove(calibrate::trials_beside(wish.output));
  EXPECT_THAT(error_of([&] { search_words(wish); }), HasSubstr("is there already"));
  wish.replace = true;
  EXPECT_THAT(search_words(wish), Contains("--force"));
  EXPECT_THAT(search_words(wish), Not(Contains("--resume")));
}

}  // namespace
}  // namespace kvatlas::viewer
