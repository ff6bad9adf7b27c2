// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/places.hpp"

inline std::filesystem::path project_root() { return kvatlas::testing_support::source_folder(); }

/// The project's files with one of the extensions ("" for none), relative to its root, sorted. What
/// is built or fetched (build*, demo, dist) and what is hidden, but for .ci, are left out.
inline std::vector<std::string> project_sources(
    std::initializer_list<std::string_view> extensions) {
  namespace fs = std::filesystem;
  std::vector<std::string> found;
  const auto root = project_root();
  for (auto entry = fs::recursive_directory_iterator(root); entry != fs::end(entry); ++entry) {
    const auto name = entry->path().filename().string();
    if (entry->is_directory()) {
      const bool made =
          entry.depth() == 0 && (name.rfind("build", 0) == 0 || name == "demo" || name == "dist");
      if (made || (name[0] == '.' && name != ".ci")) entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && name[0] != '.' &&
               std::count(extensions.begin(), extensions.end(),
                          entry->path().extension().string())) {
      found.push_back(entry->path().lexically_relative(root).string());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}
