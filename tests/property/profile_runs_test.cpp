// SPDX-License-Identifier: Apache-2.0
// However a profile comes about, it is the same: killed and resumed, by several processes, with
// streamed weights.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <regex>
#include <set>
#include <string>

#include <nlohmann/json.hpp>

#include "analyzer/profile/checked_arrays.hpp"
#include "tests/property/profile_fixture.hpp"
#include "tests/support/places.hpp"

namespace kvatlas::profile {
namespace {

using namespace testing_support;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kModel = "llama3_gqa_f32";

class ProfileRuns : public testing::Test {
 protected:
  std::vector<std::string> words(const std::string& prompts, const std::string& output,
                                 const std::vector<std::string>& more = {}) const {
    return command.words(kModel, prompts, output, more);
  }
  Finished profile(const std::string& prompts, const std::string& output,
                   const std::vector<std::string>& more = {}, const RunHow& how = {}) const {
    return run_kvatlas(words(prompts, output, more), how);
  }
  /// One line on stderr after the plan, an exit code, and nothing on stdout.
  void expect_refusal(const Finished& finished, int status, const std::string& text) const {
    EXPECT_EQ(finished.status, status) << finished.err;
    EXPECT_EQ(finished.out, "");
    EXPECT_THAT(finished.err, HasSubstr(text));
  }

  ProfileCommand command;
};

TEST_F(ProfileRuns, SaysThePlanAndTheResult) {
  const auto prompts = command.prompts(3);
  const Finished dry = profile(prompts, "p.h5", {"--dry-run"});
  EXPECT_EQ(dry.status, 0) << dry.err;
  EXPECT_THAT(dry.err, AllOf(HasSubstr("3 samples of 40 to 86 tokens"), HasSubstr("of memory"),
                             HasSubstr("a file of at most")));
  EXPECT_FALSE(std::filesystem::exists(command.path("p.h5")));

  const Finished done = profile(prompts, "p.h5");
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.out, HasSubstr("3 samples"));
  EXPECT_THAT(done.err,
              AllOf(HasSubstr("for calibration: prompts with answers of 5 texts or more\n"),
                    HasSubstr("next: kvatlas view "), Not(HasSubstr("calibrate all"))));
  EXPECT_FALSE(std::filesystem::exists(command.path("p.h5.parts")));
  const Reader reader(command.path("p.h5"));
  EXPECT_TRUE(reader.complete());
  EXPECT_EQ(reader.samples()[1].id, "p1");
  EXPECT_EQ(reader.samples()[1].n_tokens, 63);
  EXPECT_FALSE(reader.header().model_fingerprint.empty());

  expect_refusal(profile(prompts, "p.h5"), 2, "--force");
  EXPECT_THAT(profile(prompts, "p.h5", {"--resume"}).out, HasSubstr("nothing was left to do"));
  EXPECT_EQ(profile(prompts, "p.h5", {"--force"}).status, 0);
}

TEST_F(ProfileRuns, RefusesWhatMakesNoSense) {
  const auto prompts = command.prompts(1);
  const auto refuses = [&](const std::vector<std::string>& more, const std::string& text) {
    expect_refusal(profile(prompts, "p.h5", more), 2, text);
  };
  refuses({"--capture", "everything"}, "heatmap");
  refuses({"--keep", "weights"}, "qkv");
  refuses({"--keep", "qkv", "--keep-layers", "4"}, "--keep-layers 4");
  refuses({"--ratios", "3/2"}, "at most 1");
  refuses({"--kernels", "4"}, "odd");
  refuses({"--budgets", "16"}, "--budgets 16");
  refuses({"--budgets", "32,32"}, "each once");
  refuses({"--recent", "64,64"}, "--recent");
  refuses({"--poolings", "median"}, "avg");
  refuses({"--map-type", "int8"}, "float16");
  refuses({"--task", "needle"}, "prompts of your own");
  refuses({"--quick"}, "prompts of your own");
  refuses({"--force", "--resume"}, "one of them");
  expect_refusal(profile(prompts, "no/folder/p.h5"), 1, "no/folder");
  expect_refusal(profile(prompts, "p.h5", {"--memory-budget", "1MiB"}), 1, "too small");
  expect_refusal(
      run_kvatlas({"profile", "--model", golden_path(std::string("tiny/") + kModel).string(), "-o",
                   command.path("p.h5")}),
      2, "no tokenizer");
  EXPECT_FALSE(std::filesystem::exists(command.path("p.h5")));
  expect_refusal(profile(prompts, "prompts.jsonl", {"--force"}), 2, "not a profile");
  expect_refusal(profile(prompts, "prompts.jsonl"), 2, "choose another name");
  expect_refusal(profile(prompts, "prompts.jsonl", {"--resume"}), 3, "choose another name");
  EXPECT_TRUE(command.bytes("prompts.jsonl").starts_with("{\"id\""));
}

TEST_F(ProfileRuns, AsMuchMemoryAsARefusalNamesIsEnough) {
  const auto prompts = command.prompts(2);
  const auto enough = [&](const std::function<Finished(const std::string&)>& within) {
    const Finished refused = within("1MiB");
    expect_refusal(refused, 1, "too small");
    static const std::regex figure("need about ([0-9.]+) ([A-Za-z]+)");
    std::smatch named;
    ASSERT_TRUE(std::regex_search(refused.err, named, figure)) << refused.err;
    const Finished finished = within(named[1].str() + named[2].str());
    EXPECT_EQ(finished.status, 0) << finished.err;
  };
  enough([&](const std::string& budget) {
    return profile(prompts, "p.h5", {"--memory-budget", budget, "--force"});
  });
  enough([&](const std::string& budget) {
    return run_kvatlas({"evaluate", "--model", golden_checkpoint(kModel).string(), "--prompts",
                        prompts, "--policy", "streaming:recent=16", "--new", "1", "--time-steps",
                        "0", "--memory-budget", budget});
  });
}

/// What is stored to be looked at, beside the exact form of the same run.
TEST_F(ProfileRuns, MapsToLookAtAreNearTheExactOnes) {
  const auto prompts = command.prompts(1, 600);
  const std::vector<std::string> kept = {"--capture", "columns,maps,norms"};
  auto exact = kept;
  exact.insert(exact.end(), {"--map-type", "float32"});
  ASSERT_EQ(profile(prompts, "seen.h5", kept).status, 0);
  ASSERT_EQ(profile(prompts, "exact.h5", exact).status, 0);
  const Reader seen(command.path("seen.h5")), whole(command.path("exact.h5"));
  const auto first_block = [](const Reader& of) {
    return of.array(0, name::kMapBlocks).values<std::int32_t>()[0];
  };
  EXPECT_EQ(first_block(seen), 2 * first_block(whole));
  const auto expect_near = [&](const std::string& array, const std::string& of_exact, float least) {
    SCOPED_TRACE(array);
    const Array codes = seen.array(0, array), logs = whole.array(0, of_exact);
    ASSERT_EQ(codes.type, Type::u8);
    ASSERT_EQ(codes.shape, logs.shape);
    const auto got = shares_of(codes, array), want = shares_of(logs, of_exact);
    std::int64_t told = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (got[i] > 0) {
        ++told;
        ASSERT_NEAR(std::log2(got[i]), std::log2(want[i]), 0.0625 + 1e-3) << i;
      } else {
        ASSERT_LT(want[i], least) << i;
      }
    }
    EXPECT_GT(told, 0);
  };
  for (int level = 0; level < 9; ++level)
    for (const bool maximum : {false, true})
      expect_near(map_name(maximum, level), map_name(maximum, level + 1), 0x1p-31f);
  EXPECT_FALSE(seen.has(map_name(false, 9)));
  expect_near(name::kRows, name::kRows, 0x1p-24f);
  for (const char* array : {name::kColumnSums, name::kKeyNormOfToken, name::kValueNormOfToken}) {
    const Array rounded = seen.array(0, array), all = whole.array(0, array);
    const auto got = rounded.values<float>(), want = all.values<float>();
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], want[i], want[i] * 0x1p-8) << array << ' ' << i;
  }
  EXPECT_LT(std::filesystem::file_size(command.path("seen.h5")) * 6,
            std::filesystem::file_size(command.path("exact.h5")));
}

TEST_F(ProfileRuns, ShortPromptsLeaveWhatTheyCannotTell) {
  const auto prompts = command.write("short.jsonl", "{\"tokens\": [5]}\n{\"tokens\": [5, 6, 7]}\n");
  const Finished done = profile(prompts, "p.h5", {"--capture", "all", "--keep", "qkv,scores"});
  ASSERT_EQ(done.status, 0) << done.err;
  const Reader reader(command.path("p.h5"));
  const Array masses = reader.statistic(name::kMass);
  EXPECT_TRUE(std::isnan(masses.values<float>()[0]));  // rows before the prompt
  EXPECT_EQ(masses.values<float>()[31], 1);            // a row that sees itself alone
  EXPECT_FALSE(reader.has(name::kCounts));             // nothing lies before the window
}

TEST_F(ProfileRuns, SurvivesBeingKilledAtAnyMoment) {
  const auto prompts = command.prompts(12, 200, 40);
  ASSERT_EQ(profile(prompts, "whole.h5").status, 0);
  std::mt19937 random(11);
  int killed = 0;
  int longest = 2000;  // milliseconds: halved until the program cannot finish before two kills
  Finished last;
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> more;
    if (killed > 0) more.push_back("--resume");
    const int patience = longest / 3 + static_cast<int>(random() % (longest * 2 / 3 + 1));
    last = profile(prompts, "p.h5", more, {.kill_after = std::chrono::milliseconds(patience)});
    if (last.status == 0) {
      if (killed >= 2) break;
      std::filesystem::remove(command.path("p.h5"));
      killed = 0;
      longest = std::max(longest / 2, 2);
      continue;
    }
    ASSERT_EQ(last.status, 128 + 9) << last.err;
    ++killed;
    if (std::filesystem::exists(command.path("p.h5"))) {
      EXPECT_NO_THROW(Reader(command.path("p.h5")));
    }
  }
  if (last.status != 0) last = profile(prompts, "p.h5", {"--resume"});
  EXPECT_EQ(last.status, 0) << last.err;
  EXPECT_GE(killed, 2);
  EXPECT_EQ(command.bytes("p.h5"), command.bytes("whole.h5"));
}

TEST_F(ProfileRuns, KeepsWhatIsDoneWhenInterrupted) {
  const auto prompts = command.prompts(40, 300, 10);
  const Finished stopped = profile(prompts, "p.h5", {}, {.interrupt_at = "a file of at most"});
  EXPECT_EQ(stopped.status, 130) << stopped.err;
  const Finished resumed = profile(prompts, "p.h5", {"--resume"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  ASSERT_EQ(profile(prompts, "whole.h5").status, 0);
  EXPECT_EQ(command.bytes("p.h5"), command.bytes("whole.h5"));
}

TEST_F(ProfileRuns, KeepsWhatIsDoneWhenTheDiskIsFull) {
  const auto prompts = command.prompts(12, 100, 60);
  ASSERT_EQ(profile(prompts, "whole.h5").status, 0);
  const auto whole = static_cast<std::int64_t>(command.bytes("whole.h5").size());
  const Finished full = profile(prompts, "p.h5", {}, {.largest_file = whole / 2});
  EXPECT_EQ(full.status, 1) << full.err;
  EXPECT_THAT(full.err, HasSubstr("p.h5"));
  const Finished resumed = profile(prompts, "p.h5", {"--resume"});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("are there already"));
  EXPECT_EQ(command.bytes("p.h5"), command.bytes("whole.h5"));
}

TEST_F(ProfileRuns, ResumingWithOtherSettingsNamesThem) {
  const auto prompts = command.prompts(3);
  ASSERT_EQ(profile(prompts, "p.h5").status, 0);
  expect_refusal(profile(prompts, "p.h5", {"--resume", "--sink", "4"}), 2, "sink");
  expect_refusal(profile(prompts, "p.h5", {"--resume", "--map-samples", "1"}), 2, "map_samples");
  const auto others = command.prompts(3, 50);
  expect_refusal(profile(others, "p.h5", {"--resume"}), 2, "fingerprint");
  expect_refusal(run_kvatlas(command.words("gemma2_f32", prompts, "p.h5", {"--resume"})), 2,
                 "model");
}

TEST_F(ProfileRuns, MergesProfilesOfParts) {
  ASSERT_EQ(profile(command.prompts(2), "a.h5").status, 0);
  ASSERT_EQ(profile(command.prompts(3, 70), "b.h5").status, 0);
  const Finished merged = run_kvatlas(
      {"merge", command.path("a.h5"), command.path("b.h5"), "-o", command.path("c.h5")});
  ASSERT_EQ(merged.status, 0) << merged.err;
  const Reader a(command.path("a.h5")), b(command.path("b.h5")), c(command.path("c.h5"));
  ASSERT_EQ(c.samples().size(), 5u);
  const auto of = [](const Reader& reader) {
    const Array all = reader.statistic(name::kDivergence);
    return std::vector<std::byte>(all.bytes);
  };
  auto both = of(a);
  const auto rest = of(b);
  both.insert(both.end(), rest.begin(), rest.end());
  EXPECT_EQ(of(c), both);
}

/// Of a step of one token, but for rounding: resident matrices are laid out anew, streamed ones are
/// multiplied as they are.
TEST_F(ProfileRuns, BatchesOfStreamedWeightsGiveTheSame) {
  const auto prompts = command.prompts(5, 60);
  ASSERT_EQ(profile(prompts, "resident.h5").status, 0);
  const Finished streamed = profile(prompts, "streamed.h5", {"--memory-budget", "320MiB"}, {});
  ASSERT_EQ(streamed.status, 0) << streamed.err;
  const Reader one(command.path("resident.h5")), other(command.path("streamed.h5"));
  ASSERT_EQ(other.header().arrays.size(), one.header().arrays.size());
  const std::set<std::string> of_many_tokens = {name::kMass, name::kProximalLse, name::kDistantLse,
                                                name::kDivergence};
  int compared = 0;
  for (const Description& array : one.header().arrays) {
    if (array.sizes.empty()) continue;  // of some samples alone
    const Array expected = one.statistic(array.name), got = other.statistic(array.name);
    ASSERT_EQ(got.shape, expected.shape) << array.name;
    ++compared;
    if (array.type != Type::f32) {
      EXPECT_EQ(got.bytes, expected.bytes) << array.name;
      continue;
    }
    const double bound = of_many_tokens.contains(array.name) ? 1e-5 : 1e-4;
    const auto a = expected.values<float>(), b = got.values<float>();
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
      ASSERT_NEAR(a[i], b[i], bound) << array.name;
    }
  }
  EXPECT_GT(compared, 12);
}

TEST_F(ProfileRuns, LongPromptsLoseTheirMiddleAsInEvaluate) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 600; ++i) ids.push_back((i * i + 7 * i) % 256);
  const auto line = [](const std::vector<std::int64_t>& tokens) {
    return nlohmann::json{{"tokens", tokens}}.dump() + "\n";
  };
  const auto prompts = command.write("long.jsonl", line(ids));
  const Finished profiled = profile(prompts, "p.h5");
  ASSERT_EQ(profiled.status, 0) << profiled.err;
  EXPECT_THAT(profiled.err, HasSubstr("1 prompt is too long and loses its middle"));
  // The model's context is 512 tokens, and an answer of an unknown task has 32.
  const Reader reader(command.path("p.h5"));
  std::vector<std::int64_t> cut(ids.begin(), ids.begin() + 240);
  cut.insert(cut.end(), ids.end() - 240, ids.end());
  const auto profiled_tokens = reader.tokens(0);
  EXPECT_EQ(std::vector<std::int64_t>(profiled_tokens.begin(), profiled_tokens.end()), cut);
  EXPECT_EQ(reader.samples()[0].n_tokens, 480);
  EXPECT_EQ(reader.samples()[0].cut_tokens, 120);

  const auto evaluated = [&](const std::string& file) {
    return run_kvatlas({"evaluate", "--model", golden_path(std::string("tiny/") + kModel).string(),
                        "--prompts", file, "--json", "--generations", "--time-steps", "0"});
  };
  const Finished whole = evaluated(prompts),
                 half = evaluated(command.write("cut.jsonl", line(cut)));
  ASSERT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(whole.out, half.out);

  ASSERT_EQ(profile(prompts, "short.h5", {"--max-tokens", "100"}).status, 0);
  EXPECT_EQ(Reader(command.path("short.h5")).samples()[0].cut_tokens, 500);
}

TEST_F(ProfileRuns, AFileOfSchema10CalibratesAndSaysWhatItLacks) {
  // Written by the program before schema 1.1, of prompts that name a metric and classes.
  const auto old = (source_folder() / "tests/property/data/schema-1.0.h5").string();
  EXPECT_THAT(run_kvatlas({"inspect", old}).out,
              HasSubstr("5 of schema 1.0, without group, metric, classes and language"));
  const auto model = golden_path(std::string("tiny/") + kModel).string();
  const Finished done = run_kvatlas({"calibrate", "dynamickv", "--model", model, "-p", old,
                                     "--window", "8", "--budget", "24", "--budgets", "24",
                                     "--force", "-o", command.path("policy.json")});
  EXPECT_EQ(done.status, 0) << done.err;
  EXPECT_THAT(done.err, AllOf(HasSubstr("schema 1.0, which lacks the metric"),
                              HasSubstr("5 answers are scored by the name of the task alone")));
}

#if KVATLAS_HAS_MPI
class ProfileRanks : public ProfileRuns, public testing::WithParamInterface<int> {};

TEST_P(ProfileRanks, GiveTheFileOfOneProcess) {
  const auto prompts = command.prompts(9, 60);
  ASSERT_EQ(profile(prompts, "one.h5").status, 0);
  // Open MPI leaves what its unloaded components took, and nothing names them to a suppression.
  std::vector<std::string> all{"mpirun", "-x", "ASAN_OPTIONS=detect_leaks=0"};
  all.insert(all.end(), {"--allow-run-as-root", "--oversubscribe", "-n", std::to_string(GetParam()),
                         kvatlas_program()});
  for (const auto& word : words(prompts, "ranks.h5")) all.push_back(word);
  const Finished finished = run_program(all);
  ASSERT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.err, HasSubstr(std::to_string(GetParam()) + " processes"));
  EXPECT_EQ(command.bytes("ranks.h5"), command.bytes("one.h5"));
}
INSTANTIATE_TEST_SUITE_P(Mpi, ProfileRanks, testing::Values(2, 4));

TEST_F(ProfileRuns, AKilledRankCostsItsSampleAlone) {
  const auto prompts = command.prompts(12, 250, 30);
  ASSERT_EQ(profile(prompts, "one.h5").status, 0);
  // Rank 1 is killed after a while by the shell that started it; mpirun then ends the others.
  const std::string script =
      "if [ \"$OMPI_COMM_WORLD_RANK\" = 1 ]; then \"$@\" & sleep 1.2; kill -9 $!; wait $!; else "
      "exec \"$@\"; fi";
  std::vector<std::string> all{
      "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "bash", "-c", script,
      "bash",   kvatlas_program()};
  for (const auto& word : words(prompts, "p.h5")) all.push_back(word);
  run_program(all);  // whether rank 1 was still at work then depends on the machine
  const Finished resumed = profile(prompts, "p.h5", {"--resume"});
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(command.bytes("p.h5"), command.bytes("one.h5"));
}

TEST_F(ProfileRuns, TwoHostsGiveTheFileOfOneProcess) {
  const std::string hosts =
      (kvatlas::testing_support::source_folder() / "tests/support/two_hosts.sh").string();
  const Finished tried = run_program({hosts, "true"});
  if (tried.status != 0) GTEST_SKIP() << "no network namespaces here: " << tried.err;
  const auto prompts = command.prompts(9, 60);
  ASSERT_EQ(profile(prompts, "one.h5").status, 0);
  std::vector<std::string> all{hosts, kvatlas_program()};
  for (const auto& word : words(prompts, "hosts.h5")) all.push_back(word);
  const Finished finished = run_program(all);
  ASSERT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(command.bytes("hosts.h5"), command.bytes("one.h5"));
}
#endif

}  // namespace
}  // namespace kvatlas::profile
