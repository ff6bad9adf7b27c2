// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/prompt_description.hpp"

namespace kvatlas::data {

/// One line of a prompts file. Exactly one of these says what the prompt is: `tokens` (ids, used as
/// they are), `text`, or `context` with `input` (LongBench's layout).
/// A line without an id has "line N". The task is also read from LongBench's "dataset". In others'
/// files `length` may count other things than tokens, and where length, depth or seed is something
/// else altogether ("length": "short") it is passed over.
struct Prompt : PromptDescription {
  std::vector<std::int64_t> tokens;
  std::string text;
  std::string context, input;

  /// The prompt as text: `text`; the template of a LongBench dataset, filled; or context and input
  /// with an empty line between.
  std::string as_text() const;
};

/// Reads a JSONL file, one prompt a line; empty lines are passed over. Errors name the file and the
/// line.
std::vector<Prompt> read_prompts(const std::filesystem::path& path);

/// Reads one line. Errors name neither file nor line.
Prompt parse_prompt(std::string_view line);

/// The line, without its line break, that parse_prompt reads as this prompt.
std::string prompt_line(const Prompt& prompt);

}  // namespace kvatlas::data
