// SPDX-License-Identifier: Apache-2.0
// Calibration on the real model: `kvatlas calibrate auto`, and what interrupts a method.
#include <filesystem>
#include <fstream>
#include <memory>

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

class Auto : public testing::Test {
 protected:
  /// Ten short needles, for all tests.
  static void SetUpTestSuite() {
    shared_ = std::make_unique<TemporaryFolder>();
    const Finished profiled =
        run_kvatlas({"profile", "--model", demo_model(), "--task", "needle", "--lengths", "300",
                     "--depths", "0.5", "--seeds", "10", "--capture", "lazy,js,scores,kept",
                     "--lags", "32,64", "--budgets", "64,128,200", "-o", profile()});
    ASSERT_EQ(profiled.status, 0) << profiled.err;
  }
  static void TearDownTestSuite() { shared_.reset(); }
  static std::string profile() { return (shared_->path() / "p.h5").string(); }

  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  struct Wish {
    std::string saving = "0.2", max_loss = "100", methods = "lagkv,dynamickv";
  };
  /// Few policies, in as few trials.
  Finished search(const std::string& name, const Wish& wish, const std::vector<std::string>& more,
                  const RunHow& how = {}) {
    std::vector<std::string> words = {
        "calibrate", "auto",       "--model",      demo_model(), "-p",          profile(),
        "--context", "300",        "--kv-saving",  wish.saving,  "--max-loss",  wish.max_loss,
        "--methods", wish.methods, "--candidates", "4",          "--finalists", "2",
        "-o",        path(name),   "--new",        "8"};
    words.insert(words.end(), more.begin(), more.end());
    return run_kvatlas(words, how);
  }
  TemporaryFolder folder_;

 private:
  static std::unique_ptr<TemporaryFolder> shared_;
};
std::unique_ptr<TemporaryFolder> Auto::shared_;

TEST_F(Auto, FindsTheSamePolicyAgainAlsoAfterAnInterruption) {
  const Finished first = search("first.json", {}, {});
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_THAT(first.out, AllOf(HasSubstr("The finalists"), HasSubstr("Chosen: ")));
  const auto document = calibrate::read_document(folder_.path() / "first.json");
  EXPECT_EQ(calibrate::policies_of(document).size(), 1u);
  EXPECT_EQ(document.search.at("context"), 300);
  EXPECT_FALSE(document.pareto.empty());
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "first.trials.jsonl"));

  const Finished cut = search("second.json", {}, {}, {.interrupt_at = "stage 2"});
  EXPECT_EQ(cut.status, 130) << cut.err;
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "second.json"));
  const Finished refused = search("second.json", {}, {});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, HasSubstr("--resume"));
  const Finished resumed = search("second.json", {}, {"--resume"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("trials are there already"));
  EXPECT_EQ(text_of(folder_.path() / "second.json"), text_of(folder_.path() / "first.json"));

  // With little memory prompts are kept on the disk, beside the profile, where nothing is left of
  // them; on a full disk they are read again in each stage.
  for (const std::int64_t largest : {0, 4 << 20}) {
    const Finished small = search("small.json", {}, {"--memory-budget", "1200MiB", "--force"},
                                  {.largest_file = largest});
    ASSERT_EQ(small.status, 0) << small.err;
    EXPECT_EQ(small.err.find("are read anew in each round: writing") != std::string::npos,
              largest > 0)
        << small.err;
    EXPECT_EQ(text_of(folder_.path() / "small.json"), text_of(folder_.path() / "first.json"));
    const auto folder = std::filesystem::path(profile()).parent_path();
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      EXPECT_EQ(entry.path(), profile());
  }
}

TEST_F(Auto, AMethodGoesOnAfterAnInterruption) {
  const auto calibrate = [&](const char* name, const std::vector<std::string>& more,
                             const RunHow& how = {}) {
    std::vector<std::string> words = {"calibrate", "lagkv",  "--model",       demo_model(), "-p",
                                      profile(),   "--lags", "32,64",         "--new",      "8",
                                      "--ratios",  "1/4",    "--compression", "0.5",        "-o",
                                      path(name)};
    words.insert(words.end(), more.begin(), more.end());
    return run_kvatlas(words, how);
  };
  const Finished first = calibrate("first.json", {});
  ASSERT_EQ(first.status, 0) << first.err;

  const Finished cut = calibrate("second.json", {}, {.interrupt_at = "6/6 samples"});
  EXPECT_EQ(cut.status, 130) << cut.err;
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "second.json"));
  EXPECT_THAT(calibrate("second.json", {}).err, HasSubstr("--resume"));
  const Finished resumed = calibrate("second.json", {"--resume"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("trials are there already"));
  EXPECT_EQ(resumed.out, first.out);
  EXPECT_EQ(text_of(folder_.path() / "second.json"), text_of(folder_.path() / "first.json"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "second.trials.jsonl"));
}

TEST_F(Auto, SaysWhatCannotBeMet) {
  const Finished none =
      search("none.json", {.saving = "0.7", .max_loss = "0", .methods = "dynamickv"}, {});
  EXPECT_EQ(none.status, 4) << none.err;
  EXPECT_THAT(none.err, AllOf(HasSubstr("the nearest is"), HasSubstr("--max-loss"),
                              HasSubstr("--resume with another limit")));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "none.json"));
  const Finished small = search("small.json", {.saving = "0.99", .methods = "dynamickv"}, {});
  EXPECT_EQ(small.status, 2);
  EXPECT_THAT(small.err, HasSubstr("the smallest takes"));
  const Finished both = search("both.json", {}, {"--memory", "1GiB"});
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.err, HasSubstr("either --memory"));
}

TEST_F(Auto, SaysBeforehandWhatItTakes) {
  const Finished planned = search("planned.json", {}, {"--dry-run"});
  ASSERT_EQ(planned.status, 0) << planned.err;
  EXPECT_THAT(planned.out, AllOf(HasSubstr("unseen texts\nthe search takes about "),
                                 HasSubstr(": 10 prompts are read, and ")));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "planned.json"));
  EXPECT_THAT(search("planned.json", {.max_loss = "5"}, {"--dry-run"}).out,
              HasSubstr(" unseen texts, and the least --max-loss that these can certify is "));
}

TEST_F(Auto, EndsBeforeThePoliciesWhereTheModelFails) {
  std::ofstream prompts(path("wrong.jsonl"));
  for (int i = 0; i < 10; ++i)
    prompts << R"({"text": "Say the word number )" << i << R"(", "answers": ["xyzzy"]})" << '\n';
  prompts.close();
  ASSERT_EQ(run_kvatlas({"profile", "--model", demo_model(), "--prompts", path("wrong.jsonl"),
                         "--capture", "lazy", "-o", path("wrong.h5")})
                .status,
            0);
  const Finished refused =
      run_kvatlas({"calibrate", "auto", "--model", demo_model(), "-p", path("wrong.h5"),
                   "--context", "300", "--kv-saving", "0.2", "-o", path("none.json")});
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("the full cache scores 0.000"),
                                 Not(HasSubstr("fewer bits")), Not(HasSubstr("stage 1"))));
  EXPECT_FALSE(std::filesystem::exists(path("none.trials.jsonl")));
}

TEST_F(Auto, ProfilesFirstWithoutAProfile) {
  const Finished found =
      run_kvatlas({"calibrate",  "auto",        "--model",
                   demo_model(), "--task",      "needle",
                   "--lengths",  "300",         "--depths",
                   "0.5",        "--seeds",     "10",
                   "--memory",   "200MiB",      "--context",
                   "1000",       "--max-loss",  "100",
                   "--methods",  "lagkv",       "--candidates",
                   "2",          "--finalists", "1",
                   "--json",     "-o",          (folder_.path() / "own.json").string()});
  ASSERT_EQ(found.status, 0) << found.err;
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "own.profile.h5"));
  EXPECT_EQ(found.out, text_of(folder_.path() / "own.json"));
  EXPECT_THAT(found.err, HasSubstr("losses are measured on prompts of up to"));
}

}  // namespace
}  // namespace kvatlas
