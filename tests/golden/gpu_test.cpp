// SPDX-License-Identifier: Apache-2.0
// Every family on a GPU: a profile of each newer tiny checkpoint, taken there in float32, differs
// from the CPU's by rounding alone, and policies tried there decide and answer the same. Where the
// CUDA kernels run on the emulated device, the forward pass stays on the CPU.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analyzer/profile/profile.hpp"
#include "analyzer/profile/statistics.hpp"
#include "base/cuda_device.hpp"
#include "calibrate/policy/policy_settings.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/run_program.hpp"

namespace kvatlas::profile {
namespace {

using namespace testing_support;

#ifdef KVATLAS_EMULATED_PROGRAM
const std::string kProgram = KVATLAS_EMULATED_PROGRAM;
const std::vector<std::string> kPlace = {};
#else
const std::string kProgram = kvatlas_program();
const std::vector<std::string> kPlace = {"--device", "cuda", "--dtype", "float32"};
#endif

const auto named = [](const testing::TestParamInfo<std::string>& info) { return info.param; };

class GpuRun : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
#ifndef KVATLAS_EMULATED_PROGRAM
    const auto found = cuda_devices();
    if (found.devices.empty()) GTEST_SKIP() << found.why_none;
#endif
  }

  /// The checkpoint's tokens of the golden data, as a file of one prompt.
  std::string prompts() const {
    const auto tokens =
        read_golden(golden_path("tiny2/expected.h5"), GetParam() + "/tokens").integers();
    return folder_.write("prompts.jsonl", nlohmann::json{{"tokens", tokens}}.dump()).string();
  }

  std::string profiled(const std::string& program, const std::vector<std::string>& options,
                       const std::string& file) const {
    auto path = (folder_.path() / file).string();
    std::vector<std::string> command = {
        program,     "profile", "--model",   golden_checkpoint(GetParam()).string(),
        "--prompts", prompts(), "--initial", "4",
        "--recent",  "16",      "--lags",    "16",
        "--budgets", "32",      "-o",        path};
    command.insert(command.end(), options.begin(), options.end());
    const Finished finished = run_program(command);
    if (finished.status != 0) throw std::runtime_error(finished.err);
    return path;
  }

  /// How many values differ by more than `most`, and how many there are.
  static std::pair<std::size_t, std::size_t> differences(const Reader& a, const Reader& b,
                                                         const std::string& statistic,
                                                         double most) {
    const auto left = a.statistic(statistic), right = b.statistic(statistic);
    if (left.shape != right.shape) throw std::runtime_error(statistic + " differs in shape");
    const auto x = left.values<float>(), y = right.values<float>();
    std::size_t unlike = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const bool both = std::isfinite(x[i]) && std::isfinite(y[i]);
      if (both ? std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i])) > most
               : std::isfinite(x[i]) || std::isfinite(y[i]))
        ++unlike;
    }
    return {unlike, x.size()};
  }

  TemporaryFolder folder_;
};

class GpuProfile : public GpuRun {};

/// Float32 sums in another order, through layers of random weights that amplify them.
TEST_P(GpuProfile, DiffersByRoundingAlone) {
  const Reader there(profiled(kProgram, kPlace, "there.h5")),
      cpu(profiled(kvatlas_program(), {"--device", "cpu"}, "cpu.h5"));
  int compared = 0;
  for (const auto& [statistic, most] : std::vector<std::pair<std::string, double>>{
           {name::kMass, 2e-4}, {name::kDecodeMass, 2e-4}, {name::kDivergence, 1e-4}}) {
    if (!cpu.has(statistic)) continue;
    ++compared;
    const auto [unlike, values] = differences(there, cpu, statistic, most);
    EXPECT_EQ(unlike, 0) << statistic;
  }
  EXPECT_GT(compared, 0);
  if (!cpu.has(name::kKeptMass)) return;
  // Of two tokens whose scores differ in the last digit either may be kept.
  const auto [unlike, values] = differences(there, cpu, name::kKeptMass, 2e-4);
  EXPECT_LE(unlike, values / 100) << "of " << values;
}

#ifndef KVATLAS_EMULATED_PROGRAM
/// The attention's own kernel gives the rows' log-sum-exps, and tensor cores the scores: weights of
/// a row that do not sum to 1 would show that the two do not fit together.
TEST_P(GpuProfile, WeightsOfARowSumToOneInBfloat16) {
  const Reader profile(
      profiled(kProgram, {"--device", "cuda", "--dtype", "bfloat16", "--map-type", "float32"},
               "bfloat16.h5"));
  const auto sums = profile.array(0, name::kColumnSums);
  const auto of_sums = sums.values<float>();
  const std::int64_t n = sums.shape[2];
  const bool sinks = GetParam() == "gpt_oss";  // which take a share of each row
  for (std::size_t row = 0; row < of_sums.size() / static_cast<std::size_t>(n); ++row) {
    double total = 0;
    for (std::int64_t j = 0; j < n; ++j)
      total += static_cast<double>(
          of_sums[row * static_cast<std::size_t>(n) + static_cast<std::size_t>(j)]);
    EXPECT_LE(total, static_cast<double>(n) * 1.0001) << row;
    EXPECT_GE(total, static_cast<double>(n) * (sinks ? 0 : 0.9999)) << row;
  }
}
#endif

/// A part with settings that cut a prompt of the golden data short.
std::string cutting(const calibrate::PartName& part) {
  std::string text;
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"initial", "4"},
                                                        {"recent", "16"},
                                                        {"threshold", "0.7"},
                                                        {"delta", "0.3"},
                                                        {"lag", "16"},
                                                        {"window", "8"},
                                                        {"budget", "24"},
                                                        {"retain", "8"},
                                                        {"page", "8"}})
    if (calibrate::lack_of_setting(part, key).empty())
      text += (text.empty() ? ":" : ",") + key + "=" + value;
  return part.name + text;
}

/// KVzip asks the model in words, and these checkpoints have no tokenizer. Precision has settings
/// without defaults.
bool is_left_out(const calibrate::PartName& part) {
  return part.name == "kvzip" || part.name == "precision";
}

class GpuTrials : public GpuRun {
 protected:
  /// A line of JSON for the full cache and for each policy.
  std::vector<nlohmann::json> tried(const std::string& program,
                                    const std::vector<std::string>& place) const {
    std::vector<std::string> command = {
        program,         "evaluate",     "--model",  golden_checkpoint(GetParam()).string(),
        "--prompts",     prompts(),      "--new",    "6",
        "--ignore-eos",  "--time-steps", "0",        "--json",
        "--generations", "--positions",  "--policy", "precision:keys=int4,values=fp8"};
    for (const auto& part : calibrate::part_names())
      if (!is_left_out(part)) command.insert(command.end(), {"--policy", cutting(part)});
    command.insert(command.end(), place.begin(), place.end());
    const Finished finished = run_program(command);
    if (finished.status != 0) throw std::runtime_error(finished.err);
    std::vector<nlohmann::json> lines;
    std::istringstream out(finished.out);
    for (std::string line; std::getline(out, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
};

TEST_P(GpuTrials, OfEveryPartDecideAndAnswerTheSame) {
  const auto there = tried(kProgram, kPlace), cpu = tried(kvatlas_program(), {"--device", "cpu"});
  const auto left_out = std::ranges::count_if(calibrate::part_names(), is_left_out);
  ASSERT_EQ(std::ssize(cpu), std::ssize(calibrate::part_names()) - left_out + 2);
  ASSERT_EQ(there.size(), cpu.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    SCOPED_TRACE(cpu[i].at("policy"));
    for (const char* decided : {"policy", "tokens", "positions", "cut_after"}) {
      const nlohmann::json none;
      EXPECT_EQ(there[i].value(decided, none), cpu[i].value(decided, none)) << decided;
    }
  }
}

#ifdef KVATLAS_EMULATED_PROGRAM
// One of each kind: sinks and windows, latent attention, chunks, states beside attention.
INSTANTIATE_TEST_SUITE_P(Emulated, GpuProfile,
                         testing::Values("gpt_oss", "deepseek_v3", "llama4_text", "qwen3_next"),
                         named);
INSTANTIATE_TEST_SUITE_P(Emulated, GpuTrials, testing::Values("smollm3", "gemma3n_text"), named);
#else
INSTANTIATE_TEST_SUITE_P(Gpu, GpuTrials, testing::Values("smollm3", "gemma3n_text"), named);
INSTANTIATE_TEST_SUITE_P(Gpu, GpuProfile,
                         testing::ValuesIn(golden_members(golden_path("tiny2/expected.h5"), "/")),
                         named);
#endif

}  // namespace
}  // namespace kvatlas::profile
