// SPDX-License-Identifier: Apache-2.0
// Tasks: prompts made to a length, with answers that are known (docs/tasks.md).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "data/prompts.hpp"

namespace kvatlas::data {

/// The tokens of a prompt, as the model sees it: with its chat format's words, if it is used so.
using CountTokens = std::function<std::int64_t(const Prompt&)>;

inline constexpr std::int64_t kLongestPrompt = 16'777'216;  // tokens

struct TaskRequest {
  std::string task = "needle";  // a name of tasks(), with options: "needle:keys=4,haystack=repeat"
  std::int64_t length = 2048;   // tokens, at most kLongestPrompt
  double depth = 0.5;           // where the (first) answer lies in the haystack, 0 to 1
  std::uint64_t seed = 0;       // below 2^63
  std::int64_t turn = 1;        // which question on the text, up to turns_of(task)
};

/// The prompt that is asked for. As text it has at most `length` tokens, and lacks at most 24 of
/// them or 3 in a hundred. The same request and counter give the same prompt everywhere; another
/// depth or length moves the same answer. Errors: usage, if there is no such task or it does not
/// fit.
Prompt make_prompt(const TaskRequest& request, const CountTokens& count);

struct TaskOption {
  std::string_view name, meaning;
  std::string_view standard;                       // its value if it is not given
  std::int64_t lowest = 0, most = 0;               // of a number
  std::span<const std::string_view> choices = {};  // of a word; empty for a number
};

/// The values that it takes, for people: "1 to 64", "prose|repeat".
std::string values_text(const TaskOption& option);

struct TaskInfo {
  std::string_view name, summary;  // the summary is one sentence
  std::span<const TaskOption> options;
  bool has_depth;  // others ignore TaskRequest::depth
  std::string_view example;
};

std::span<const TaskInfo> tasks();

/// The row of tasks() that a task's name with options belongs to; they are checked.
const TaskInfo& task_info(std::string_view task);

/// How many questions follow each other on one text of a task, given with its options.
std::int64_t turns_of(std::string_view task);

/// Whether a prompt's task is one of tasks(), with options or without.
bool is_task(std::string_view task);
/// Whether a seed makes the prompt again: those of files have a task or a seed at most.
bool is_generated(std::int64_t seed, std::string_view task);

/// How many tokens to generate for the answer of a task, given with its options, or of a LongBench
/// dataset. 0: it has none.
std::int64_t answer_tokens(std::string_view task);
/// How many tokens to generate for the answer of a prompt: as it says itself, or as its task says,
/// or 32 if both say nothing.
std::int64_t answer_tokens(const Prompt& prompt);

}  // namespace kvatlas::data
