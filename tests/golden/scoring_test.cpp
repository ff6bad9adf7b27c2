// SPDX-License-Identifier: Apache-2.0
// `profile`, `calibrate` and `evaluate` score one file of prompts alike.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "calibrate/policy/policy.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/run_program.hpp"

namespace kvatlas {
namespace {

using namespace testing_support;
using nlohmann::json;
using testing::HasSubstr;

/// Questions about kinds of answers, as in TREC, with their two classes.
std::string questions() {
  const std::pair<const char*, const char*> asked[] = {
      {"What is the capital of France", "Location"}, {"Who wrote Hamlet", "Human"},
      {"Where is Mount Everest", "Location"},        {"Who painted the Mona Lisa", "Human"},
      {"What city hosts the Louvre", "Location"},    {"Who invented the telephone", "Human"}};
  const std::string examples =
      "Question: What country is Cairo in?\nType: Location\nQuestion: Who discovered penicillin?\n"
      "Type: Human\nQuestion: Where is Lake Geneva?\nType: Location\n";
  std::string lines;
  for (const auto& [question, kind] : asked)
    lines += json{{"dataset", "trec"},
                  {"context", examples},
                  {"input", std::string("Question: ") + question + "?\nType:"},
                  {"answers", {kind}},
                  {"all_classes", {"Location", "Human"}}}
                 .dump() +
             "\n";
  return lines;
}

class Scoring : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  Finished calibrated(const std::string& profile, const std::string& document) const {
    return run_kvatlas({"calibrate", "dynamickv", "--model", demo_model(), "-p", profile,
                        "--window", "8", "--budget", "24", "--budgets", "24", "--new", "8",
                        "--force", "-o", path(document)});
  }
  double full_score(const std::string& document) const {
    const auto read = calibrate::read_document(path(document));
    return read.sections.at("dynamickv").at("measured").at("full").at("mean");
  }
  TemporaryFolder folder_;
};

TEST_F(Scoring, CalibrateScoresClassesAsEvaluateDoes) {
  const std::string prompts = folder_.write("trec.jsonl", questions()).string();
  const Finished profiled = run_kvatlas({"profile", "--model", demo_model(), "--prompts", prompts,
                                         "--capture", "scores,kept", "--budgets", "24", "--windows",
                                         "8", "--lags", "16", "-o", path("p.h5")});
  ASSERT_EQ(profiled.status, 0) << profiled.err;
  const Finished done = calibrated(path("p.h5"), "policy.json");
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, testing::Not(HasSubstr("schema")));

  const Finished evaluated = run_kvatlas({"evaluate", "--model", demo_model(), "--prompts", prompts,
                                          "--new", "8", "--time-steps", "0", "--json"});
  ASSERT_EQ(evaluated.status, 0) << evaluated.err;
  const double score =
      json::parse(evaluated.out).at("policies").at(0).at("score").at("mean").get<double>();
  EXPECT_GT(score, 0.2);
  EXPECT_DOUBLE_EQ(full_score("policy.json"), score);
}

TEST_F(Scoring, GeneratedPromptsAreOfAsManyTextsAsDepths) {
  const auto planned = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"profile",    "--model",   demo_model(), "--task",
                                      "needle",     "--lengths", "300",        "-o",
                                      path("p.h5"), "--dry-run"};
    words.insert(words.end(), more.begin(), more.end());
    return run_kvatlas(words).err;
  };
  EXPECT_THAT(planned({}), HasSubstr("25 samples of 5 texts of "));
  EXPECT_THAT(planned({"--depths", "0.2,0.8"}), HasSubstr("4 samples of 2 texts of "));
  EXPECT_THAT(planned({"--depths", "0.5", "--seeds", "3"}), HasSubstr("3 samples of "));
}

}  // namespace
}  // namespace kvatlas
