// SPDX-License-Identifier: Apache-2.0
// The program, a model of a few numbers, and a folder to write to.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/run_program.hpp"
#include "tests/support/tiny_model.hpp"

namespace kvatlas::testing_support {

class CommandLine : public ::testing::Test {
 protected:
  CommandLine() {
    folder_.write("model/config.json", tiny_hf_config("llama"));
    folder_.write("model/model.safetensors", safetensors_of(tiny_hf_tensors("llama")));
  }
  std::string model() const { return (folder_.path() / "model").string(); }
  std::string write_file(const std::string& name, const std::string& text) const {
    return folder_.write(name, text).string();
  }

  /// Runs it, expecting a refusal: nothing on stdout, one line on stderr, which is returned.
  static std::string refusal(int status, const std::vector<std::string>& arguments) {
    const Finished finished = run_kvatlas(arguments);
    EXPECT_EQ(finished.status, status) << finished.err;
    EXPECT_THAT(finished.out, ::testing::IsEmpty());
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
    EXPECT_THAT(finished.err, ::testing::StartsWith("kvatlas: "));
    return finished.err;
  }

  /// What is printed fits a terminal of 100 columns.
  static void expect_narrow(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace kvatlas::testing_support
