// SPDX-License-Identifier: Apache-2.0
#include "data/prompts.hpp"

#include <algorithm>
#include <fstream>
#include <limits>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "data/longbench.hpp"
#include "data/scores.hpp"

namespace kvatlas::data {
namespace {

using nlohmann::json;

// Far above any prompt, far below any memory: a line longer than this is not a prompt.
constexpr std::size_t kLongestLine = std::size_t{256} << 20;
constexpr int kDeepestNesting = 16;

std::string text_of(const json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || found->is_null()) return {};
  if (!found->is_string()) fail(ErrorCode::unreadable, "'", key, "' is not a text");
  return found->get<std::string>();
}

/// An id may be written as a text or as a whole number.
std::string id_of(const json& line, const char* key) {
  const auto found = line.find(key);
  if (found != line.end() && found->is_number_integer()) return found->dump();
  return text_of(line, key);
}

std::vector<std::int64_t> tokens_of(const json& value) {
  if (!value.is_array() || value.empty())
    fail(ErrorCode::unreadable, "'tokens' is not a list of token ids");
  std::vector<std::int64_t> tokens;
  for (const auto& token : value) {
    if (!token.is_number_integer() ||
        (token.is_number_unsigned() &&
         token.get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max()))
      fail(ErrorCode::unreadable, "'tokens' holds ", printable(token.dump(), 40),
           ", which is not a token id");
    tokens.push_back(token.get<std::int64_t>());
  }
  return tokens;
}

std::vector<std::string> texts_of(const json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || found->is_null()) return {};
  if (!found->is_array() ||
      !std::all_of(found->begin(), found->end(), [](const json& text) { return text.is_string(); }))
    fail(ErrorCode::unreadable, "'", key, "' is not a list of texts");
  return found->get<std::vector<std::string>>();
}

std::vector<std::string> answers_of(const json& line) {
  const auto found = line.find("answers");
  if (found != line.end() && found->is_string()) return {found->get<std::string>()};
  return texts_of(line, "answers");
}

std::string metric_of(const json& line) {
  std::string metric = text_of(line, "metric");
  if (!metric.empty())
    in_context("'metric'", [&] { require_metric(metric, ErrorCode::unreadable); });
  return metric;
}

/// A whole number from 0 up to 2^63 - 1; `missing` if the line says none, or something else: other
/// people's files may mean other things by the name (LongBench v2 has "length": "short").
std::int64_t count_of(const json& line, const char* key, std::int64_t missing) {
  const auto found = line.find(key);
  const bool usable =
      found != line.end() && found->is_number_unsigned() &&
      found->get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  return usable ? found->get<std::int64_t>() : missing;
}

/// A number from 0 to 1; -1 if the line says none, or something else.
double depth_of(const json& line) {
  const auto found = line.find("depth");
  const double depth = found != line.end() && found->is_number() ? found->get<double>() : -1;
  return depth >= 0 && depth <= 1 ? depth : -1;
}

json parse_shallow(std::string_view text) {
  const auto too_deep = [](int depth, json::parse_event_t, json&) {
    if (depth > kDeepestNesting) fail(ErrorCode::unreadable, "JSON nested too deeply");
    return true;
  };
  try {
    return json::parse(text, too_deep);
  } catch (const json::parse_error& error) {
    fail(ErrorCode::unreadable, "not JSON (at byte ", error.byte, ")");
  } catch (const json::out_of_range&) {
    fail(ErrorCode::unreadable, "not JSON that can be read: it holds a number beyond 1e308");
  }
}

}  // namespace

std::string Prompt::as_text() const {
  if (!text.empty()) return text;
  if (const auto* dataset = longbench_dataset(task)) return dataset->fill(context, input);
  return input.empty() ? context : context.empty() ? input : context + "\n\n" + input;
}

Prompt parse_prompt(std::string_view text) {
  const json line = parse_shallow(text);
  if (!line.is_object()) fail(ErrorCode::unreadable, "not a JSON object");
  Prompt prompt;
  prompt.id = id_of(line, line.contains("id") ? "id" : "_id");
  prompt.task = text_of(line, line.contains("task") ? "task" : "dataset");
  if (const auto tokens = line.find("tokens"); tokens != line.end())
    prompt.tokens = tokens_of(*tokens);
  prompt.text = text_of(line, "text");
  prompt.context = text_of(line, "context");
  prompt.input = text_of(line, "input");
  prompt.answers = answers_of(line);
  prompt.all_classes = texts_of(line, "all_classes");
  prompt.language = text_of(line, "language");
  prompt.metric = metric_of(line);
  prompt.length = count_of(line, "length", 0);
  prompt.depth = depth_of(line);
  prompt.seed = count_of(line, "seed", -1);
  prompt.group = id_of(line, "group");
  const bool split = !prompt.context.empty() || !prompt.input.empty();
  if (!prompt.tokens.empty() + !prompt.text.empty() + split != 1)
    fail(ErrorCode::unreadable,
         "a prompt needs exactly one of 'tokens', 'text', or 'context' with 'input'");
  return prompt;
}

std::string prompt_line(const Prompt& prompt) {
  nlohmann::ordered_json line;
  if (!prompt.id.empty()) line["id"] = prompt.id;
  if (!prompt.task.empty()) line["task"] = prompt.task;
  if (!prompt.tokens.empty()) {
    line["tokens"] = prompt.tokens;
  } else if (!prompt.text.empty()) {
    line["text"] = prompt.text;
  } else {
    line["context"] = prompt.context;
    line["input"] = prompt.input;
  }
  if (!prompt.answers.empty()) line["answers"] = prompt.answers;
  if (!prompt.all_classes.empty()) line["all_classes"] = prompt.all_classes;
  if (!prompt.language.empty()) line["language"] = prompt.language;
  if (!prompt.metric.empty()) line["metric"] = prompt.metric;
  if (prompt.length > 0) line["length"] = prompt.length;
  if (prompt.depth >= 0) line["depth"] = prompt.depth;
  if (prompt.seed >= 0) line["seed"] = prompt.seed;
  if (!prompt.group.empty()) line["group"] = prompt.group;
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::vector<Prompt> read_prompts(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path))
    fail(ErrorCode::unreadable, path.string(), ": is a folder, expected a JSONL file");
  std::ifstream file(path, std::ios::binary);
  if (!file) fail(ErrorCode::unreadable, path.string(), ": cannot be opened for reading");
  std::vector<Prompt> prompts;
  std::string line;
  for (std::int64_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    in_context(str(path.string(), ":", number), [&] {
      if (line.size() > kLongestLine) fail(ErrorCode::unreadable, "the line is too long");
      prompts.push_back(parse_prompt(line));
    });
    if (prompts.back().id.empty()) prompts.back().id = str("line ", number);
  }
  if (file.bad()) fail(ErrorCode::unreadable, path.string(), ": reading failed");
  if (prompts.empty()) fail(ErrorCode::unreadable, path.string(), ": holds no prompts");
  return prompts;
}

}  // namespace kvatlas::data
