// SPDX-License-Identifier: Apache-2.0
#include "data/tool_chat.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/plain_text.hpp"
#include "data/call_scores.hpp"

namespace kvatlas::data {
namespace {

using ordered = nlohmann::ordered_json;

constexpr const char* kCall = "Call:";
constexpr const char* kGap = "\n\n";

/// An object in its order finds a member by looking at all of them.
void require_few_members(const nlohmann::json& value) {
  constexpr std::size_t kMostMembers = 4096;
  if (!value.is_structured()) return;
  if (value.is_object() && value.size() > kMostMembers)
    fail(ErrorCode::unreadable, "an object has ", value.size(), " members, expected at most ",
         kMostMembers);
  for (const auto& one : value) require_few_members(one);
}

/// The member, or nothing if it is not there or null.
const ordered* member(const ordered& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string needed_name(const ordered& object, const char* of) {
  const ordered* name = member(object, "name");
  if (!name || !name->is_string() || name->get_ref<const std::string&>().empty())
    fail(ErrorCode::unreadable, of, " has no name");
  return name->get<std::string>();
}

/// A list of functions, each as {"type": "function", "function": {name, description, parameters}}.
ordered functions_of(const ordered& tools) {
  if (!tools.is_array() || tools.empty())
    fail(ErrorCode::unreadable, "'tools' is no list of functions");
  ordered out = ordered::array();
  for (const auto& tool : tools) {
    if (!tool.is_object()) fail(ErrorCode::unreadable, "'tools' holds something that is no object");
    const ordered* function = member(tool, "function");
    if (!function) function = &tool;
    if (!function->is_object())
      fail(ErrorCode::unreadable, "'tools' holds a function that is no object");
    needed_name(*function, "a function in 'tools'");
    out.push_back({{"type", "function"}, {"function", *function}});
  }
  return out;
}

struct RecordedCall {
  std::string name;
  ordered arguments;
};

/// Arguments may be written as the text of an object, or as the object.
ordered arguments_of(const ordered& function, const std::string& name) {
  const ordered* given = member(function, "arguments");
  ordered arguments = given ? *given : ordered::object();
  if (arguments.is_string()) {
    const std::string text = arguments.get<std::string>();
    arguments = text.find_first_not_of(" \t\r\n") == text.npos
                    ? ordered::object()
                    : in_context(str("the arguments of a call of ", quoted(name, 60)),
                                 [&] { return parse_ordered(text); });
  }
  if (!arguments.is_object())
    fail(ErrorCode::unreadable, "the arguments of a call of ", quoted(name, 60),
         " are no JSON object");
  return arguments;
}

const ordered* calls_of(const ordered& message) {
  const ordered* calls = member(message, "tool_calls");
  return calls && !calls->empty() ? calls : nullptr;
}

std::vector<RecordedCall> recorded_calls(const ordered& message) {
  const ordered& calls = *calls_of(message);
  if (!calls.is_array()) fail(ErrorCode::unreadable, "'tool_calls' is no list of calls");
  if (calls.size() > kMostCalls)
    fail(ErrorCode::unreadable, "a message makes ", calls.size(), " calls, expected at most ",
         kMostCalls);
  std::vector<RecordedCall> out;
  for (const auto& call : calls) {
    const ordered* function = call.is_object() ? member(call, "function") : nullptr;
    if (!function || !function->is_object())
      fail(ErrorCode::unreadable, "'tool_calls' holds something that is no call of a function");
    std::string name = needed_name(*function, "a call in 'tool_calls'");
    ordered arguments = arguments_of(*function, name);
    out.push_back({std::move(name), std::move(arguments)});
  }
  return out;
}

std::string call_text(const RecordedCall& call) {
  return json_text(ordered{{"name", call.name}, {"arguments", call.arguments}});
}

/// A content is a text, or a list of parts that are texts.
std::string content_of(const ordered& message) {
  const ordered* content = member(message, "content");
  if (!content) return {};
  if (content->is_string()) return content->get<std::string>();
  std::string text;
  for (const auto& part : content->is_array() ? *content : ordered::array({*content})) {
    const ordered* words = part.is_object() ? member(part, "text") : nullptr;
    if (!words || !words->is_string())
      fail(ErrorCode::unreadable, "a message's 'content' is neither a text nor a list of texts");
    text += words->get<std::string>();
  }
  return text;
}

struct Role {
  std::string_view name, title;
};
constexpr std::array<Role, 6> kRoles = {{{"user", "User:"},
                                         {"assistant", "Assistant:"},
                                         {"tool", "Result:"},
                                         {"function", "Result:"},
                                         {"system", "System:"},
                                         {"developer", "System:"}}};

std::string_view title_of(const ordered& message) {
  const ordered* role = message.is_object() ? member(message, "role") : nullptr;
  const std::string name = role && role->is_string() ? role->get<std::string>() : "";
  const auto* const found =
      std::find_if(kRoles.begin(), kRoles.end(), [&](const Role& one) { return one.name == name; });
  if (found == kRoles.end())
    fail(ErrorCode::unreadable, "a message's 'role' is ",
         role ? printable(json_text(*role), 40) : "missing", ", expected ",
         join(kRoles, ", ", [](const Role& one) { return one.name; }));
  return found->title;
}

bool is_assistant(const ordered& message) { return title_of(message) == "Assistant:"; }

/// Messages as text, an empty line between.
std::string text_of_messages(const ordered& messages) {
  std::vector<std::string> said;
  for (const auto& message : messages) {
    const std::string_view title = title_of(message);
    const std::string content = content_of(message);
    const bool calls = is_assistant(message) && calls_of(message);
    if (!content.empty() || !calls) said.push_back(str(title, ' ', content));
    if (calls)
      for (const auto& call : recorded_calls(message))
        said.push_back(str(kCall, ' ', call_text(call)));
  }
  return join(said, kGap);
}

std::string text_of_functions(const ordered& functions) {
  std::string text =
      "Functions can be called. Each is described by one of these lines of JSON:\n\n";
  for (const auto& tool : functions) text += json_text(tool["function"]) + '\n';
  return text +
         "\nA call is one line, such as: Call: {\"name\": \"open\", \"arguments\": {\"page\": 1}}. "
         "What it gives back follows it as Result.";
}

std::size_t last_call(const ordered& messages) {
  for (std::size_t i = messages.size(); i-- > 0;)
    if (is_assistant(messages[i]) && calls_of(messages[i])) return i;
  fail(ErrorCode::unreadable,
       "no message of the assistant calls a function: the last 'tool_calls' are the right answer");
}

ordered between(const ordered& messages, std::size_t begin, std::size_t end) {
  ordered out = ordered::array();
  for (std::size_t i = begin; i < end; ++i) out.push_back(messages[i]);
  return out;
}

/// Where the last question begins: what stands behind the assistant's and the system's messages, a
/// message at least.
std::size_t question_begin(const ordered& messages) {
  std::size_t begin = messages.size();
  while (begin > 0 && !is_assistant(messages[begin - 1]) &&
         title_of(messages[begin - 1]) != "System:")
    --begin;
  return std::min(begin, messages.size() - 1);
}

std::string question_text(const ordered& messages) {
  return text_of_messages(messages) + kGap + kCall;
}

const ordered& list_of_messages(const ordered& messages) {
  if (!messages.is_array() || messages.empty())
    fail(ErrorCode::unreadable, "'messages' is no list of messages");
  for (const auto& message : messages) (void)title_of(message);
  return messages;
}

Prompt::Turn turn_of(const ordered& messages) {
  const std::size_t call = last_call(list_of_messages(messages));
  if (call == 0) fail(ErrorCode::unreadable, "nothing is said before the call");
  const ordered asked = between(messages, 0, call), said = between(messages, call, messages.size());
  std::string answer = text_of_messages(said);
  if (answer.starts_with(kCall)) answer.erase(0, std::string_view(kCall).size() + 1);
  return {question_text(asked), std::move(answer), json_text(asked), json_text(said)};
}

ordered parsed(const std::string& list) {
  return list.empty() ? ordered::array() : ordered::parse(list);
}

void append(ordered& to, const std::string& list) {
  for (auto& message : parsed(list)) to.push_back(std::move(message));
}

}  // namespace

ordered parse_ordered(std::string_view text) {
  require_few_members(parse_json(text));
  return ordered::parse(text);
}

void ask_for_calls(Prompt& prompt, const ordered& messages, const ordered& tools,
                   const ordered& earlier) {
  const ordered functions = functions_of(tools);
  const std::size_t call = last_call(list_of_messages(messages));
  if (call == 0) fail(ErrorCode::unreadable, "nothing is said before the call");
  prompt.answers.clear();
  std::size_t bytes = 0;
  for (const auto& recorded : recorded_calls(messages[call])) {
    const auto known = std::find_if(functions.begin(), functions.end(), [&](const ordered& tool) {
      return tool["function"]["name"] == recorded.name;
    });
    if (known == functions.end())
      fail(ErrorCode::unreadable, "the recorded call is of ", quoted(recorded.name, 60),
           ", which is none of the functions in 'tools'");
    const ordered* parameters = member((*known)["function"], "parameters");
    ordered answer = {{"name", recorded.name}, {"arguments", recorded.arguments}};
    bytes += json_text(answer).size();
    if (parameters) answer["parameters"] = *parameters;
    prompt.answers.push_back(json_text(answer));
  }
  const ordered before = between(messages, 0, call);
  const std::size_t question = question_begin(before);
  const ordered context = between(before, 0, question), asked = between(before, question, call);
  prompt.context = text_of_functions(functions);
  if (!context.empty()) prompt.context += kGap + text_of_messages(context);
  prompt.input = question_text(asked);
  prompt.tools = json_text(functions);
  prompt.context_messages = json_text(context);
  prompt.input_messages = json_text(asked);
  prompt.earlier.clear();
  if (!earlier.is_null() && !earlier.is_array())
    fail(ErrorCode::unreadable, "'earlier' is not a list of turns");
  for (const auto& turn : earlier)
    in_context("'earlier'", [&] {
      const ordered* said = turn.is_object() ? member(turn, "messages") : nullptr;
      prompt.earlier.push_back(turn_of(said ? *said : ordered()));
    });
  if (prompt.metric.empty()) prompt.metric = "calls";
  // A token for two bytes, and what a model's own form of calls adds.
  if (prompt.max_new_tokens == 0)
    prompt.max_new_tokens =
        std::min(kMostNewTokens, static_cast<std::int64_t>(bytes / 2 + 32 * prompt.answers.size()));
}

ordered messages_for_calls(const Prompt& prompt) {
  ordered out = parsed(prompt.context_messages);
  if (prompt.follows)
    for (const auto& turn : prompt.earlier) {
      append(out, turn.input_messages);
      append(out, turn.answer_messages);
    }
  append(out, prompt.input_messages);
  return out;
}

ordered template_messages(const Prompt& prompt) {
  ordered out = messages_for_calls(prompt);
  for (auto& message : out) {
    if (!is_assistant(message) || !calls_of(message)) continue;
    for (auto& call : message["tool_calls"])
      call["function"]["arguments"] =
          arguments_of(call["function"], needed_name(call["function"], "a call"));
  }
  return out;
}

ordered conversation_members(const Prompt& prompt) {
  ordered messages = parsed(prompt.context_messages), calls = ordered::array();
  append(messages, prompt.input_messages);
  for (const auto& text : prompt.answers) {
    const ordered answer = ordered::parse(text);
    calls.push_back(
        {{"id", str("answer", 100 + calls.size())},
         {"type", "function"},
         {"function", {{"name", answer["name"]}, {"arguments", json_text(answer["arguments"])}}}});
  }
  messages.push_back({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", calls}});
  ordered out = {{"messages", std::move(messages)}, {"tools", ordered::parse(prompt.tools)}};
  for (const auto& turn : prompt.earlier) {
    ordered said = parsed(turn.input_messages);
    append(said, turn.answer_messages);
    out["earlier"].push_back({{"messages", std::move(said)}});
  }
  return out;
}

}  // namespace kvatlas::data
