// SPDX-License-Identifier: Apache-2.0
// The same question, asked with other numbers of threads and on other processors
// (docs/determinism.md has the bounds).
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analyzer/profile/statistics.hpp"
#include "calibrate/policy/policy.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/run_program.hpp"
#include "tests/support/text_of.hpp"

namespace kvatlas {
namespace {

using namespace testing_support;
namespace fs = std::filesystem;
namespace name = profile::name;

/// Sets variables for the programs that are started while it lives.
class Environment {
 public:
  explicit Environment(std::map<std::string, std::string> values) : values_(std::move(values)) {
    for (const auto& [key, value] : values_) setenv(key.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [key, value] : values_) unsetenv(key.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::map<std::string, std::string> values_;
};

/// As a processor with SSE 4 alone would do it: our kernels, LibTorch's and oneDNN's.
const std::map<std::string, std::string> kOldProcessor = {
    {"KVATLAS_CPU", "sse4"}, {"ATEN_CPU_CAPABILITY", "default"}, {"ONEDNN_MAX_CPU_ISA", "SSE41"}};

class Determinism : public testing::Test {
 protected:
  /// A short needle and a pass key, with all statistics and one map.
  fs::path profiled(const char* file, const char* threads,
                    const std::string& program = kvatlas_program()) const {
    fs::path path = folder_.path() / file;
    const Finished finished = run_program({program,
                                           "profile",
                                           "--model",
                                           demo_model(),
                                           "--task",
                                           "needle",
                                           "--task",
                                           "passkey",
                                           "--lengths",
                                           "200",
                                           "--depths",
                                           "0.5",
                                           "--map-samples",
                                           "1",
                                           "--initial",
                                           "4,16",
                                           "--recent",
                                           "64",
                                           "--lags",
                                           "32",
                                           "--budgets",
                                           "64",
                                           "--threads",
                                           threads,
                                           "-o",
                                           path.string()});
    EXPECT_EQ(finished.status, 0) << finished.err;
    return path;
  }
  fs::path calibrated(const fs::path& profile) const {
    fs::path path = profile;
    path.replace_extension(".json");
    const Finished finished = run_kvatlas({"calibrate", "all", "-p", profile.string(), "--recent",
                                           "64", "--threshold", "0.7", "--delta", "0.5", "--budget",
                                           "64", "--lags", "32", "--force", "-o", path.string()});
    EXPECT_EQ(finished.status, 0) << finished.err;
    return path;
  }
  void expect_same_decisions(const fs::path& ours, const fs::path& theirs) const {
    const auto a = calibrate::read_document(calibrated(ours)),
               b = calibrate::read_document(calibrated(theirs));
    for (const char* section : {"simlayerkv", "pod"})
      EXPECT_EQ(a.sections.at(section).at("result"), b.sections.at(section).at("result"));
  }
  TemporaryFolder folder_;
};

TEST_F(Determinism, ThreadsChangeNothing) {
  const auto one = profiled("one.h5", "1"), two = profiled("two.h5", "2"),
             three = profiled("three.h5", "3");
  EXPECT_EQ(text_of(one), text_of(two));
  EXPECT_EQ(text_of(one), text_of(three));
  EXPECT_EQ(text_of(calibrated(one)), text_of(calibrated(two)));
}

/// The greatest difference of a statistic over all samples; missing values must be the same ones.
double difference(const profile::Reader& first, const profile::Reader& second,
                  const std::string& statistic) {
  const auto a = first.statistic(statistic), b = second.statistic(statistic);
  EXPECT_EQ(a.shape, b.shape) << statistic;
  const auto x = a.values<float>(), y = b.values<float>();
  double greatest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(std::isfinite(x[i]), std::isfinite(y[i])) << statistic << " " << i;
    if (std::isfinite(x[i]))
      greatest = std::max(greatest, std::abs(static_cast<double>(x[i]) - y[i]));
  }
  return greatest;
}

void expect_rounding_alone(const profile::Reader& a, const profile::Reader& b) {
  for (const char* statistic : {name::kDecodeMass, name::kMass, name::kKeptMass})
    EXPECT_LT(difference(a, b, statistic), 5e-5) << statistic;
  EXPECT_LT(difference(a, b, name::kDivergence), 1e-5);
  // Tokens with equal scores up to rounding may take each other's place.
  const auto first = a.statistic(name::kCounts), second = b.statistic(name::kCounts);
  const auto x = first.values<std::int32_t>(), y = second.values<std::int32_t>();
  ASSERT_EQ(x.size(), y.size());
  std::size_t differing = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(std::abs(x[i] - y[i]), 2);
    differing += x[i] != y[i] ? 1 : 0;
  }
  EXPECT_LT(differing, x.size() / 50);
}

TEST_F(Determinism, ProcessorsDifferByRoundingAlone) {
  const auto here = profiled("here.h5", "2");
  fs::path there;
  {
    const Environment old(kOldProcessor);
    there = profiled("there.h5", "2");
  }
  const profile::Reader a(here), b(there);
  EXPECT_THAT(b.header().backend, testing::HasSubstr("sse4"));
  expect_rounding_alone(a, b);
  expect_same_decisions(here, there);
}

#ifdef KVATLAS_EMULATED_PROGRAM
TEST_F(Determinism, CudaKernelsDifferByRoundingAlone) {
  const auto cpu = profiled("cpu.h5", "2"),
             cuda = profiled("cuda.h5", "2", KVATLAS_EMULATED_PROGRAM);
  EXPECT_NE(text_of(cpu), text_of(cuda));  // other kernels did run
  expect_rounding_alone(profile::Reader(cpu), profile::Reader(cuda));
  expect_same_decisions(cpu, cuda);
}

/// What policies keep and generate, a line a policy.
std::vector<nlohmann::json> evaluated(const std::string& program, const fs::path& prompts) {
  const Finished finished = run_program({program,
                                         "evaluate",
                                         "--model",
                                         demo_model(),
                                         "--prompts",
                                         prompts.string(),
                                         "--new",
                                         "4",
                                         "--ignore-eos",
                                         "--json",
                                         "--generations",
                                         "--time-steps",
                                         "0",
                                         "--policy",
                                         "streaming:initial=4,recent=32",
                                         "--policy",
                                         "simlayerkv:initial=4,recent=32,threshold=0.7",
                                         "--policy",
                                         "lagkv:sink=4,lag=32,ratio=0.5",
                                         "--policy",
                                         "streaming:initial=4,recent=64+kv4"});
  EXPECT_EQ(finished.status, 0) << finished.err;
  std::vector<nlohmann::json> lines;
  std::istringstream out(finished.out);
  for (std::string line; std::getline(out, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST_F(Determinism, CudaKernelsKeepAndGenerateTheSame) {
  std::string text;
  for (int i = 0; i < 14; ++i)
    text += str("Line ", i, ": the code of box ", i, " is ", i * 37 % 101, ". ");
  const auto prompts = folder_.write(
      "boxes.jsonl",
      nlohmann::json{{"id", "boxes"}, {"text", text + "The code of box 3 is"}}.dump());
  auto cpu = evaluated(kvatlas_program(), prompts),
       cuda = evaluated(KVATLAS_EMULATED_PROGRAM, prompts);
  ASSERT_EQ(cpu.size(), 5u);
  ASSERT_EQ(cuda.size(), cpu.size());
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    EXPECT_NEAR(cpu[i].at("kl").get<double>(), cuda[i].at("kl").get<double>(), 1e-5);
    const std::vector<double> none, a = cpu[i].value("mass", none), b = cuda[i].value("mass", none);
    EXPECT_THAT(a, testing::Pointwise(testing::DoubleNear(5e-5), b));
    for (auto* line : {&cpu[i], &cuda[i]})
      for (const char* rounded : {"kl", "mass"}) line->erase(rounded);
    EXPECT_EQ(cpu[i], cuda[i]);
  }
}
#endif

}  // namespace
}  // namespace kvatlas
