// SPDX-License-Identifier: Apache-2.0
// Result files for tests: made ones in a folder of their own, and those that the tools wrote.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <unistd.h>

#include "calibrate/certify/result_file.hpp"
#include "tests/support/places.hpp"

namespace kvatlas::testing_support {

class ResultFolder {
 public:
  ResultFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("kvatlas_certify_" + std::to_string(getpid()) + "_" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~ResultFolder() { std::filesystem::remove_all(path_); }
  ResultFolder(const ResultFolder&) = delete;
  ResultFolder& operator=(const ResultFolder&) = delete;

  std::string path() const { return path_.string(); }
  /// Writes a file at this place in the folder.
  std::string write(const std::string& name, std::string_view text) const {
    const auto path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }

 private:
  std::filesystem::path path_;
};

/// What a tool wrote: "lm-eval/full".
inline std::string written_by_tool(const std::string& place) {
  return (source_folder() / "tests/golden/data/certify" / place).string();
}

inline calibrate::ResultFile read_one(const std::string& path,
                                      const calibrate::ReadRequest& request = {}) {
  return calibrate::read_results(path, request).at(0);
}

}  // namespace kvatlas::testing_support
