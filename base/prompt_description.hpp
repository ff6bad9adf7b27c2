// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvatlas {

inline constexpr std::int64_t kMostNewTokens = std::int64_t{1} << 20;

/// What is known of a prompt besides its text: files of prompts hold it, and profiles keep it. It
/// is all that scoring an answer needs.
struct PromptDescription {
  std::string id;
  std::string task;                  // may be empty
  std::vector<std::string> answers;  // empty if the prompt asks for nothing that is known
  // What a generated prompt was asked for with. Other prompts have 0, -1 and -1.
  std::int64_t length = 0;  // tokens, at most
  double depth = -1;        // where the answer lies in the text, 0 to 1; -1 for tasks without one
  std::int64_t seed = -1;
  // Prompts that are made of one text (one needle, answer and haystack at several depths or
  // lengths) name one group. A prompt that names none is a group of its own.
  std::string group;
  std::string metric;  // replaces the task's metric; one that data/scores.hpp knows, or empty
  std::vector<std::string> all_classes;  // the names that a classification chooses from
  std::string language;                  // LongBench's "en", "zh" or "code"; else as the line says
  // How many tokens to generate for the answer, if the prompt itself says so: at most
  // kMostNewTokens; else 0.
  std::int64_t max_new_tokens = 0;

  /// What its text is called among all prompts: its task with its group, or with its id if it is a
  /// group of its own.
  std::string text_name() const { return task + '\n' + (group.empty() ? id : group); }

  /// Whether a text of it holds a zero byte: texts of a profile end with one, so none can keep it.
  bool has_zero_byte() const;
};

}  // namespace kvatlas
