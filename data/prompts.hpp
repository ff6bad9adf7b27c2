// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace kvatlas::data {

/// One line of a prompts file. Exactly one of these says what the prompt is: `tokens` (ids, used as
/// they are), `text`, or `context` with `input` (LongBench's layout).
struct Prompt {
  std::string id;    // the line's own, or "line N"
  std::string task;  // also read from LongBench's "dataset"; may be empty
  std::vector<std::int64_t> tokens;
  std::string text;
  std::string context, input;
  std::vector<std::string> answers;
  std::vector<std::string> all_classes;  // the names that a classification chooses from
  std::string language;                  // LongBench's "en", "zh" or "code"; else as the line says
  std::string metric;  // one that data/scores.hpp knows, if the task's is not wanted
  // What a generated prompt was asked for with: tokens at most, where the answer lies (0 to 1), the
  // seed; else 0, -1 and -1. In others' files `length` may count other things than tokens, and
  // where one of the three is something else altogether ("length": "short") it is passed over.
  std::int64_t length = 0;
  double depth = -1;
  std::int64_t seed = -1;

  /// The prompt as text: `text`; the template of a LongBench dataset, filled; or context and input
  /// with an empty line between.
  std::string as_text() const;
};

/// Reads a JSONL file, one prompt a line; empty lines are passed over. Errors name the file and the
/// line.
std::vector<Prompt> read_prompts(const std::filesystem::path& path);

/// One line; the error names neither file nor line.
Prompt parse_prompt(std::string_view line);

/// The line that parse_prompt reads as this prompt, without its end.
std::string prompt_line(const Prompt& prompt);

}  // namespace kvatlas::data
