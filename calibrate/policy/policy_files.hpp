// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

namespace kvatlas::calibrate {

struct WholeFile {
  std::filesystem::path path;
  std::string_view text;
};

/// Several files as write_whole (policy.hpp) writes one: all are on the disk before the first takes
/// its name.
void write_whole_files(std::span<const WholeFile> files, bool force);

/// Error(usage): a file is in the way, and --force was not given.
[[noreturn]] void fail_exists(const std::filesystem::path& path);

/// Where the search for a document keeps its trials until it ends: "p.json" -> "p.search.jsonl".
std::filesystem::path search_journal(const std::filesystem::path& output);

}  // namespace kvatlas::calibrate
