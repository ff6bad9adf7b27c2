// SPDX-License-Identifier: Apache-2.0
// The lists of models in README.md and docs/models.md are the loader's table. With
// KVATLAS_WRITE_GOLDEN=1 they are written anew, and the tests fail so that somebody looks at them.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>

#include <gtest/gtest.h>

#include "analyzer/config/config_files.hpp"
#include "analyzer/config/families_hf.hpp"
#include "base/str.hpp"
#include "tests/support/places.hpp"

namespace kvatlas::model {
namespace {

std::string in_code(std::string_view name) { return name.empty() ? "-" : str("`", name, "`"); }

/// By architecture, in the order of the alphabet.
std::map<std::string, const HfFamily*> families() {
  std::map<std::string, const HfFamily*> all;
  for (const HfFamily& family : hf_families())
    all[architecture_name(family.architecture)] = &family;
  return all;
}

std::string table() {
  std::string out =
      "| architecture | model_type | in GGUF | what is special |\n|---|---|---|---|\n";
  for (const auto& [name, family] : families()) {
    const std::string_view gguf =
        family->in_gguf != nullptr ? family->in_gguf : gguf_name(family->architecture);
    out += str("| ", in_code(name), " | ", in_code(family->type), " | ", in_code(gguf), " | ",
               family->special, " |\n");
  }
  return out;
}

/// "`a`, `b` and `c`", in lines of at most 120 characters that go on under a list's item.
std::string names() {
  const auto all = families();
  std::string out, line = "  ";
  std::size_t left = all.size();
  for (const auto& [name, family] : all) {
    --left;
    const std::string word = in_code(name) + (left > 1 ? "," : left == 1 ? " and" : "");
    if (line.size() + word.size() + 1 > 120) {
      out += line + "\n";
      line = "  ";
    }
    line += (line == "  " ? "" : " ") + word;
  }
  return out + line;
}

/// Expects the text between two others in a page.
void expect_between(const char* page, const std::string& begin, const std::string& end,
                    const std::string& text) {
  const auto path = kvatlas::testing_support::source_folder() / page;
  std::ifstream in(path, std::ios::binary);
  std::string whole{std::istreambuf_iterator<char>(in), {}};
  const auto from = whole.find(begin);
  const auto to = from == whole.npos ? from : whole.find(end, from + begin.size());
  ASSERT_NE(to, whole.npos) << page;
  const auto at = from + begin.size();
  if (std::getenv("KVATLAS_WRITE_GOLDEN")) {
    whole.replace(at, to - at, text);
    std::ofstream(path, std::ios::binary) << whole;
    FAIL() << "written anew: look at " << page << ", then run without KVATLAS_WRITE_GOLDEN";
  }
  EXPECT_EQ(whole.substr(at, to - at), text);
}

TEST(FamiliesPage, DocsModelsIsTheLoadersTable) {
  expect_between("docs/models.md", "give the same values.\n\n", "\n## ", table());
}

TEST(FamiliesPage, ReadmeNamesTheLoadersTable) {
  expect_between("README.md", "- **Architectures** ([what is special in each](docs/models.md)):\n",
                 ".\n", names());
}

TEST(FamiliesPage, EveryArchitectureHasARowThatSaysSomething) {
  EXPECT_EQ(families().size(), architecture_names().size());
  for (const auto& [name, family] : families()) EXPECT_STRNE(family->special, "") << name;
}

}  // namespace
}  // namespace kvatlas::model
