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

#include "base/str.hpp"
#include "tests/unit/project/sources.hpp"

namespace {

using kvatlas::str;
using testing::HasSubstr;
using testing::IsEmpty;

struct Folder {
  std::string_view name;
  std::vector<std::string_view> uses;  // besides itself and base
};

// From the bottom up: a folder uses only folders that stand before it, so there is no circle.
const std::vector<Folder> kFolders = {
    {"base", {}},
    {"kernels", {}},
    {"data", {}},
    {"analyzer/checkpoint", {}},
    {"analyzer/config", {"analyzer/checkpoint"}},
    {"analyzer/tokenizer", {"analyzer/checkpoint"}},
    {"analyzer/jinja", {"analyzer/tokenizer"}},
    {"analyzer/model", {"analyzer/checkpoint", "analyzer/config", "analyzer/tokenizer"}},
    {"analyzer/profile",
     {"kernels", "analyzer/checkpoint", "analyzer/config", "analyzer/jinja", "analyzer/model"}},
    {"analyzer/capture",
     {"kernels", "data", "analyzer/config", "analyzer/jinja", "analyzer/model",
      "analyzer/profile"}},
    {"calibrate/policy", {"kernels"}},
    {"calibrate/runtimes", {"kernels", "calibrate/policy"}},
    {"calibrate/rules",
     {"kernels", "data", "analyzer/profile", "calibrate/policy", "calibrate/runtimes"}},
    {"calibrate/report", {"calibrate/policy", "calibrate/rules"}},
    {"calibrate/simulate",
     {"kernels", "analyzer/config", "analyzer/profile", "analyzer/capture", "calibrate/policy",
      "calibrate/rules"}},
    {"calibrate/methods",
     {"kernels", "data", "analyzer/profile", "calibrate/policy", "calibrate/runtimes",
      "calibrate/rules", "calibrate/report"}},
    {"calibrate/certify",
     {"kernels", "data", "calibrate/policy", "calibrate/rules", "calibrate/report"}},
    {"calibrate/endpoint", {"kernels", "calibrate/rules"}},
    {"calibrate/search",
     {"kernels", "data", "analyzer/checkpoint", "analyzer/tokenizer", "analyzer/jinja",
      "analyzer/model", "analyzer/profile", "analyzer/capture", "calibrate/policy",
      "calibrate/runtimes", "calibrate/rules", "calibrate/report", "calibrate/simulate",
      "calibrate/methods", "calibrate/certify", "calibrate/endpoint"}},
    {"calibrate/inspect",
     {"analyzer/config", "analyzer/model", "analyzer/profile", "calibrate/policy",
      "calibrate/runtimes", "calibrate/rules", "calibrate/report"}},
    {"export",
     {"analyzer/checkpoint", "analyzer/config", "analyzer/model", "analyzer/profile",
      "calibrate/policy", "calibrate/runtimes", "calibrate/rules", "calibrate/report"}},
    {"reference", {"kernels"}},
    {"viewer/maps", {"analyzer/profile"}},
    {"viewer/models",
     {"analyzer/profile", "calibrate/policy", "calibrate/runtimes", "calibrate/rules",
      "calibrate/report", "viewer/maps"}},
    {"viewer/methods",
     {"analyzer/profile", "calibrate/policy", "calibrate/rules", "calibrate/report", "viewer/maps",
      "viewer/models"}},
    {"viewer/threads", {}},
    {"viewer/draw",
     {"analyzer/profile", "calibrate/policy", "calibrate/rules", "calibrate/report", "viewer/maps",
      "viewer/models", "viewer/methods"}},
    {"viewer/screens",
     {"analyzer/profile", "calibrate/policy", "calibrate/rules", "viewer/maps", "viewer/models",
      "viewer/methods", "viewer/threads", "viewer/draw"}},
    {"viewer/frame",
     {"analyzer/profile", "calibrate/policy", "calibrate/runtimes", "calibrate/rules", "export",
      "viewer/maps", "viewer/models", "viewer/methods", "viewer/threads", "viewer/draw",
      "viewer/screens"}},
};

// Headers of others that take long to compile or bring a library along: the folders that may
// include them.
const std::vector<Folder> kHeavy = {
    {"torch/", {"analyzer/capture", "calibrate/simulate"}},
    {"ATen/", {"analyzer/capture", "calibrate/simulate"}},
    {"c10/", {"analyzer/capture", "calibrate/simulate"}},
    {"hdf5", {"analyzer/profile"}},
    {"H5", {"analyzer/profile"}},
    {"hwy/", {"kernels"}},
    {"cuda", {"kernels", "base"}},
    {"curl/", {"calibrate/endpoint"}},
    {"Q", {"viewer/threads", "viewer/draw", "viewer/screens", "viewer/frame"}},
};

bool begins(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

bool ends(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool holds(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// The folder that a file lies in; "" for the project's root.
std::string_view folder_of(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == path.npos ? "" : path.substr(0, slash);
}

const Folder* find_folder(std::string_view name) {
  const auto found = std::find_if(kFolders.begin(), kFolders.end(),
                                  [&](const Folder& folder) { return folder.name == name; });
  return found == kFolders.end() ? nullptr : &*found;
}

/// Tests and the two programs put everything together: they may use whatever they like.
bool is_free(std::string_view file) {
  return begins(file, "tests/") || file == "main.cpp" || file == "viewer/main.cpp";
}

/// A header that others include: not one folder's own (*_impl.hpp), not a body (*-inl.hpp, .cuh).
bool is_public_header(std::string_view file) {
  return ends(file, ".hpp") && !ends(file, "_impl.hpp") && !ends(file, "-inl.hpp") &&
         !begins(file, "tests/");
}

/// Why `file` may not include this header of another project; "" if it may.
std::string heavy_violation(std::string_view file, std::string_view included) {
  for (const auto& [header, folders] : kHeavy) {
    if (!begins(included, header)) continue;
    if (!begins(file, "tests/") && !holds(folders, folder_of(file)))
      return str(file, ": <", included, "> does not belong here");
    if (is_public_header(file) && header != "Q")
      return str(file, ": <", included, "> is too heavy for a public header");
  }
  return "";
}

/// Why `file` may not include this header of ours; "" if it may.
std::string violation(std::string_view file, std::string_view included) {
  const auto from = folder_of(file), to = folder_of(included);
  if (included.find("_impl.hpp") != included.npos && !begins(file, "tests/") && from != to)
    return str(file, ": ", included, " belongs to its own folder alone");
  if (is_free(file)) return "";
  const Folder* folder = find_folder(from);
  if (!folder) return str(file, ": its folder is not in the table of the design");
  if (to == from || to == "base" || holds(folder->uses, to)) return "";
  return str(file, ": may not use ", included);
}

TEST(IncludeArrows, PointDown) {
  std::vector<std::string_view> before;
  for (const auto& folder : kFolders) {
    for (const auto used : folder.uses)
      EXPECT_TRUE(holds(before, used)) << folder.name << " uses " << used;
    before.push_back(folder.name);
  }
}

TEST(IncludeArrows, RuleTable) {
  EXPECT_EQ(violation("calibrate/methods/pod.cpp", "analyzer/profile/profile.hpp"), "");
  EXPECT_EQ(violation("kernels/a.cpp", "base/view.hpp"), "");
  EXPECT_EQ(violation("main.cpp", "calibrate/search/search.hpp"), "");
  EXPECT_EQ(heavy_violation("analyzer/capture/ops.cpp", "ATen/ATen.h"), "");
  EXPECT_EQ(heavy_violation("analyzer/capture/ops_impl.hpp", "ATen/ATen.h"), "");
  EXPECT_THAT(violation("kernels/a.cpp", "analyzer/checkpoint/gguf.hpp"), HasSubstr("may not use"));
  EXPECT_THAT(violation("base/a.cpp", "kernels/last_rows.hpp"), HasSubstr("may not use"));
  EXPECT_THAT(violation("analyzer/profile/p.cpp", "analyzer/capture/engine.hpp"),
              HasSubstr("may not use"));
  EXPECT_THAT(violation("export/a.cpp", "calibrate/search/search.hpp"), HasSubstr("may not use"));
  EXPECT_THAT(violation("viewer/models/a.cpp", "calibrate/methods/pod.hpp"),
              HasSubstr("may not use"));
  EXPECT_THAT(violation("misc/a.cpp", "base/str.hpp"), HasSubstr("not in the table"));
  EXPECT_THAT(violation("calibrate/simulate/a.cpp", "analyzer/capture/ops_impl.hpp"),
              HasSubstr("its own folder"));
  EXPECT_THAT(heavy_violation("analyzer/model/a.cpp", "torch/torch.h"),
              HasSubstr("does not belong"));
  EXPECT_THAT(heavy_violation("analyzer/capture/engine.hpp", "ATen/ATen.h"),
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
      const auto header = line.substr(open + 1, close - open - 1);
      const auto why = line[open] == '"' ? violation(file, header) : heavy_violation(file, header);
      if (!why.empty()) wrong.push_back(why);
    }
  }
  EXPECT_GT(includes, 50);
  EXPECT_THAT(wrong, IsEmpty());
}

}  // namespace
