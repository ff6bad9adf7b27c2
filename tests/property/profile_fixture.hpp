// SPDX-License-Identifier: Apache-2.0
// `kvatlas profile` on the tiny checkpoints: four layers, four heads, 256 tokens of vocabulary.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/profile/statistics.hpp"
#include "tests/support/golden.hpp"
#include "tests/support/model_bytes.hpp"
#include "tests/support/run_program.hpp"

namespace kvatlas::profile {

class ProfileCommand {
 public:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    return folder_.write(name, text).string();
  }

  /// A file of `count` prompts of different lengths.
  std::string prompts(int count, int shortest = 40, int step = 23) const {
    std::string lines;
    for (int i = 0; i < count; ++i) {
      std::string ids;
      for (int j = 0; j < shortest + step * i; ++j)
        ids += (j > 0 ? "," : "") + std::to_string((j * j + 3 * j * i + i) % 256);
      lines += "{\"id\": \"p" + std::to_string(i) + "\", \"tokens\": [" + ids + "]}\n";
    }
    return write("prompts.jsonl", lines);
  }

  /// The words of a run with a grid that fits short prompts.
  std::vector<std::string> words(const std::string& model, const std::string& prompts_file,
                                 const std::string& output,
                                 const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{
        "profile",    "--model",    testing_support::golden_checkpoint(model).string(),
        "--prompts",  prompts_file, "-o",
        path(output), "--lags",     "16,32",
        "--budgets",  "24,40",      "--threads",
        "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  std::string bytes(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  testing_support::TemporaryFolder folder_;
};

}  // namespace kvatlas::profile
