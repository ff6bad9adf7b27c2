// SPDX-License-Identifier: Apache-2.0
#include "data/call_scores.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "data/said_call_impl.hpp"

namespace kvatlas::data {
namespace {

using nlohmann::json;

/// Longer answers are read up to here.
constexpr std::size_t kLongestAnswer = std::size_t{1} << 18;

// ---- Schemas: what fits the parameters of a function. ----

bool is_of_type(const json& value, const json& type) {
  const auto is = [&](std::string_view name) {
    if (name == "integer")
      return value.is_number_integer() ||
             (value.is_number() && std::trunc(value.get<double>()) == value.get<double>());
    if (name == "number") return value.is_number();
    if (name == "string") return value.is_string();
    if (name == "boolean") return value.is_boolean();
    if (name == "object") return value.is_object();
    if (name == "array") return value.is_array();
    if (name == "null") return value.is_null();
    return true;
  };
  if (type.is_string()) return is(type.get_ref<const std::string&>());
  if (!type.is_array()) return true;
  return std::any_of(type.begin(), type.end(), [&](const json& one) {
    return one.is_string() && is(one.get_ref<const std::string&>());
  });
}

const json& member_of(const json& object, const char* name) {
  static const json kNothing;
  const auto found = object.find(name);
  return found == object.end() ? kNothing : *found;
}

/// Whether the value fits the schema, as far as this knows JSON Schema: type, enum, const,
/// required, properties, additionalProperties, items, anyOf, oneOf and allOf. Anything else lets
/// all values pass. Both nest as deep as they were read, so this ends.
bool fits(const json& value, const json& schema) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (!schema.is_object()) return true;
  if (!is_of_type(value, member_of(schema, "type"))) return false;
  if (const json& all = member_of(schema, "enum");
      all.is_array() && std::find(all.begin(), all.end(), value) == all.end())
    return false;
  if (schema.contains("const") && schema["const"] != value) return false;
  const auto fits_one = [&](const json& one) { return fits(value, one); };
  for (const char* name : {"anyOf", "oneOf"})
    if (const json& any = member_of(schema, name);
        any.is_array() && std::none_of(any.begin(), any.end(), fits_one))
      return false;
  if (const json& all = member_of(schema, "allOf");
      all.is_array() && !std::all_of(all.begin(), all.end(), fits_one))
    return false;
  if (const json& items = member_of(schema, "items"); value.is_array())
    for (const auto& item : value)
      if (!fits(item, items)) return false;
  if (!value.is_object()) return true;
  if (const json& required = member_of(schema, "required"); required.is_array())
    for (const auto& name : required)
      if (name.is_string() && !value.contains(name.get_ref<const std::string&>())) return false;
  const json &properties = member_of(schema, "properties"),
             &others = member_of(schema, "additionalProperties");
  for (const auto& [name, one] : value.items()) {
    const bool known = properties.is_object() && properties.contains(name);
    if (!fits(one, known ? properties[name] : others)) return false;
  }
  return true;
}

// ---- Calls, in the forms in which models write them. ----

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const auto begin = std::min(text.find_first_not_of(kBlanks), text.size());
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

bool cut_end(std::string_view& text, std::string_view end) {
  if (!text.ends_with(end)) return false;
  text.remove_suffix(end.size());
  return true;
}

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

bool is_number(std::string_view text) {
  return text.find_first_not_of("0123456789.-") == text.npos;
}

/// The end of the JSON object that begins the text; npos if it has none.
std::size_t object_end(std::string_view text) {
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_text) {
      if (c == '\\') ++i;
      if (c == '"') in_text = false;
    } else if (c == '"') {
      in_text = true;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return i + 1;
    }
  }
  return text.npos;
}

/// The value of JSON text; null for what is none.
json read_json(std::string_view text) {
  try {
    return parse_json(text);
  } catch (const Error&) {
    return {};
  }
}

/// The name of a function that stands before its arguments, with nothing but marks between:
/// "[TOOL_CALLS]find[ARGS]{", "to=functions.find <|constrain|>json<|message|>{",
/// "find\n```json\n{".
std::string name_before(std::string_view text) {
  bool marked = false, said_json = false;
  for (;;) {
    const std::string_view whole = text;
    text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
    if (text.ends_with('>')) {
      constexpr std::size_t kLongestMark = 64;
      const auto begin = text.rfind('<');
      if (begin == text.npos || text.size() - begin > kLongestMark) return {};
      const std::string_view mark = text.substr(begin + 1, text.size() - begin - 2);
      if (mark.starts_with("function=")) return std::string(mark.substr(9));
      text = text.substr(0, begin);
      marked = true;
    } else if (cut_end(text, "[ARGS]") || cut_end(text, "```json") || cut_end(text, "```") ||
               (marked && cut_end(text, "commentary"))) {
      marked = true;
    } else if (text.ends_with("json") &&
               (text.size() == 4 || !is_name_character(text[text.size() - 5]))) {
      text.remove_suffix(4);
      said_json = true;  // which gpt-oss says, whether or not its marks are there
    } else {
      const std::string_view gap = whole.substr(text.size());
      const auto number = text.find_last_not_of("0123456789");
      if (number != text.npos && number + 1 < text.size() && text[number] == ':')
        text = text.substr(0, number);  // Kimi numbers its calls: "functions.find:0"
      auto begin = text.size();
      while (begin > 0 && is_name_character(text[begin - 1])) --begin;
      std::string_view name = text.substr(begin);
      const bool known = name.starts_with("functions.");
      if (known) name.remove_prefix(10);
      const bool own_line = gap == "\n" && (begin == 0 || text[begin - 1] == '\n');
      const bool stands_right = known || marked || (!said_json && (gap.empty() || own_line));
      return stands_right && !is_number(name) ? std::string(name) : std::string();
    }
  }
}

/// The call that an object describes; nothing if it describes none.
std::optional<SaidCall> call_of_object(const json& object) {
  if (!object.is_object()) return std::nullopt;
  if (const json& function = member_of(object, "function"); function.is_object())
    return call_of_object(function);
  SaidCall call;
  for (const char* name : {"name", "tool_name", "function"})
    if (const json& found = member_of(object, name); found.is_string() && call.name.empty())
      call.name = found.get<std::string>();
  if (call.name.empty()) return std::nullopt;
  for (const char* name : {"arguments", "parameters"})
    if (call.arguments.is_null()) call.arguments = member_of(object, name);
  if (call.arguments.is_string()) {
    const auto& text = call.arguments.get_ref<const std::string&>();
    call.arguments = without_blanks(text).empty() ? json::object() : read_json(text);
  }
  return call;
}

/// What a call that breaks off, or is no JSON, says of its name.
std::optional<SaidCall> broken_call(std::string_view before, std::string_view text) {
  SaidCall call{name_before(before), {}};
  constexpr std::string_view kName = "\"name\"";
  if (const auto at = text.find(kName); call.name.empty() && at != text.npos) {
    std::string_view value = without_blanks(text.substr(at + kName.size()));
    if (!value.starts_with(':')) return std::nullopt;
    value = without_blanks(value.substr(1));
    if (!value.starts_with('"')) return std::nullopt;
    call.name = value.substr(1, value.find('"', 1) - 1);
    return call;
  }
  return call.name.empty() ? std::nullopt : std::optional(std::move(call));
}

void add_object_calls(std::string_view text, std::vector<SaidCall>& calls) {
  constexpr int kMostOpen = 256;  // braces that nothing closes
  int open = 0;
  std::size_t done = 0;
  bool has_broken = false;
  for (auto at = text.find('{'); at != text.npos; at = text.find('{', at)) {
    const std::string_view before = text.substr(done, at - done), from = text.substr(at);
    const auto end = object_end(from);
    const json object = end == from.npos ? json() : read_json(from.substr(0, end));
    if (object.is_object()) {
      if (const json& list = member_of(object, "tool_calls"); list.is_array()) {
        for (const auto& one : list)
          if (auto call = call_of_object(one)) calls.push_back(std::move(*call));
      } else if (auto call = call_of_object(object)) {
        calls.push_back(std::move(*call));
      } else if (std::string name = name_before(before); !name.empty()) {
        calls.push_back({std::move(name), object});
      }
      done = at += end;
      continue;
    }
    if (auto call = broken_call(before, end == from.npos ? from : from.substr(0, end));
        call && !has_broken) {
      calls.push_back(std::move(*call));
      has_broken = true;
      if (end == from.npos) return;
      done = at += end;
      continue;
    }
    if (++open > kMostOpen) return;
    ++at;
  }
}

std::optional<std::string_view> between_marks(std::string_view& text, std::string_view begin,
                                              std::string_view end) {
  const auto at = text.find(begin);
  if (at == text.npos) return std::nullopt;
  text.remove_prefix(at + begin.size());
  const std::string_view found = text.substr(0, text.find(end));
  text.remove_prefix(std::min(found.size() + end.size(), text.size()));
  return found;
}

/// Qwen3-Coder's <function=find><parameter=city>Oslo</parameter></function>, and GLM's
/// <tool_call>find<arg_key>city</arg_key><arg_value>Oslo</arg_value></tool_call>.
void add_marked_calls(std::string_view text, std::vector<SaidCall>& calls) {
  const bool coder = text.find("<parameter=") != text.npos;
  if (!coder && text.find("<arg_key>") == text.npos) return;
  std::string_view left = text;
  while (const auto said = between_marks(left, coder ? "<function=" : "<tool_call>",
                                         coder ? "</function>" : "</tool_call>")) {
    std::string_view rest = *said;
    SaidCall call{
        std::string(without_blanks(rest.substr(0, rest.find_first_of(coder ? ">" : "<")))),
        json::object(), true};
    for (;;) {
      const auto key = coder ? between_marks(rest, "<parameter=", ">")
                             : between_marks(rest, "<arg_key>", "</arg_key>");
      if (!key) break;
      const auto value = coder ? std::optional(rest.substr(0, rest.find("</parameter>")))
                               : between_marks(rest, "<arg_value>", "</arg_value>");
      if (value)
        call.arguments[std::string(without_blanks(*key))] = std::string(without_blanks(*value));
    }
    calls.push_back(std::move(call));
  }
}

/// What an answer says for itself: behind what was thought, and before it goes on with what others
/// say, as models do that write a conversation as text.
std::string_view own_words(std::string_view text) {
  text = text.substr(0, kLongestAnswer);
  for (const std::string_view end : {"</think>", "[/THINK]"})
    if (const auto at = text.rfind(end); at != text.npos) text.remove_prefix(at + end.size());
  for (const std::string_view title : {"\nUser:", "\nResult:", "\nSystem:"})
    text = text.substr(0, text.find(title));
  return text;
}

std::vector<SaidCall> calls_in(std::string_view generated) {
  const std::string_view text = own_words(generated);
  std::vector<SaidCall> calls;
  add_marked_calls(text, calls);
  if (calls.empty()) calls = python_calls(text);
  if (calls.empty()) add_object_calls(text, calls);
  if (calls.size() > kMostCalls) calls.resize(kMostCalls);
  return calls;
}

// ---- Parts. ----

CallParts parts_of(const json& wanted, const SaidCall& said) {
  CallParts parts;
  parts.call = 1;
  if (said.name != wanted["name"]) return parts;
  parts.name = 1;
  if (!said.arguments.is_object()) return parts;
  const json& right = wanted["arguments"];
  json given = said.arguments;
  if (said.from_texts)
    for (const auto& [name, value] : given.items())
      if (!right.contains(name) || !right[name].is_string())
        if (json read = read_json(value.get<std::string>()); !read.is_null()) given[name] = read;
  parts.valid = given == right || fits(given, member_of(wanted, "parameters")) ? 1 : 0;
  std::set<std::string> all;
  std::size_t same = 0;
  for (const auto* arguments : {&right, &std::as_const(given)})
    for (const auto& [name, value] : arguments->items()) all.insert(name);
  for (const auto& name : all)
    same += right.contains(name) && given.contains(name) && right[name] == given[name];
  parts.arguments = all.empty() ? 1 : static_cast<double>(same) / static_cast<double>(all.size());
  return parts;
}

json answer_of(const std::string& text) {
  json answer = parse_json(text);
  if (!answer.is_object() || !member_of(answer, "name").is_string() ||
      !member_of(answer, "arguments").is_object())
    fail(ErrorCode::unreadable, "an answer is no call of a function, as the metric 'calls' needs");
  return answer;
}

}  // namespace

CallParts call_parts(std::span<const std::string> answers, std::string_view generated) {
  std::vector<SaidCall> said = calls_in(generated);
  const auto count = static_cast<double>(std::max(said.size(), answers.size()));
  CallParts sum;
  // Each wanted call is compared with the best of those that are left, whatever their order.
  for (const auto& text : answers) {
    const json wanted = answer_of(text);
    std::size_t best = said.size();
    CallParts of_best;
    for (std::size_t i = 0; i < said.size(); ++i) {
      const CallParts parts = parts_of(wanted, said[i]);
      if (best < said.size() && parts.score() <= of_best.score()) continue;
      best = i;
      of_best = parts;
    }
    for (const auto& part : kCallParts) sum.*part.value += of_best.*part.value / count;
    if (best < said.size()) said.erase(said.begin() + static_cast<std::ptrdiff_t>(best));
  }
  return sum;
}

std::optional<CallParts> prompt_call_parts(const PromptDescription& prompt,
                                           std::string_view generated) {
  if (prompt.metric != "calls" || prompt.answers.empty()) return std::nullopt;
  return call_parts(prompt.answers, generated);
}

}  // namespace kvatlas::data
