// SPDX-License-Identifier: Apache-2.0
// Result files of other tools: what a run answered, prompt by prompt, and what that scored. One
// source for each format; they are hostile until they are read (docs/certify.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvatlas::calibrate {

/// What a run scored on one prompt.
struct Answer {
  std::string task;
  std::string key;    // what the prompt is called in its task
  std::string same;   // what must be the same on both sides of a pair, or empty
  std::string text;   // prompts with the same are made of one text; empty: not known
  std::string group;  // the member that --group names
  double score = 0;   // as its file counts
  std::string where;  // "samples.jsonl:7"
};

/// A score of which the file keeps the mean alone.
struct Total {
  std::string task;
  double mean = 0;
  std::int64_t count = 0;
};

/// What a file says of itself.
struct OwnMean {
  std::string task;
  double mean = 0, rounding = 0;  // as its scores count; how far off it may be written
};

/// What the same key twice in a file means.
enum class SameKey {
  mistake,    // the file is broken
  repeat,     // the prompt was asked again: the mean counts
  ambiguous,  // the format has no ids: nobody can tell which is which
};

struct ResultFile {
  std::string path;
  std::string_view format;
  std::string metric;
  SameKey same_key = SameKey::mistake;
  std::vector<Answer> answers;
  std::vector<Total> totals;
  std::vector<OwnMean> own_means;
  /// What it says of how it was made. Both sides of a pair must agree on these.
  std::map<std::string, std::string> settings;
};

/// What of a file is to be read; empty means what the file itself leaves no doubt about.
struct ReadRequest {
  std::string format = {};  // a name of result_formats()
  std::string metric = {}, filter = {};
  std::string group = {};  // a member of each answer, with dots: "doc.subject"
};

struct FormatInfo {
  std::string_view name, files, pairs, scores;  // the last three for people
};
std::span<const FormatInfo> result_formats();

/// The file, or all files in a folder and below that are of a known format. Errors name the file
/// and, where there is one, the line.
std::vector<ResultFile> read_results(const std::filesystem::path& path, const ReadRequest& request);

}  // namespace kvatlas::calibrate
