// SPDX-License-Identifier: Apache-2.0
// Every family on a GPU: a profile of each newer tiny checkpoint, taken there in float32, differs
// from the CPU's by rounding alone. Where the CUDA kernels run on the emulated device, the forward
// pass stays on the CPU.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analyzer/profile/profile.hpp"
#include "analyzer/profile/statistics.hpp"
#include "base/cuda_device.hpp"
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

class GpuProfile : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
#ifndef KVATLAS_EMULATED_PROGRAM
    const auto found = cuda_devices();
    if (found.devices.empty()) GTEST_SKIP() << found.why_none;
#endif
  }

  std::string profiled(const std::string& program, const std::vector<std::string>& place,
                       const std::string& file) const {
    const auto tokens =
        read_golden(golden_path("tiny2/expected.h5"), GetParam() + "/tokens").integers();
    auto path = (folder_.path() / file).string();
    std::vector<std::string> command = {
        program,
        "profile",
        "--model",
        golden_checkpoint(GetParam()).string(),
        "--prompts",
        folder_.write("prompts.jsonl", nlohmann::json{{"tokens", tokens}}.dump()).string(),
        "--initial",
        "4",
        "--recent",
        "16",
        "--lags",
        "16",
        "--budgets",
        "32",
        "-o",
        path};
    command.insert(command.end(), place.begin(), place.end());
    const Finished finished = run_program(command);
    if (finished.status != 0) throw std::runtime_error(finished.err);
    return path;
  }
  TemporaryFolder folder_;
};

/// Float32 sums in another order, through layers of random weights that amplify them.
TEST_P(GpuProfile, DiffersByRoundingAlone) {
  const Reader there(profiled(kProgram, kPlace, "there.h5")),
      cpu(profiled(kvatlas_program(), {"--device", "cpu"}, "cpu.h5"));
  int compared = 0;
  for (const auto& [statistic, most] :
       std::vector<std::pair<std::string, double>>{{name::kMass, 2e-4},
                                                   {name::kDecodeMass, 2e-4},
                                                   {name::kKeptMass, 2e-4},
                                                   {name::kDivergence, 1e-4}}) {
    if (!cpu.has(statistic)) continue;
    ++compared;
    const auto a = there.statistic(statistic), b = cpu.statistic(statistic);
    ASSERT_EQ(a.shape, b.shape) << statistic;
    const auto x = a.values<float>(), y = b.values<float>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(std::isfinite(x[i]), std::isfinite(y[i])) << statistic << " " << i;
      if (!std::isfinite(x[i])) continue;
      ASSERT_NEAR(x[i], y[i], most) << statistic << " " << i;
    }
  }
  EXPECT_GT(compared, 0);
}

#ifdef KVATLAS_EMULATED_PROGRAM
// One of each kind: sinks and windows, latent attention, chunks, states beside attention.
INSTANTIATE_TEST_SUITE_P(Emulated, GpuProfile,
                         testing::Values("gpt_oss", "deepseek_v3", "llama4_text", "qwen3_next"),
                         named);
#else
INSTANTIATE_TEST_SUITE_P(Gpu, GpuProfile,
                         testing::ValuesIn(golden_members(golden_path("tiny2/expected.h5"), "/")),
                         named);
#endif

}  // namespace
}  // namespace kvatlas::profile
