// SPDX-License-Identifier: Apache-2.0
#include "data/prompts.hpp"

#include <fstream>
#include <map>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json_text.hpp"
#include "data/field_tasks.hpp"
#include "data/longbench.hpp"
#include "data/tool_chat.hpp"

namespace kvatlas::data {
namespace {

// Far above any prompt, far below any memory: a line longer than this is not a prompt.
constexpr std::size_t kLongestLine = std::size_t{256} << 20;

/// The task that the name of a file says, as in RULER's vt/validation.jsonl and in
/// scbench_kv.jsonl; or nothing.
std::string task_of_file(const std::filesystem::path& path) {
  for (const auto& name : {path.stem().string(), path.parent_path().filename().string()})
    if (field_task(name)) return name;
  return {};
}

}  // namespace

std::vector<std::string> Prompt::messages() const {
  if (follows && !earlier.empty()) {
    std::vector<std::string> said = first_turn().messages();
    for (std::size_t i = 0; i < earlier.size(); ++i) {
      said.push_back(earlier[i].answer);
      said.push_back(i + 1 < earlier.size() ? earlier[i + 1].input : input);
    }
    return said;
  }
  if (!text.empty()) return {text};
  if (joined) return {context + input};
  if (const auto* dataset = longbench_dataset(task)) return {dataset->fill(context, input)};
  return {input.empty() ? context : context.empty() ? input : context + "\n\n" + input};
}

std::string Prompt::as_text() const {
  const auto said = messages();
  std::string all = said.front();
  for (std::size_t i = 1; i < said.size(); i += 2) all += " " + said[i] + "\n\n" + said[i + 1];
  return all;
}

Prompt Prompt::first_turn() const {
  Prompt first = *this;
  if (!earlier.empty()) {
    first.input = earlier.front().input;
    first.input_messages = earlier.front().input_messages;
  }
  first.earlier.clear();
  return first;
}

std::string Prompt::with_answer_prefix() const {
  // kvpress lets the answer begin on a line of its own.
  return as_text() + (joined && !input.empty() ? "\n" : "") + answer_prefix;
}

std::string prompt_line(const Prompt& prompt) {
  nlohmann::ordered_json line;
  if (!prompt.id.empty()) line["id"] = prompt.id;
  if (!prompt.task.empty()) line["task"] = prompt.task;
  if (!prompt.tools.empty()) {
    line.update(conversation_members(prompt));
  } else if (!prompt.tokens.empty()) {
    line["tokens"] = prompt.tokens;
  } else if (!prompt.text.empty()) {
    line["text"] = prompt.text;
  } else {
    line["context"] = prompt.context;
    line[prompt.joined ? "question" : "input"] = prompt.input;
  }
  if (!prompt.answer_prefix.empty()) line["answer_prefix"] = prompt.answer_prefix;
  if (!prompt.answers.empty() && prompt.tools.empty()) line["answers"] = prompt.answers;
  if (!prompt.all_classes.empty()) line["all_classes"] = prompt.all_classes;
  if (!prompt.language.empty()) line["language"] = prompt.language;
  if (!prompt.metric.empty()) line["metric"] = prompt.metric;
  if (prompt.length > 0) line["length"] = prompt.length;
  if (prompt.depth >= 0) line["depth"] = prompt.depth;
  if (prompt.seed >= 0) line["seed"] = prompt.seed;
  if (prompt.max_new_tokens > 0) line["max_new_tokens"] = prompt.max_new_tokens;
  if (!prompt.group.empty()) line["group"] = prompt.group;
  if (prompt.turn > 0) line["turn"] = prompt.turn;
  if (prompt.tools.empty())
    for (const auto& turn : prompt.earlier)
      line["earlier"].push_back({{"input", turn.input}, {"answer", turn.answer}});
  return json_text(line);
}

PromptsFile read_prompts(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path))
    fail(ErrorCode::unreadable, path.string(), ": is a folder, expected a JSONL file");
  if (!std::filesystem::exists(path))
    fail(ErrorCode::unreadable, "there is no file ", quoted(path.string(), 400));
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::unreadable, path.string(), ": cannot be opened for reading");
  PromptsFile out;
  std::map<std::string, std::string> first_lines;  // of the hash of a context: the line's name
  LineOrigin origin{{}, task_of_file(path)};
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    origin.name = str("line ", number);
    in_context(str(path.string(), ":", number), [&] {
      if (line.size() > kLongestLine) fail(ErrorCode::unreadable, "the line is too long");
      auto parsed = parse_line(line, origin);
      out.unread.insert(parsed.unread.begin(), parsed.unread.end());
      for (auto& prompt : parsed.prompts) {
        if (prompt.joined && prompt.group.empty() && !prompt.context.empty()) {
          Fnv1a hash;
          hash.add(prompt.context);
          prompt.group = "context of " + first_lines.emplace(hash.hex(), origin.name).first->second;
        }
        out.prompts.push_back(std::move(prompt));
      }
    });
  }
  if (file.bad()) fail(ErrorCode::unreadable, path.string(), ": reading failed");
  if (out.prompts.empty()) fail(ErrorCode::unreadable, path.string(), ": holds no prompts");
  return out;
}

}  // namespace kvatlas::data
