// SPDX-License-Identifier: Apache-2.0
// `kvatlas certify` as a user runs it.
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/run_program.hpp"
#include "tests/unit/certify/files.hpp"

namespace kvatlas {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using testing_support::ResultFolder;
using testing_support::run_kvatlas;
using testing_support::written_by_tool;

TEST(CertifyCommand, JudgesFilesOfLmEval) {
  const std::vector<std::string> command = {"certify",   written_by_tool("lm-eval/kv4"),
                                            "--full",    written_by_tool("lm-eval/full"),
                                            "--filter",  "strict",
                                            "--max-loss"};
  const auto run = [&](const std::string& limit, std::vector<std::string> more = {}) {
    auto words = command;
    words.push_back(limit);
    words.insert(words.end(), more.begin(), more.end());
    return run_kvatlas(words);
  };
  const auto passed = run("30");
  EXPECT_EQ(passed.status, 0) << passed.err;
  EXPECT_THAT(passed.out, AllOf(StartsWith("passed: "), HasSubstr("on 60 prompts")));
  EXPECT_THAT(passed.err, IsEmpty());
  const auto open = run("5");
  EXPECT_EQ(open.status, 4);
  EXPECT_THAT(open.out, StartsWith("undecided: "));
  const ResultFolder folder;
  const auto as_json = run("30", {"--json", "--junit", folder.path() + "/v.xml"});
  const json out = json::parse(as_json.out);
  EXPECT_EQ(out.at("verdict"), "passed");
  EXPECT_EQ(out.at("runs").at(0).at("samples"), 60);
  std::stringstream junit;
  junit << std::ifstream(folder.path() + "/v.xml").rdbuf();
  EXPECT_THAT(junit.str(), HasSubstr("<testsuite name=\"kvatlas certify\""));
}

TEST(CertifyCommand, JudgesSeveralRunsTogether) {
  const auto finished =
      run_kvatlas({"certify", written_by_tool("kvpress/kv4"), written_by_tool("kvpress/full"),
                   "--full", written_by_tool("kvpress/full"), "--max-loss", "40"});
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.out,
              AllOf(HasSubstr("niah_multivalue"), HasSubstr("qa_1"), HasSubstr("passed: ")));
  EXPECT_THAT(finished.err, HasSubstr("--group"));
}

TEST(CertifyCommand, SaysWhatIsWrong) {
  const ResultFolder folder;
  const auto other = run_kvatlas(
      {"certify", written_by_tool("inspect-ai/kv4"), "--full", written_by_tool("kvpress/full")});
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("the same tool must have judged both"));
  const auto missing =
      run_kvatlas({"certify", folder.path() + "/none.jsonl", "--full",
                   written_by_tool("kvpress/full"), "--junit", folder.path() + "/v.xml"});
  EXPECT_EQ(missing.status, 3);
  std::stringstream junit;
  junit << std::ifstream(folder.path() + "/v.xml").rdbuf();
  EXPECT_THAT(junit.str(), HasSubstr("type=\"not judged\""));
  EXPECT_EQ(run_kvatlas({"certify", "a", "--full", "b", "--range", "3,1"}).status, 2);
  EXPECT_EQ(run_kvatlas({"certify", "a", "--full", "b", "--range", "0,inf"}).status, 2);
}

}  // namespace
}  // namespace kvatlas
