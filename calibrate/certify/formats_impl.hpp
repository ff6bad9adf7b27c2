// SPDX-License-Identifier: Apache-2.0
// What the readers of result files share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/mapped_file.hpp"
#include "calibrate/certify/result_file.hpp"

namespace kvatlas::calibrate {

/// A file whose format is to be recognised.
struct Source {
  std::filesystem::path path;
  std::string_view text;
  enum class Shape { lines, document, table } shape = Shape::lines;
  nlohmann::json head;               // the first line's object, or the whole document
  std::vector<std::string> columns;  // of a table

  bool has(const char* member) const { return head.is_object() && head.contains(member); }
};

/// One format: its file recognised, and read into `out`, whose path and format are set.
struct Format {
  FormatInfo info;
  bool (*knows)(const Source&);
  void (*read)(const Source&, const ReadRequest&, ResultFile& out);
  bool totals = false;  // in a folder it is looked for where there are no answers
};
Format answered_prompts_format();
Format lm_eval_format();
Format lm_eval_totals_format();
Format kvpress_format();
Format ruler_format();
Format longbench_format();
Format longbench_v2_format();
Format helmet_format();
Format inspect_ai_format();
Format opencompass_format();
Format evalplus_format();
Format evalscope_format();

inline constexpr int kDeepestResult = 64;
/// Adds an answer; Error(unreadable) if there are more than any benchmark has.
void add_answer(ResultFile& file, Answer answer);

/// A text that stands for another: itself if it is short, else a hash of it.
std::string short_key(std::string_view text);

/// Calls `use` with each line's object and with "FILE:LINE". Empty lines are passed over. An Error
/// gets that place.
void for_each_line(const Source& source,
                   const std::function<void(const nlohmann::json&, const std::string&)>& use);

/// The member, or null. Of "doc.subject" the member of a member.
const nlohmann::json* find_member(const nlohmann::json& object, std::string_view path);
/// It, which must be there.
const nlohmann::json& need_member(const nlohmann::json& object, std::string_view path);
/// A text, or a number as its text. Error(unreadable) for anything else, or if it is missing.
std::string text_member(const nlohmann::json& object, std::string_view path);
/// What `--group` names in this object, if it was given.
std::string group_of(const nlohmann::json& object, const ReadRequest& request);

/// A score: a finite number, or true and false. Error(unreadable) that names `metric` otherwise.
double score_of(const nlohmann::json& value, const std::string& metric);

/// The metric that the request names, which must be one of these, or the only one there is.
/// Error(usage) lists them.
std::string choose_metric(const std::vector<std::string>& there, const ReadRequest& request);
/// The same for `--filter`.
std::string choose_filter(const std::vector<std::string>& there, const ReadRequest& request);

/// The score of an answer that a file does not score itself: by the metric that the request names
/// (as in docs/tasks.md), or by the task's. A dataset of LongBench and a task of RULER have one.
/// Error(usage) for other tasks.
struct Recomputed {
  std::string metric;
  double score = 0;
};
Recomputed recompute(const std::string& task, const std::string& generated,
                     std::vector<std::string> answers, std::vector<std::string> all_classes,
                     const ReadRequest& request);
/// A list of texts, or one text. Error(unreadable) otherwise.
std::vector<std::string> texts_member(const nlohmann::json& object, std::string_view path);

/// A JSON file beside another, if it is there and can be read; else null. What stands in it is a
/// help and no more.
nlohmann::json neighbour(const std::filesystem::path& path);

/// The file's twin in another folder of the run, as OpenCompass has predictions/ and results/;
/// empty if the path has no folder `from`.
std::filesystem::path twin_in(const std::filesystem::path& path, const char* from, const char* to);

/// Rows of CSV (RFC 4180; lines may end with either break). Errors name the file and the line.
class CsvReader {
 public:
  CsvReader(const std::filesystem::path& path, std::string_view text);
  /// The next row; false at the end. Error(unreadable) for a field that does not end, or that goes
  /// on behind its quotes.
  bool next(std::vector<std::string>& row);
  /// Where the last row began: "FILE:LINE".
  std::string where() const;

 private:
  std::string path_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1, row_line_ = 1;
};

/// A list of texts as Python or numpy prints it: "['a', 'b']", and without commas and with line
/// breaks. Anything that does not begin with a bracket is one text. Error(unreadable) for a list
/// that was shortened or that does not end.
std::vector<std::string> python_texts(std::string_view text);

}  // namespace kvatlas::calibrate
