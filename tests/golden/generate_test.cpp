// SPDX-License-Identifier: Apache-2.0
// `kvatlas generate` on the real model, against what transformers generates greedily.
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/golden.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/run_program.hpp"

namespace kvatlas {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using namespace testing_support;

/// The reference's entries of the whole cache, a prompt each.
std::vector<json> full_cache_entries() {
  std::vector<json> found;
  for (const auto& entry : json::parse(std::ifstream(golden_path("policies_smollm2.json"))))
    if (entry.at("policy").at("name") == "full") found.push_back(entry);
  return found;
}

/// The prompts whose ids the reference holds.
const std::vector<json>& passkeys() {
  static const std::vector<json> entries = full_cache_entries();
  return entries;
}

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

class GenerateCommand : public testing::Test {
 protected:
  std::string write_prompts(std::size_t count) const {
    std::string text;
    for (std::size_t i = 0; i < count; ++i)
      text += json{{"id", "p" + std::to_string(i)}, {"tokens", tokens_of(i)}}.dump() + "\n";
    return folder_.write("prompts.jsonl", text).string();
  }
  std::string write_line(const std::string& line) const {
    return folder_.write("prompts.jsonl", line).string();
  }
  static json tokens_of(std::size_t prompt) {
    const auto& entry = passkeys().at(prompt);
    return entry.at("tokens");
  }
  std::vector<json> generate(std::size_t prompts, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{
        "generate", "--model", demo_model().string(), "--prompts", write_prompts(prompts),
        "--new",    "12",      "--ignore-eos",        "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished finished = run_kvatlas(arguments);
    EXPECT_EQ(finished.status, 0) << finished.err;
    return lines_of(finished.out);
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(GenerateCommand, GivesTheIdsOfTransformers) {
  ASSERT_EQ(passkeys().size(), 5u);
  const auto lines = generate(5, {});
  ASSERT_EQ(lines.size(), 5u);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("id"), "p" + std::to_string(i));
    EXPECT_EQ(lines[i].at("tokens"), passkeys()[i].at("generated"));
    EXPECT_EQ(lines[i].at("top").size(), 20u);
    EXPECT_EQ(lines[i].at("top")[0][0], lines[i].at("tokens")[0]);
    // The answer's text holds the key where the reference found it there.
    EXPECT_EQ(lines[i].at("text").get<std::string>().find(
                  passkeys()[i].at("key").get<std::string>()) != std::string::npos,
              passkeys()[i].at("correct").get<bool>());
  }
}

TEST_F(GenerateCommand, StreamsWeightsUnderASmallBudgetToTheSameAnswer) {
  const auto lines = generate(2, {"--memory-budget", "640MiB"});
  const auto resident = generate(2, {});
  ASSERT_EQ(lines.size(), 2u);
  ASSERT_EQ(resident.size(), 2u);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("tokens"), resident[i].at("tokens"));
    EXPECT_EQ(lines[i].at("text"), resident[i].at("text"));
    const auto &got = lines[i].at("top"), &expected = resident[i].at("top");
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t rank = 0; rank < got.size(); ++rank) {
      EXPECT_EQ(got[rank][0], expected[rank][0]);
      EXPECT_NEAR(got[rank][1].get<double>(), expected[rank][1].get<double>(), 1e-4);
    }
  }
}

TEST_F(GenerateCommand, PrintsOneAnswerAsItComesAndSeveralUnderTheirNames) {
  const std::string one = R"({"id": "a", "text": "The capital of France is"})",
                    other = R"({"id": "b", "text": "One, two, three,"})";
  const auto said = [&](const std::string& prompts, const std::string& how) {
    const Finished finished =
        run_kvatlas({"generate", "--model", demo_model().string(), "--prompts", write_line(prompts),
                     "--new", "4", "--ignore-eos", how});
    EXPECT_EQ(finished.status, 0) << finished.err;
    return finished.out;
  };
  const auto lines = lines_of(said(one + "\n" + other, "--json"));
  ASSERT_EQ(lines.size(), 2u);
  const auto first = lines[0].at("text").get<std::string>();
  const auto second = lines[1].at("text").get<std::string>();
  EXPECT_THAT(first, HasSubstr("Paris"));
  EXPECT_EQ(said(one, "--chat=none"), first + "\n");
  EXPECT_EQ(said(one + "\n" + other, "--chat=none"),
            "--- a\n" + first + "\n--- b\n" + second + "\n");
}

TEST_F(GenerateCommand, EndsSoonWhenInterrupted) {
  std::string ids = "0";
  for (int i = 1; i < 8000; ++i) ids += "," + std::to_string(i % 40000);
  const Finished finished = run_kvatlas({"generate", "--model", demo_model().string(), "--prompts",
                                         write_line("{\"tokens\":[" + ids + "]}")},
                                        {.interrupt_at = "weights resident"});
  EXPECT_EQ(finished.status, 130);
  EXPECT_THAT(finished.out, testing::IsEmpty());
  EXPECT_THAT(finished.err, HasSubstr("interrupted"));
}

}  // namespace
}  // namespace kvatlas
