// SPDX-License-Identifier: Apache-2.0
// A device that fails, at places all through a run: the run ends in one sentence, and the samples
// that it has finished are kept. With KVATLAS_EVERY_FAULT set it fails at each place where it can.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/property/profile_fixture.hpp"

namespace kvatlas::profile {
namespace {

using namespace testing_support;
using testing::HasSubstr;

/// What is said of each kind of fault.
const std::map<std::string, std::string> kSaid = {
    {"memory", "the GPU's memory ran out (device scratch memory: out of memory)"},
    {"launch", "no kernel image is available"},
    {"lost", "the GPU failed"}};

class DeviceFaults : public testing::TestWithParam<std::string> {
 protected:
  DeviceFaults() : prompts_(command_.prompts(2, 20, 9)) {}

  Finished profile(const std::string& output, const std::string& fault = "",
                   const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"/usr/bin/env", "KVATLAS_CUDA_FAULT=" + fault,
                                      kvatlas_program()};
    if (fault.empty()) words.erase(words.begin() + 1);
    const auto rest = command_.words("llama3_gqa_f32", prompts_, output, more);
    words.insert(words.end(), rest.begin(), rest.end());
    return run_program(words);
  }

  ProfileCommand command_;
  std::string prompts_;
};

TEST_P(DeviceFaults, EndInOneSentenceAndKeepWhatIsFinished) {
  ASSERT_EQ(profile("whole.h5").status, 0);
  const std::string whole = command_.bytes("whole.h5");
  const bool every = std::getenv("KVATLAS_EVERY_FAULT") != nullptr;
  int cases = 0;
  bool kept = false;
  for (int at = 1;; at += every ? 1 : 1 + at / 2, ++cases) {
    const std::string fault = GetParam() + ":" + std::to_string(at);
    SCOPED_TRACE(fault);
    const Finished failed = profile("p.h5", fault, {"--force"});
    if (failed.status == 0) break;  // there are fewer calls
    ASSERT_EQ(failed.status, 1) << failed.err;
    EXPECT_EQ(failed.out, "");
    const auto last = failed.err.rfind("kvatlas: ");
    ASSERT_NE(last, std::string::npos) << failed.err;
    const std::string sentence = failed.err.substr(last);
    EXPECT_THAT(sentence, HasSubstr(kSaid.at(GetParam())));
    EXPECT_THAT(sentence, HasSubstr("--device cpu"));
    EXPECT_EQ(std::count(sentence.begin(), sentence.end(), '\n'), 1) << sentence;

    const Finished resumed = profile("p.h5", "", {"--resume"});
    ASSERT_EQ(resumed.status, 0) << resumed.err;
    EXPECT_TRUE(command_.bytes("p.h5") == whole);
    const bool one_is_there = resumed.err.find("1 of 2 samples are there") != std::string::npos;
    EXPECT_EQ(one_is_there, sentence.find("; 1 of 2 samples are done") != std::string::npos);
    kept = kept || one_is_there;
  }
  EXPECT_GT(cases, 8);
  EXPECT_TRUE(kept);
}

INSTANTIATE_TEST_SUITE_P(Emulated, DeviceFaults, testing::Values("memory", "launch", "lost"),
                         [](const testing::TestParamInfo<std::string>& fault) {
                           return fault.param;
                         });

}  // namespace
}  // namespace kvatlas::profile
