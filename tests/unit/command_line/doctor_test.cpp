// SPDX-License-Identifier: Apache-2.0
// `kvatlas doctor`, on whatever machine the test runs.
#include <map>
#include <sched.h>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/run_program.hpp"

namespace kvatlas {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing_support::Finished;
using testing_support::kvatlas_program;
using testing_support::run_kvatlas;
using testing_support::run_program;

std::map<std::string, nlohmann::json> parts(const Finished& finished) {
  EXPECT_EQ(finished.status, 0) << finished.err;
  std::map<std::string, nlohmann::json> out;
  for (const auto& one : nlohmann::json::parse(finished.out)) {
    EXPECT_NE(one.at("meaning"), "");
    out[one.at("part")] = one.at("found");
  }
  return out;
}

/// A core that this process may use.
std::string allowed_core() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  int core = 0;
  while (core < CPU_SETSIZE && !CPU_ISSET(core, &set)) ++core;
  return std::to_string(core);
}

TEST(Doctor, SaysWhatTheMachineHas) {
  const auto found = parts(run_kvatlas({"doctor", "--json"}));
  const auto version = run_kvatlas({"--version"}).out;
  const std::string build = found.at("build");
  // "kvatlas 0.1.0 (commit …" and "kvatlas 0.1.0, commit …"
  EXPECT_EQ(build.substr(0, build.find(',')), version.substr(0, version.find(" (")));
  EXPECT_THAT(std::string(found.at("memory")), ContainsRegex("^[0-9.]+ [KMGT]iB free$"));
  EXPECT_THAT(std::string(found.at("disk")), ContainsRegex("^[0-9.]+ [KMGT]iB free"));
  const std::string text = run_kvatlas({"doctor"}).out;
  for (const auto& [part, what] : found) EXPECT_THAT(text, HasSubstr(part));
  // Sentences fit the lines of a terminal; a path is not broken.
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(line.size() <= 100 || line.find('/') != line.npos) << line;
}

TEST(Doctor, SeesTheLimitsItIsGiven) {
  const auto one_core =
      parts(run_program({"/usr/bin/env", "-u", "DISPLAY", "-u", "WAYLAND_DISPLAY", "taskset",
                         "--cpu-list", allowed_core(), kvatlas_program(), "doctor", "--json"}));
  EXPECT_THAT(std::string(one_core.at("processor")), HasSubstr(", 1 core,"));
  EXPECT_THAT(std::string(one_core.at("viewer")), Not(HasSubstr(", display")));
  const auto scalar = parts(run_program(
      {"/usr/bin/env", "KVATLAS_CPU=scalar", "DISPLAY=:5", kvatlas_program(), "doctor", "--json"}));
  EXPECT_THAT(std::string(scalar.at("processor")), HasSubstr(", instructions scalar,"));
}

}  // namespace
}  // namespace kvatlas
