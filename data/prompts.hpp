// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/prompt_description.hpp"

namespace kvatlas::data {

/// A prompt of a prompts file. Exactly one of these says what the prompt is: `tokens` (ids, used as
/// they are), `text`, or `context` with `input`.
/// In others' files `length` may count other things than tokens, and where length, depth or seed is
/// something else altogether ("length": "short") it is passed over.
struct Prompt : PromptDescription {
  /// A question that was asked of the same context before, and its right answer.
  struct Turn {
    std::string input, answer;
    std::string input_messages = {}, answer_messages = {};  // as in a prompt that asks for calls
  };
  std::vector<std::int64_t> tokens;
  std::string text;
  std::string context, input;
  bool joined = false;  // context and input follow each other as they are, as in kvpress's files
  std::string answer_prefix;  // the answer begins so; the model goes on with it
  std::int64_t turn = 0;      // which question on its context it is, from 1; 0: the only one
  std::vector<Turn> earlier;  // the turns before it
  bool follows = false;       // they are part of the prompt: a conversation
  /// Of a prompt that asks for calls of functions, the same for chat formats that know functions:
  /// the functions, and the messages that `context` and `input` are made of. Lists in OpenAI's
  /// form, as JSON; empty for other prompts (data/tool_chat.hpp).
  std::string tools, context_messages, input_messages;

  /// What is said in turns: by the user, by the model, and by the user at the end. One text, but
  /// for a prompt that follows others.
  std::vector<std::string> messages() const;
  /// The prompt as text, without the answer's beginning: `text`; context and input joined; the
  /// template of a LongBench dataset, filled; or context and input with an empty line between. Of a
  /// conversation, an answer stands behind its question, and an empty line before the next one.
  std::string as_text() const;
  /// The same with the answer's beginning, where there is no chat format to stand between.
  std::string with_answer_prefix() const;
  /// The prompt of the first turn of its context; itself if there was none before it.
  Prompt first_turn() const;
};

/// What a line has from its file.
struct LineOrigin {
  std::string name;  // the id of a prompt whose line has none, such as "line 7"
  std::string task;  // of a line of others that names none, as RULER's and SCBench's
};

/// The prompts of one line, and the members of the line that nobody reads.
struct PromptsOfLine {
  std::vector<Prompt> prompts;
  std::vector<std::string> unread;
};

/// Reads one line in any of the layouts of docs/tasks.md. Errors name neither file nor line.
PromptsOfLine parse_line(std::string_view line, const LineOrigin& origin = {});

/// The line, without its line break, that parse_line reads as this prompt.
std::string prompt_line(const Prompt& prompt);

struct PromptsFile {
  std::vector<Prompt> prompts;
  std::set<std::string> unread;  // members that nobody reads
};

/// Reads a JSONL file; empty lines are passed over. Prompts that name no group and ask about one
/// context with different questions become a group. Errors name the file and the line.
PromptsFile read_prompts(const std::filesystem::path& path);

}  // namespace kvatlas::data
