// SPDX-License-Identifier: Apache-2.0
// `kvatlas check` on the real model: passed, failed and undecided, told apart in every form.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "calibrate/policy/policy.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/text_of.hpp"

namespace kvatlas {
namespace {

using namespace testing_support;
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Gate : public testing::Test {
 protected:
  /// A document with one policy for the demo model.
  std::string document_of(const std::string& name, const std::string& policy,
                          const calibrate::Provenance& from = {}) {
    calibrate::Document document;
    document.provenance = from;
    document.model = {"SmolLM2", "llama", "", 30, 9, 3, 64, {}};
    const calibrate::Policy read = calibrate::parse_policy(policy);
    document.kv_bits = read.kv_bits;
    for (const auto& part : read.parts)
      document.sections[calibrate::section_name(part)] = calibrate::section_of(part);
    const auto path = folder_.path() / name;
    calibrate::write_document(document, path, true);
    return path.string();
  }
  Finished check(const std::string& document, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"check",   document,    "--model", demo_model(), "--task",
                                      "needle",  "--lengths", "256",     "--depths",   "0.5",
                                      "--seeds", "6",         "--json"};
    if (std::find(more.begin(), more.end(), "--junit") == more.end())
      words.insert(words.end(), {"--junit", junit()});
    words.insert(words.end(), more.begin(), more.end());
    return run_kvatlas(words);
  }
  std::string junit() const { return (folder_.path() / "verdict.xml").string(); }
  std::string junit_text() const { return text_of(junit()); }
  TemporaryFolder folder_;
};

TEST_F(Gate, PassesWhatIsSureToLoseLittle) {
  // It goes on by itself beyond the six seeds.
  const Finished done = check(document_of("kv4.json", "kv4"), {"--max-loss", "40"});
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("undecided: "));
  const json verdict = json::parse(done.out);
  EXPECT_EQ(verdict.at("verdict"), "passed");
  EXPECT_EQ(verdict.at("passed"), true);
  const json& policy = verdict.at("policies").at(0);
  EXPECT_GT(policy.at("texts"), 6);
  EXPECT_LE(policy.at("judged_loss_points").at("high"), 40);
  EXPECT_THAT(junit_text(), AllOf(HasSubstr("failures=\"0\" errors=\"0\" skipped=\"0\""),
                                  Not(HasSubstr("<error")), Not(HasSubstr("<failure"))));
}

TEST_F(Gate, FailsWhatIsSureToLoseMuch) {
  const Finished done =
      check(document_of("short.json", "streaming:initial=4,recent=16"), {"--max-loss", "20"});
  EXPECT_EQ(done.status, 4) << done.err;
  const json verdict = json::parse(done.out);
  EXPECT_EQ(verdict.at("verdict"), "failed");
  EXPECT_EQ(verdict.at("passed"), false);
  EXPECT_GT(verdict.at("policies").at(0).at("judged_loss_points").at("low"), 20);
  EXPECT_THAT(junit_text(), AllOf(HasSubstr("failures=\"1\" errors=\"0\""), HasSubstr("<failure")));
}

TEST_F(Gate, SaysWhatAnOpenVerdictNeeds) {
  const Finished done =
      check(document_of("kv4.json", "kv4"), {"--max-loss", "10", "--most-samples", "8"});
  EXPECT_EQ(done.status, 4) << done.err;
  const json verdict = json::parse(done.out);
  EXPECT_EQ(verdict.at("verdict"), "undecided");
  EXPECT_EQ(verdict.at("passed"), false);
  const json& policy = verdict.at("policies").at(0);
  EXPECT_LE(policy.at("samples"), 8);
  EXPECT_GT(policy.at("more_texts"), 0);
  EXPECT_EQ(policy.at("policy"), "full+kv4");
  EXPECT_EQ(policy.at("verdict"), "undecided");
  EXPECT_THAT(junit_text(), AllOf(HasSubstr("failures=\"0\" errors=\"1\""),
                                  HasSubstr("<error type=\"undecided\"")));
}

TEST_F(Gate, SaysWhatIsNotJudged) {
  // Prompts with answers that the model cannot know.
  const auto refused = [&](int count) {
    const auto prompts = folder_.path() / "wrong.jsonl";
    std::ofstream file(prompts);
    for (int i = 0; i < count; ++i)
      file << R"({"text": "Say a word: )" << i << R"(", "answers": ["xyzzy"]})" << '\n';
    file.close();
    const Finished done = run_kvatlas({"check", document_of("kv4.json", "kv4"), "--model",
                                       demo_model(), "--prompts", prompts, "--junit", junit()});
    EXPECT_EQ(done.status, 2) << done.err;
    EXPECT_THAT(junit_text(),
                AllOf(HasSubstr(" tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\""),
                      HasSubstr(" name=\"full+kv4\">\n      <error type=\"not judged\"")));
    return junit_text();
  };
  EXPECT_THAT(refused(4), HasSubstr("prompts with answers of 4 texts: a gate needs 5"));
  // It need not see them all.
  EXPECT_THAT(refused(12), HasSubstr("if the answers to the 4 prompts that are left are all right: "
                                     "the full cache scores 0.333"));
}

TEST_F(Gate, SaysBeforehandWhatALimitNeeds) {
  const std::string document = document_of("kv4.json", "kv4");
  const auto said = [&](const char* limit) {
    return run_kvatlas(
               {"check", document, "--model", demo_model(), "--max-loss", limit, "--dry-run"})
        .out;
  };
  EXPECT_THAT(said("5"), AllOf(HasSubstr("is sure after 65 texts without any loss"),
                               HasSubstr("so many texts are 325 prompts here, and take about "),
                               Not(HasSubstr("--most-samples"))));
  EXPECT_THAT(said("0.5"), AllOf(HasSubstr("these are more than --most-samples allows (2000)"),
                                 HasSubstr("the least limit that 400 texts can pass is 0.")));
  EXPECT_THAT(said("0"), HasSubstr("cannot be made sure"));
}

TEST_F(Gate, JudgesByTextsThatDidNotCalibrate) {
  calibrate::Provenance from;
  from.samples = 20;
  from.seeds = {{"needle", {0, 9}}};
  const std::string document = document_of("kv4.json", "kv4", from);
  const Finished done = check(document, {"--max-loss", "60"});
  ASSERT_EQ(done.status, 0) << done.err;
  const json verdict = json::parse(done.out);
  EXPECT_EQ(verdict.at("fresh_texts"), verdict.at("policies").at(0).at("texts"));
  EXPECT_THAT(done.err, HasSubstr(" texts are fresh: calibration has not seen them"));
  const Finished refused = check(document, {"--seed", "4"});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("of task 'needle' calibrated"),
                                 HasSubstr("seeds 0 to 9"), HasSubstr("they begin at 10")));
}

TEST_F(Gate, TakesAPolicyAsTextAndBeginsWithEnoughTexts) {
  const Finished done = run_kvatlas({"check", "kv4", "--model", demo_model(), "--task", "needle",
                                     "--lengths", "256", "--depths", "0.5", "--max-loss", "60"});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("passed: kv4 loses "));
}

TEST_F(Gate, NamesEveryPolicyThatItDoesNotJudge) {
  calibrate::Document document =
      calibrate::read_document(document_of("lagkv.json", "lagkv:lag=32,ratio=1/2"));
  const auto pod = calibrate::parse_policy("pod:delta=0.5,recent=64");
  document.sections["pod"] = calibrate::section_of(pod.parts.front());
  const auto path = folder_.path() / "two.json";
  calibrate::write_document(document, path, true);
  const Finished done = check(path.string(), {"--as", "kvpress", "--max-loss", "90"});
  const json policies = json::parse(done.out).at("policies");
  ASSERT_EQ(policies.size(), 2) << done.out;
  EXPECT_NE(policies.at(0).at("verdict"), "not judged");
  EXPECT_EQ(policies.at(1).at("verdict"), "not judged");
  EXPECT_THAT(policies.at(1).at("policy").get<std::string>(), HasSubstr("pod"));
  EXPECT_NE(policies.at(1).at("reason"), "");
}

TEST_F(Gate, RefusesBeforehandWhatCannotBeWritten) {
  const Finished done = check(document_of("kv4.json", "kv4"),
                              {"--junit", (folder_.path() / "nowhere/verdict.xml").string()});
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.err,
              AllOf(HasSubstr("nowhere' to write 'verdict.xml' into"), Not(HasSubstr("prompts"))));
}

}  // namespace
}  // namespace kvatlas
