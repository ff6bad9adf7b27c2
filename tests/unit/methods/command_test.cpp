// SPDX-License-Identifier: Apache-2.0
// `kvatlas calibrate` as a user runs it, without a model.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/exit_codes.hpp"
#include "base/str.hpp"
#include "calibrate/methods/commands.hpp"
#include "calibrate/policy/method.hpp"
#include "calibrate/policy/policy.hpp"
#include "calibrate/policy/policy_files.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/small_profile.hpp"
#include "tests/support/text_of.hpp"

namespace kvatlas::calibrate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace testing_profile;
using testing_support::error_of;
using testing_support::Finished;
using testing_support::refusal;
using testing_support::run_kvatlas;
using testing_support::text_of;

class Command : public testing::Test {
 protected:
  Command() { write_profile(profile()); }
  std::string profile() const { return (folder_.path() / "p.h5").string(); }
  std::string output() const { return (folder_.path() / "policy.json").string(); }
  Finished calibrate(std::vector<std::string> words) const {
    words.insert(words.begin(), "calibrate");
    words.insert(words.end(), {"-p", profile()});
    return run_kvatlas(words);
  }
  std::string refused(int status, const std::vector<std::string>& words) const {
    const Finished finished = calibrate(words);
    EXPECT_EQ(finished.status, status) << finished.err;
    EXPECT_THAT(finished.out, IsEmpty());
    return finished.err;
  }
  static std::vector<std::string> all(std::vector<std::string> more) {
    std::vector<std::string> words = {
        "all", "--threshold",   "0.7",   "--initial",    "4",      "--recent",
        "64",  "--pod-initial", "16",    "--pod-recent", "112",    "--budget",
        "64",  "--lags",        "32,64", "--ratios",     "1/2,1/4"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

 private:
  testing_support::TemporaryFolder folder_;
};

TEST_F(Command, ThereIsOneForEveryMethodOfTheTable) {
  const std::string help = run_kvatlas({"calibrate", "--help"}).out;
  for (const Method& method : kMethods) EXPECT_THAT(help, HasSubstr(str("\n  ", method.name, " ")));
}

TEST_F(Command, PodsGateIsNamedSo) {
  EXPECT_THAT(run_kvatlas({"calibrate", "pod", "--help-all"}).out, HasSubstr("PoD's gate"));
}

TEST_F(Command, AllInOneDocument) {
  const Finished finished = calibrate(all({"-o", output()}));
  ASSERT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.out, AllOf(HasSubstr("SimLayerKV"), HasSubstr("PoD"), HasSubstr("DynamicKV"),
                                  HasSubstr("HeadKV"), HasSubstr("LagKV")));
  EXPECT_THAT(finished.err, HasSubstr("without --model"));
  EXPECT_THAT(finished.err, HasSubstr("kvatlas: next: kvatlas view " + profile() + " " + output()));
  const Document document = read_document(output());
  EXPECT_EQ(document.sections.size(), 5u);
  EXPECT_EQ(document.model.layers, kLayers);
  EXPECT_EQ(document.provenance.samples, 12);
  EXPECT_EQ(document.provenance.profile.size(), 16u);
  EXPECT_EQ(policies_of(document).size(), 5u);

  // The document alone on stdout, the same bytes as in the file.
  const Finished printed = calibrate(all({"--json"}));
  std::ifstream file(output());
  EXPECT_EQ(printed.out, std::string(std::istreambuf_iterator<char>(file), {}));
}

TEST_F(Command, WithoutOptionsItTakesWhatTheProfileHolds) {
  for (const char* method : {"simlayerkv", "pod", "dynamickv", "headkv", "lagkv"}) {
    const Finished finished = calibrate({method});
    EXPECT_EQ(finished.status, 0) << finished.err;
  }
  const Finished finished = calibrate({"all", "-o", output()});
  ASSERT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.err,
              AllOf(HasSubstr("kvatlas: simlayerkv: initial 4 and recent 64 are taken in place of"),
                    HasSubstr("kvatlas: pod: initial 16 and recent 112 are taken in place of"),
                    HasSubstr("kvatlas: dynamickv: budget 64 is taken in place of 128"),
                    HasSubstr("kvatlas: lagkv: lags 32, 64 are taken in place of 128, 512, 1024"),
                    HasSubstr("what the threshold of 0.90 costs is unknown")));
  const Document document = read_document(output());
  EXPECT_EQ(document.sections.at("simlayerkv").at("settings").at("recent"), 64);
  EXPECT_EQ(document.sections.at("simlayerkv").at("settings").at("threshold"), 0.9);
  EXPECT_EQ(document.sections.at("pod").at("settings").at("recent"), 112);
}

TEST_F(Command, ReplacesNothingWithoutForce) {
  std::ofstream(output()) << "mine";
  EXPECT_THAT(refused(2, all({"-o", output()})), HasSubstr("--force"));
  ASSERT_EQ(calibrate(all({"-o", output(), "--force"})).status, 0);
  EXPECT_EQ(read_document(output()).sections.size(), 5u);
}

TEST_F(Command, RefusesWhatCannotBe) {
  EXPECT_THAT(refused(2, {"precision"}), HasSubstr("--model"));
  EXPECT_THAT(refused(2, {"simlayerkv", "--threshold", "0.7", "--recent", "96"}),
              HasSubstr("initial=4,recent=64"));
  EXPECT_THAT(refused(2, {"simlayerkv", "--threshold", "1.5"}), HasSubstr("--threshold"));
  EXPECT_THAT(refused(2, {"dynamickv", "--kernel", "4"}), HasSubstr("odd"));
  EXPECT_THAT(refused(2, {"dynamickv", "--tasks", "qa"}), HasSubstr("'qa'"));
  EXPECT_THAT(refused(2, {"lagkv", "--ratios", "2"}), HasSubstr("ratio '2'"));
  EXPECT_THAT(refused(2, {"pod", "--for", "no-such-runtime"}), HasSubstr("no-such-runtime"));
  EXPECT_EQ(run_kvatlas({"calibrate"}).status, 2);
  EXPECT_EQ(run_kvatlas({"calibrate", "pod", "-p", output()}).status, 3);
}

/// `kvatlas calibrate all` whose trials are answered by `score` instead of a model.
class CommandWithTrials : public Command {
 protected:
  void run(std::vector<std::string> words, const std::function<double(const Policy&)>& score) {
    CLI::App app;
    const RunTrials trials = [&](std::span<const Policy> policies,
                                 std::span<const std::size_t> samples, Measure) {
      ++calls_;
      for (const Policy& policy : policies) asked_ += policy.parts.empty() ? 0 : samples.size();
      std::vector<std::vector<Trial>> out;
      for (const Policy& policy : policies)
        out.emplace_back(samples.size(), Trial{.score = score(policy),
                                               .digits = data::DigitScores{0.1, score(policy)},
                                               .kept_share = policy.parts.empty() ? 1 : 0.5});
      return out;
    };
    add_calibrate_command(
        app,
        [&](const TrialOptions& given, const auto&, const AroundTrials& around) {
          planned_ = given.planned;
          return around(trials);
        },
        [](CLI::App&) {});
    words.insert(words.begin(), "calibrate");
    words.insert(words.end(), {"-p", profile(), "--model", "M", "-o", output()});
    std::reverse(words.begin(), words.end());
    app.parse(words);
  }
  int calls_ = 0;
  std::size_t asked_ = 0;  // trials of policies, without those of the full cache
  std::vector<TrialRound> planned_;
};

TEST_F(CommandWithTrials, KnowsBeforehandWhatItWillAskFor) {
  run(all({}), [](const Policy&) { return 1.0; });
  ASSERT_GE(planned_.size(), 5u);  // a round a method at least
  std::size_t planned = 0;
  for (const auto& round : planned_) {
    // A round without policies is one of the full cache, which is tried before them.
    EXPECT_TRUE(round.policies > 0 || round.measure == Measure::score);
    EXPECT_LT(*std::max_element(round.samples.begin(), round.samples.end()), 12u);
    EXPECT_EQ(round.apart, 0u);
    planned += round.policies * round.samples.size();
  }
  EXPECT_EQ(planned, asked_);

  // What is asked of it for a runtime whose windows mask the prefill is read apart.
  run(all({"--for", "mlx-lm", "--force"}), [](const Policy&) { return 1.0; });
  EXPECT_TRUE(std::any_of(planned_.begin(), planned_.end(), [](const auto& round) {
    return round.apart > 0 && round.apart == round.policies;
  }));
}

TEST_F(CommandWithTrials, WhatKeepsNoScoreIsInNoDocument) {
  const auto loses = [](const Policy& policy) { return policy.parts.empty() ? 1.0 : 0.75; };
  // The threshold and DynamicKV's budget are asked for.
  run(all({}), loses);
  std::vector<std::string> names;
  const Document document = read_document(output());
  for (const auto& [name, section] : document.sections.items()) names.push_back(name);
  EXPECT_THAT(names, testing::ElementsAre("dynamickv", "simlayerkv"));
  run(all({"--force", "--tolerance", "0.25"}), loses);
  EXPECT_EQ(read_document(output()).sections.size(), 6u);

  std::filesystem::remove(output());
  try {
    run({"simlayerkv", "--recent", "64"}, loses);
    ADD_FAILURE() << "no exit status";
  } catch (const CLI::RuntimeError& end) {
    EXPECT_EQ(end.get_exit_code(), kExitNotMet);
  }
  EXPECT_FALSE(std::filesystem::exists(output()));
  EXPECT_FALSE(std::filesystem::exists(trials_beside(output())));
}

TEST_F(CommandWithTrials, NothingIsTriedWhereTheProfileLacksWhatAMethodNeeds) {
  auto words = all({});
  std::replace(words.begin(), words.end(), std::string("112"), std::string("100"));
  std::replace(words.begin(), words.end(), std::string("64"), std::string("66"));
  const std::string said = refusal([&] { run(words, [](const Policy&) { return 1.0; }); });
  EXPECT_EQ(calls_, 0);
  EXPECT_FALSE(std::filesystem::exists(output()));
  // Each method that lacks something says so, with the nearest that there is.
  EXPECT_THAT(said, HasSubstr("simlayerkv: the profile has no masses for initial=4,recent=66, but "
                              "for initial=4,recent=64; "));
  EXPECT_THAT(said, HasSubstr("pod: the profile has no masses for initial=16,recent=100, but for "
                              "initial=16,recent=112; "));
  EXPECT_THAT(said, HasSubstr("dynamickv: the profile has no counts for a budget of 66, but for "));
}

TEST_F(CommandWithTrials, TooFewTextsAreSaidOnceForAllMethods) {
  const auto said = [&] {
    return refusal([&] { run({"all"}, [](const Policy&) { return 1.0; }); });
  };
  std::filesystem::remove(profile());
  write_profile(profile(), {.samples = 3});
  EXPECT_EQ(said(),
            "simlayerkv, pod, dynamickv, headkv, lagkv, precision: 3 samples in the profile: "
            "calibration needs 5 at least (--force overrides)");
  std::filesystem::remove(profile());
  write_profile(profile(), {.answers = false});
  EXPECT_EQ(said(),
            "simlayerkv, pod, dynamickv, headkv, lagkv, precision: 0 samples with answers: "
            "calibration needs 5 at least");
  EXPECT_EQ(calls_, 0);
}

TEST_F(CommandWithTrials, TriesTheProfilesOwnSettings) {
  run({"all"}, [](const Policy&) { return 1.0; });
  const Document document = read_document(output());
  EXPECT_EQ(document.sections.size(), kMethods.size());
  EXPECT_EQ(document.sections.at("headkv").at("curve").size(), 2u);
}

TEST_F(CommandWithTrials, GoesOnAfterALaterMethodHasEnded) {
  const auto works = [](const Policy& policy) { return policy.parts.empty() ? 1.0 : 0.75; };
  const auto all = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--tolerance", "0.25"});
    return Command::all(more);
  };
  run(all({}), works);
  const std::string whole = text_of(output());
  const int calls = std::exchange(calls_, 0);
  EXPECT_FALSE(std::filesystem::exists(trials_beside(output())));

  const auto ends = [&](const Policy& policy) {
    if (calls_ > calls / 2) fail(ErrorCode::resource, "the machine is on fire");
    return works(policy);
  };
  EXPECT_THAT(error_of([&] { run(all({"--force"}), ends); }), HasSubstr("the machine is on fire"));
  // The sections that were finished are there.
  const Document document = read_document(output());
  EXPECT_TRUE(document.sections.contains("simlayerkv"));
  EXPECT_LT(document.sections.size(), 4u);

  EXPECT_THAT(refusal([&] { run(all({}), works); }), HasSubstr("is there already"));
  EXPECT_THAT(refusal([&] {
                run(all({"--resume", "--new", "3"}), works);
              }),
              HasSubstr("its trials were run with new 0, and now it is 3"));
  EXPECT_THAT(refusal([&] {
                run(all({"--resume", "--force"}), works);
              }),
              HasSubstr("give one of them"));
  run(all({"--resume"}), works);
  EXPECT_EQ(text_of(output()), whole);
  EXPECT_LE(calls_, calls + 1);  // the one that failed was called twice
  EXPECT_FALSE(std::filesystem::exists(trials_beside(output())));
  EXPECT_THAT(refusal([&] { run(all({"--resume"}), works); }), HasSubstr("is there already"));
}

TEST_F(CommandWithTrials, TheTrialsOfARefusedRunAreNotLeft) {
  const auto said = refusal([&] { run(all({}), [](const Policy&) { return 0.25; }); });
  EXPECT_THAT(said, HasSubstr("the full cache scores 0.250"));
  EXPECT_GT(calls_, 0);
  EXPECT_FALSE(std::filesystem::exists(trials_beside(output())));
}

TEST_F(CommandWithTrials, ResumesTrialsAlone) {
  EXPECT_THAT(refused(2, all({"--resume"})), HasSubstr("give it with -o"));
  EXPECT_THAT(refused(2, all({"--resume", "-o", output()})), HasSubstr("give --model"));
}

TEST_F(Command, ForARuntimeLayersAreFixed) {
  const Finished finished = calibrate(all({"--for", "sglang", "-o", output()}));
  ASSERT_EQ(finished.status, 0) << finished.err;
  const Document document = read_document(output());
  EXPECT_EQ(document.runtime, "sglang");
  EXPECT_FALSE(document.sections.contains("lagkv"));
  EXPECT_THAT(finished.err, HasSubstr("lagkv, which SGLang cannot carry out"));
  EXPECT_EQ(document.sections["simlayerkv"]["result"]["lazy_layers"],
            nlohmann::json({false, true, false, true}));
}

TEST_F(Command, DiffSaysWhichFileIsWrongOnce) {
  std::ofstream(output()) << "{}";
  Finished finished = run_kvatlas({"diff", output(), output()});
  EXPECT_EQ(finished.status, 3);
  EXPECT_THAT(finished.err, HasSubstr("kvatlas: '" + output() + "': no policy document"));
  finished = run_kvatlas({"diff", profile(), "absent.h5"});
  EXPECT_EQ(finished.status, 3);
  EXPECT_THAT(finished.err, HasSubstr("there is no file 'absent.h5'"));
}

TEST_F(Command, HelpShowsDefaultsAndAnExample) {
  for (const char* method : {"simlayerkv", "pod", "dynamickv", "lagkv", "all"}) {
    const Finished finished = run_kvatlas({"calibrate", method, "--help-all"});
    EXPECT_EQ(finished.status, 0);
    EXPECT_THAT(finished.out, AllOf(HasSubstr("Example"), HasSubstr("--held-out SHARE"),
                                    HasSubstr("-o policy.json")));
  }
}

}  // namespace
}  // namespace kvatlas::calibrate
