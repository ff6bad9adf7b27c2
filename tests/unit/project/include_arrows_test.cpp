// SPDX-License-Identifier: Apache-2.0
// The arrows between folders, and where heavy headers may appear: what the design allows, checked
// on every #include line of the project.
#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/str.hpp"
#include "tests/unit/project/sources.hpp"

namespace {

using kvatlas::str;
using testing::HasSubstr;
using testing::IsEmpty;

struct Rule {
  std::string_view folder;             // a file obeys the longest one that it lies under
  std::vector<std::string_view> uses;  // beginnings of the paths that it may include
};

// A folder may always use itself and kernels/base.
const std::vector<Rule> kRules = {
    {"kernels/", {}},
    {"kernels/base/", {}},
    {"data/", {}},
    {"analyzer/", {"kernels/", "data/"}},
    {"analyzer/model/", {"kernels/"}},
    {"analyzer/profile/", {"kernels/", "analyzer/model/"}},
    {"analyzer/capture/", {"kernels/", "data/", "analyzer/"}},
    {"calibrate/", {"kernels/", "data/", "analyzer/"}},
    {"export/", {"calibrate/policy", "calibrate/runtimes", "analyzer/model/json_text"}},
    {"reference/", {"analyzer/model/json_text"}},
    {"viewer/",
     {"analyzer/profile/", "analyzer/model/json_text", "analyzer/model/unicode_text",
      "calibrate/policy", "calibrate/rules", "calibrate/runtimes", "export/"}},
    {"tests/", {""}},
    {"main.cpp", {""}},
};

// Of the standard library's and others' headers, the heavy ones: where their includes may stand.
const std::vector<Rule> kHeavy = {
    {"torch/", {"analyzer/capture/", "calibrate/", "tests/"}},
    {"ATen/", {"analyzer/capture/", "calibrate/", "tests/"}},
    {"c10/", {"analyzer/capture/", "calibrate/", "tests/"}},
    {"hdf5", {"analyzer/profile/", "tests/"}},
    {"H5", {"analyzer/profile/", "tests/"}},
    {"hwy/", {"kernels/", "tests/"}},
    {"cuda", {"kernels/", "tests/"}},
    {"Q", {"viewer/draw/", "viewer/window/", "tests/"}},
};

bool begins(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

bool begins_any(std::string_view text, const std::vector<std::string_view>& starts) {
  return std::any_of(starts.begin(), starts.end(), [&](auto start) { return begins(text, start); });
}

/// A header that others include: not one folder's own (*_impl.hpp), not a body (*-inl.hpp, .cuh).
bool is_public_header(std::string_view file) {
  const auto ends = [&](std::string_view end) {
    return file.size() >= end.size() && file.substr(file.size() - end.size()) == end;
  };
  return ends(".hpp") && !ends("_impl.hpp") && !ends("-inl.hpp") && !begins(file, "tests/");
}

/// Why `file` may not have this include; "" if it may.
std::string violation(std::string_view file, std::string_view included, bool quoted) {
  if (!quoted) {
    for (const auto& [header, places] : kHeavy) {
      if (!begins(included, header)) continue;
      if (!begins_any(file, places)) return str(file, ": <", included, "> does not belong here");
      if (is_public_header(file) && header != "Q")
        return str(file, ": <", included, "> is too heavy for a public header");
    }
    return "";
  }
  const Rule* rule = nullptr;
  for (const auto& candidate : kRules)
    if (begins(file, candidate.folder) && (!rule || candidate.folder.size() > rule->folder.size()))
      rule = &candidate;
  if (!rule) return str(file, ": its folder is not in the table of the design");
  if (included.find("_impl.hpp") != included.npos && !begins(file, "tests/") &&
      included.substr(0, included.rfind('/')) != file.substr(0, file.rfind('/')))
    return str(file, ": ", included, " belongs to its own folder alone");
  if (begins(included, rule->folder) || begins(included, "kernels/base/") ||
      begins_any(included, rule->uses))
    return "";
  return str(file, ": may not use ", included);
}

TEST(IncludeArrows, RuleTable) {
  EXPECT_EQ(violation("calibrate/pod.cpp", "analyzer/profile/profile.hpp", true), "");
  EXPECT_EQ(violation("kernels/a.cpp", "kernels/base/view.hpp", true), "");
  EXPECT_EQ(violation("analyzer/capture/ops.cpp", "ATen/ATen.h", false), "");
  EXPECT_EQ(violation("analyzer/capture/ops_impl.hpp", "ATen/ATen.h", false), "");
  EXPECT_THAT(violation("kernels/a.cpp", "analyzer/model/gguf.hpp", true),
              HasSubstr("may not use"));
  EXPECT_THAT(violation("kernels/base/a.cpp", "kernels/window_mass.hpp", true),
              HasSubstr("may not use"));
  EXPECT_THAT(violation("analyzer/profile/p.cpp", "analyzer/capture/engine.hpp", true),
              HasSubstr("may not use"));
  EXPECT_THAT(violation("export/a.cpp", "calibrate/search.hpp", true), HasSubstr("may not use"));
  EXPECT_THAT(violation("viewer/a.cpp", "calibrate/pod.hpp", true), HasSubstr("may not use"));
  EXPECT_THAT(violation("misc/a.cpp", "kernels/base/str.hpp", true), HasSubstr("not in the table"));
  EXPECT_THAT(violation("calibrate/a.cpp", "analyzer/capture/ops_impl.hpp", true),
              HasSubstr("its own folder"));
  EXPECT_THAT(violation("analyzer/model/a.cpp", "torch/torch.h", false),
              HasSubstr("does not belong"));
  EXPECT_THAT(violation("analyzer/capture/engine.hpp", "ATen/ATen.h", false),
              HasSubstr("too heavy"));
}

TEST(IncludeArrows, EveryInclude) {
  std::vector<std::string> wrong;
  int includes = 0;
  for (const auto& file : project_sources({".cpp", ".hpp", ".cu", ".cuh"})) {
    std::ifstream in(project_root() / file);
    for (std::string line; std::getline(in, line);) {
      const auto start = line.find_first_not_of(" \t");
      if (start == line.npos || !begins(std::string_view(line).substr(start), "#include")) continue;
      const auto open = line.find_first_of("<\"", start);
      const auto close = line.find_first_of(">\"", open + 1);
      if (open == line.npos || close == line.npos) continue;  // a macro names the header
      ++includes;
      const auto why = violation(file, line.substr(open + 1, close - open - 1), line[open] == '"');
      if (!why.empty()) wrong.push_back(why);
    }
  }
  EXPECT_GT(includes, 50);
  EXPECT_THAT(wrong, IsEmpty());
}

}  // namespace
