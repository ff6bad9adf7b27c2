// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/project/sources.hpp"

#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using testing::Contains;
using testing::IsEmpty;

std::string read(const std::string& file) {
  std::ifstream in(project_root() / file);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Sources, ListFindsThisFileAndTheScripts) {
  EXPECT_THAT(project_sources({".cpp"}), Contains("tests/unit/project/sources_test.cpp"));
  EXPECT_THAT(project_sources({""}), Contains("dev"));
  EXPECT_THAT(project_sources({""}), Contains(".ci/run"));
}

/// The first line says the licence, or the second where the first names the interpreter.
bool has_licence(const std::string& text) {
  auto first = text.substr(0, text.find('\n'));
  if (first.rfind("#!", 0) == 0) {
    const auto rest = text.substr(first.size() + 1);
    first = rest.substr(0, rest.find('\n'));
  }
  return first == "// SPDX-License-Identifier: Apache-2.0" ||
         first == "# SPDX-License-Identifier: Apache-2.0";
}

TEST(Sources, LicenceLine) {
  EXPECT_TRUE(has_licence("# SPDX-License-Identifier: Apache-2.0\n"));
  EXPECT_TRUE(has_licence("#!/bin/sh\n# SPDX-License-Identifier: Apache-2.0\n"));
  EXPECT_FALSE(has_licence("\n// SPDX-License-Identifier: Apache-2.0\n"));
  EXPECT_FALSE(has_licence("int main() {}"));

  std::vector<std::string> without;
  for (const auto& file : project_sources({".cpp", ".hpp", ".cu", ".cuh", ".cmake", ".py", ".sh"}))
    if (!has_licence(read(file))) without.push_back(file);
  for (const auto& file : project_sources({".txt"}))
    if (std::filesystem::path(file).filename() == "CMakeLists.txt" && !has_licence(read(file)))
      without.push_back(file);
  for (const auto* script : {"dev", ".ci/run"})
    if (!has_licence(read(script))) without.push_back(script);
  EXPECT_THAT(without, IsEmpty());
}

TEST(Sources, NameNoMachinesFolders) {
  std::vector<std::string> found;
  for (const auto& file : project_sources(
           {".cpp", ".hpp", ".cu", ".cuh", ".cmake", ".py", ".sh", ".md", ".json", ".txt", ""})) {
    if (file.rfind("tests/fuzz/corpus/", 0) == 0) continue;
    const auto text = read(file);
    for (const char* folder : {"home", "work", "root", "Users"})
      if (text.find(std::string("/") + folder + "/") != text.npos)
        found.push_back(file + " names a path under /" + folder);
  }
  EXPECT_THAT(found, IsEmpty());
}

}  // namespace
