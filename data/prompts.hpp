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
  std::string task;  // may be empty
  std::vector<std::int64_t> tokens;
  std::string text;
  std::string context, input;
  std::vector<std::string> answers;

  /// The prompt as text: `text`, or context and input with an empty line between.
  std::string as_text() const;
};

/// Reads a JSONL file, one prompt a line; empty lines are passed over. Errors name the file and the
/// line.
std::vector<Prompt> read_prompts(const std::filesystem::path& path);

/// One line; the error names neither file nor line.
Prompt parse_prompt(std::string_view line);

}  // namespace kvatlas::data
