// SPDX-License-Identifier: Apache-2.0
// The layouts in which a line says its prompts (docs/tasks.md).
#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "data/call_scores.hpp"
#include "data/field_tasks.hpp"
#include "data/prompts.hpp"
#include "data/scores.hpp"
#include "data/tool_chat.hpp"

namespace kvatlas::data {
namespace {

using nlohmann::json;

constexpr int kDeepestNesting = 32;
constexpr std::int64_t kChoiceTokens = 16;
constexpr std::string_view kLetters = "ABCD";

/// A JSON object that knows which of its members were asked for.
class Line {
 public:
  explicit Line(const json& object, std::string_view text = {}) : object_(object), text_(text) {
    if (!object.is_object()) fail(ErrorCode::unreadable, "not a JSON object");
  }

  /// The member, or nothing if it is not there or null.
  const json* find(const std::string& key) const {
    read_.insert(key);
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  std::vector<std::string> members() const {
    std::vector<std::string> names;
    for (const auto& member : object_.items()) names.push_back(member.key());
    return names;
  }
  /// The text of a whole line, from which what depends on the order of members is read.
  std::string_view text() const { return text_; }
  std::vector<std::string> unread() const {
    auto names = members();
    std::erase_if(names, [&](const std::string& name) { return read_.contains(name); });
    return names;
  }

 private:
  const json& object_;
  std::string_view text_;
  mutable std::set<std::string> read_;
};

std::string text_of(const Line& line, const std::string& key) {
  const json* found = line.find(key);
  if (!found) return {};
  if (!found->is_string()) fail(ErrorCode::unreadable, "'", key, "' is not a text");
  return found->get<std::string>();
}

std::string needed_text(const Line& line, const std::string& key, const char* layout) {
  std::string text = text_of(line, key);
  if (text.empty())
    fail(ErrorCode::unreadable, "'", key, "' is missing or empty, which ", layout, " needs");
  return text;
}

/// An id may be written as a text or as a whole number.
std::string id_of(const Line& line, const std::string& key) {
  const json* found = line.find(key);
  if (found && found->is_number_integer()) return found->dump();
  return text_of(line, key);
}

std::vector<std::int64_t> tokens_of(const Line& line) {
  const json* found = line.find("tokens");
  if (!found) return {};
  if (!found->is_array() || found->empty())
    fail(ErrorCode::unreadable, "'tokens' is not a list of token ids");
  std::vector<std::int64_t> tokens;
  for (const auto& token : *found) {
    if (!token.is_number_integer() ||
        (token.is_number_unsigned() &&
         token.get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max()))
      fail(ErrorCode::unreadable, "'tokens' holds ", printable(token.dump(), 40),
           ", which is not a token id");
    tokens.push_back(token.get<std::int64_t>());
  }
  return tokens;
}

std::vector<std::string> texts_of(const Line& line, const std::string& key) {
  const json* found = line.find(key);
  if (!found) return {};
  if (!found->is_array() ||
      !std::all_of(found->begin(), found->end(), [](const json& text) { return text.is_string(); }))
    fail(ErrorCode::unreadable, "'", key, "' is not a list of texts");
  return found->get<std::vector<std::string>>();
}

/// A text or a list of texts; a number counts as its text. An empty text is no answer.
std::vector<std::string> answers_of(const Line& line, const std::string& key) {
  const json* found = line.find(key);
  if (!found || (found->is_string() && found->get_ref<const std::string&>().empty())) return {};
  const json list = found->is_array() ? *found : json::array({*found});
  std::vector<std::string> answers;
  for (const auto& answer : list) {
    if (!answer.is_string() && !answer.is_number())
      fail(ErrorCode::unreadable, "'", key, "' is neither a text nor a list of texts");
    answers.push_back(answer.is_string() ? answer.get<std::string>() : answer.dump());
  }
  return answers;
}

/// The same for files of others, in which an empty list is a mistake.
std::vector<std::string> some_answers_of(const Line& line, const std::string& key) {
  const json* found = line.find(key);
  if (found && found->is_array() && found->empty())
    fail(ErrorCode::unreadable, "'", key, "' is an empty list");
  return answers_of(line, key);
}

std::string metric_of(const Line& line) {
  std::string metric = text_of(line, "metric");
  if (!metric.empty())
    in_context("'metric'", [&] { require_metric(metric, ErrorCode::unreadable); });
  return metric;
}

/// A whole number from 0 up to 2^63 - 1; `missing` if the line says none, or something else: other
/// people's files may mean other things by the name (LongBench v2 has "length": "short").
std::int64_t count_of(const Line& line, const char* key, std::int64_t missing) {
  const json* found = line.find(key);
  const bool usable =
      found && found->is_number_unsigned() &&
      found->get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  return usable ? found->get<std::int64_t>() : missing;
}

/// A number from 0 to 1; -1 if the line says none, or something else.
double depth_of(const Line& line) {
  const json* found = line.find("depth");
  const double depth = found && found->is_number() ? found->get<double>() : -1;
  return depth >= 0 && depth <= 1 ? depth : -1;
}

/// pandas writes the whole numbers of a column with gaps as 128.0.
std::int64_t max_new_tokens_of(const Line& line) {
  const json* found = line.find("max_new_tokens");
  if (!found) return 0;
  const double value = found->is_number() ? found->get<double>() : 0;
  if (!(value >= 1 && value <= kMostNewTokens) ||
      value != static_cast<double>(static_cast<std::int64_t>(value)))
    fail(ErrorCode::unreadable, "'max_new_tokens' is ", printable(found->dump(), 40),
         ", expected a whole number from 1 to ", kMostNewTokens);
  return static_cast<std::int64_t>(value);
}

std::string stripped(const std::string& text) {
  constexpr const char* kBlanks = " \t\n\r\f\v";
  const auto begin = std::min(text.find_first_not_of(kBlanks), text.size());
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

/// What every layout may say of a prompt beside its text and its answers.
Prompt described(const Line& line, const LineOrigin& origin) {
  Prompt prompt;
  prompt.id = id_of(line, line.find("id") ? "id" : "_id");
  if (prompt.id.empty()) prompt.id = origin.name;
  prompt.task = text_of(line, line.find("task") ? "task" : "dataset");
  prompt.all_classes = texts_of(line, "all_classes");
  prompt.language = text_of(line, "language");
  prompt.metric = metric_of(line);
  prompt.length = count_of(line, "length", 0);
  if (line.find("dataset")) prompt.length = 0;  // LongBench counts words by this name
  prompt.depth = depth_of(line);
  prompt.seed = count_of(line, "seed", -1);
  prompt.group = id_of(line, "group");
  prompt.answer_prefix = text_of(line, "answer_prefix");
  prompt.max_new_tokens = max_new_tokens_of(line);
  return prompt;
}

/// What the task of others' files decides where their line does not.
void add_task_rules(Prompt& prompt) {
  const FieldTask* task = field_task(prompt.task);
  if (!task) return;
  if (prompt.metric.empty()) prompt.metric = task->metric;
  if (prompt.language.empty()) prompt.language = task->language;
  if (prompt.max_new_tokens == 0) prompt.max_new_tokens = task->answer_tokens;
}

/// The turns before a prompt, as prompt_line writes them.
std::vector<Prompt::Turn> earlier_turns(const Line& line) {
  const json* list = line.find("earlier");
  if (!list) return {};
  if (!list->is_array()) fail(ErrorCode::unreadable, "'earlier' is not a list of turns");
  std::vector<Prompt::Turn> turns;
  for (const auto& object : *list)
    in_context("'earlier'", [&] {
      const Line turn(object);
      turns.push_back({needed_text(turn, "input", "a turn"), text_of(turn, "answer")});
    });
  return turns;
}

PromptsOfLine own_prompt(const Line& line, Prompt prompt) {
  prompt.earlier = earlier_turns(line);
  const auto before = static_cast<std::int64_t>(prompt.earlier.size());
  prompt.turn = count_of(line, "turn", before > 0 ? before + 1 : 0);
  prompt.tokens = tokens_of(line);
  prompt.text = text_of(line, "text");
  prompt.context = text_of(line, "context");
  prompt.input = text_of(line, "input");
  const json* answers = line.find("answers");
  prompt.answers =
      answers && answers->is_string() ? answers_of(line, "answers") : texts_of(line, "answers");
  const bool split = !prompt.context.empty() || !prompt.input.empty();
  if (!prompt.tokens.empty() + !prompt.text.empty() + split != 1)
    fail(ErrorCode::unreadable,
         "a prompt needs exactly one of 'tokens', 'text', or 'context' with 'input'");
  if (!prompt.earlier.empty() && !split)
    fail(ErrorCode::unreadable, "'earlier' needs a prompt of 'context' and 'input'");
  return {{std::move(prompt)}, {}};
}

PromptsOfLine ruler_prompt(const Line& line, Prompt prompt) {
  prompt.text = needed_text(line, "input", "RULER's layout");
  prompt.answers = some_answers_of(line, "outputs");
  add_task_rules(prompt);
  return {{std::move(prompt)}, {}};
}

PromptsOfLine kvpress_prompt(const Line& line, Prompt prompt) {
  prompt.joined = true;
  prompt.context = text_of(line, "context");
  prompt.input = text_of(line, "question");
  if (prompt.context.empty() && prompt.input.empty())
    fail(ErrorCode::unreadable, "'context' and 'question' are both missing or empty");
  prompt.answers = some_answers_of(line, line.find("answer") ? "answer" : "answers");
  add_task_rules(prompt);
  return {{std::move(prompt)}, {}};
}

/// "(A) first\n(B) second\n"
std::string choices_text(const std::vector<std::string>& choices) {
  std::string text;
  for (std::size_t i = 0; i < choices.size(); ++i)
    text += str("(", kLetters[i], ") ", choices[i], "\n");
  return text;
}

constexpr const char* kChoiceQuestion = "What is the correct answer to this question: ";
constexpr const char* kChoiceForm =
    "Format your response as follows: \"The correct answer is (insert answer here)\".";

bool is_letter(const std::string& text) {
  return text.size() == 1 && kLetters.find(text) != kLetters.npos;
}

PromptsOfLine longbench_v2_prompt(const Line& line, Prompt prompt) {
  constexpr const char* kLayout = "LongBench v2's layout";
  prompt.joined = true;
  const std::string context = stripped(needed_text(line, "context", kLayout));
  const std::string question = stripped(needed_text(line, "question", kLayout));
  std::vector<std::string> choices;
  for (const char letter : kLetters)
    choices.push_back(stripped(needed_text(line, str("choice_", letter), kLayout)));
  const std::string answer = needed_text(line, "answer", kLayout);
  if (!is_letter(answer))
    fail(ErrorCode::unreadable, "'answer' is ", quoted(answer, 40), ", expected A, B, C or D");
  // kvpress's copy of the file is filled into the template already, and ends with answer_prefix.
  if (line.find("answer_prefix")) {
    prompt.context = text_of(line, "context");
    prompt.input = text_of(line, "question");
  } else {
    prompt.context = "Please read the following text and answer the question below.\n\n<text>\n" +
                     context + "\n</text>\n\n";
    prompt.input =
        kChoiceQuestion + question + "\nChoices:\n" + choices_text(choices) + "\n" + kChoiceForm;
  }
  prompt.answers = {answer};
  if (prompt.metric.empty()) prompt.metric = "choice";
  if (prompt.max_new_tokens == 0) prompt.max_new_tokens = kChoiceTokens;
  add_task_rules(prompt);
  return {{std::move(prompt)}, {}};
}

/// The letters of the right options, which are written as letters or as the options' texts.
std::vector<std::string> letters_of(const std::vector<std::string>& answers,
                                    const std::vector<std::string>& options) {
  std::vector<std::string> letters;
  for (const auto& answer : answers) {
    const auto at = static_cast<std::size_t>(std::find(options.begin(), options.end(), answer) -
                                             options.begin());
    const std::string letter = at < options.size() ? std::string(1, kLetters[at])
                               : is_letter(answer) ? answer
                                                   : "";
    if (letter.empty())
      fail(ErrorCode::unreadable, "'answer' is ", quoted(answer, 40),
           ", which is neither one of A, B, C and D nor one of the options");
    if (std::find(letters.begin(), letters.end(), letter) == letters.end())
      letters.push_back(letter);
  }
  return letters;
}

/// One turn on the context that the line's other turns share.
Prompt scbench_turn(const Line& turn, Prompt prompt) {
  if (turn.find("task")) prompt.task = text_of(turn, "task");
  prompt.input = needed_text(turn, "input", "a turn of SCBench's layout");
  prompt.answers = some_answers_of(turn, "answer");
  const auto options = texts_of(turn, "options");
  if (!options.empty()) {
    if (options.size() != kLetters.size())
      fail(ErrorCode::unreadable, "'options' holds ", options.size(), " texts, expected 4");
    prompt.input = kChoiceQuestion + prompt.input + "\nChoices:\n" + choices_text(options) + "\n" +
                   kChoiceForm;
    prompt.answers = letters_of(prompt.answers, options);
    if (prompt.metric.empty()) prompt.metric = "choice";
  }
  add_task_rules(prompt);
  return prompt;
}

PromptsOfLine scbench_prompts(const Line& line, Prompt prompt) {
  const json& turns = *line.find("multi_turns");
  if (!turns.is_array() || turns.empty())
    fail(ErrorCode::unreadable, "'multi_turns' is not a list of turns");
  prompt.context =
      needed_text(line, line.find("context") ? "context" : "input", "SCBench's layout");
  if (prompt.group.empty()) prompt.group = prompt.id;
  PromptsOfLine out;
  for (const auto& object : turns) {
    const std::size_t number = out.prompts.size() + 1;
    in_context(str("turn ", number), [&] {
      const Line turn(object);
      Prompt one = prompt;
      one.id = str(prompt.id, "/", number);
      one.turn = static_cast<std::int64_t>(number);
      one = scbench_turn(turn, std::move(one));
      prompt.earlier.push_back({one.input, join(one.answers, ", ")});
      out.prompts.push_back(std::move(one));
      for (const auto& name : turn.unread()) out.unread.push_back("multi_turns." + name);
    });
  }
  return out;
}

/// A transcript: the last call that it records is the right answer.
PromptsOfLine transcript_prompt(const Line& line, Prompt prompt) {
  const nlohmann::ordered_json object = parse_ordered(line.text());
  const auto member = [&](const char* name) {
    return line.find(name) ? object.at(name) : nlohmann::ordered_json();
  };
  auto tools = member("tools");
  if (tools.is_string())  // as in files that come from tables
    tools =
        in_context("'tools'", [&] { return parse_ordered(tools.get_ref<const std::string&>()); });
  ask_for_calls(prompt, member("messages"), tools, member("earlier"));
  const auto before = static_cast<std::int64_t>(prompt.earlier.size());
  prompt.turn = count_of(line, "turn", before > 0 ? before + 1 : 0);
  return {{std::move(prompt)}, {}};
}

/// The members that say what the prompt is; each belongs to some of the layouts.
constexpr std::array kPromptMembers = {"tokens",   "text",     "context",     "input",
                                       "outputs",  "question", "choice_A",    "choice_B",
                                       "choice_C", "choice_D", "multi_turns", "messages"};

struct Layout {
  const char* name;
  std::vector<const char*> marks;    // a line that has one of them is of this layout
  std::vector<const char*> members;  // of kPromptMembers
  PromptsOfLine (*read)(const Line&, Prompt);
};

/// The first whose marks a line has is the line's.
const std::vector<Layout>& layouts() {
  static const std::vector<Layout> kLayouts = {
      {"SCBench's layout (context, multi_turns)",
       {"multi_turns"},
       {"multi_turns", "context", "input"},
       scbench_prompts},
      {"LongBench v2's layout (context, question, choice_A to choice_D, answer)",
       {"choice_A", "choice_B", "choice_C", "choice_D"},
       {"context", "question", "choice_A", "choice_B", "choice_C", "choice_D"},
       longbench_v2_prompt},
      {"RULER's layout (input, outputs)", {"outputs"}, {"input", "outputs"}, ruler_prompt},
      {"kvpress's layout (context, question, answer)",
       {"question"},
       {"context", "question"},
       kvpress_prompt},
      {"OpenAI's layout (messages, tools)", {"messages"}, {"messages"}, transcript_prompt},
      {"a prompt as tokens, text, or context with input",
       {"tokens", "text", "context", "input"},
       {"tokens", "text", "context", "input"},
       own_prompt}};
  return kLayouts;
}

bool has_any(const Line& line, const std::vector<const char*>& members) {
  return std::any_of(members.begin(), members.end(),
                     [&](const char* name) { return line.find(name) != nullptr; });
}

const Layout& layout_of(const Line& line) {
  for (const auto& layout : layouts()) {
    if (!has_any(line, layout.marks)) continue;
    for (const char* member : kPromptMembers)
      if (line.find(member) && std::find(layout.members.begin(), layout.members.end(),
                                         std::string_view(member)) == layout.members.end())
        fail(ErrorCode::unreadable, "'", layout.marks.front(), "' makes it a line of ", layout.name,
             ", which has no '", member, "': one line cannot mix layouts");
    return layout;
  }
  auto members = line.members();
  if (members.size() > 12) members.resize(12);
  fail(ErrorCode::unreadable, "of no known layout: its members are ",
       members.empty() ? "none" : join(members, ", ", [](const auto& m) { return quoted(m, 40); }),
       "; there are ", join(layouts(), "; ", [](const auto& layout) { return layout.name; }));
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

PromptsOfLine parse_line(std::string_view text, const LineOrigin& origin) {
  const json object = parse_shallow(text);
  const Line line(object, text);
  const Layout& layout = layout_of(line);
  Prompt prompt = described(line, origin);
  if (prompt.task.empty() && layout.read != own_prompt) prompt.task = origin.task;
  PromptsOfLine out = layout.read(line, std::move(prompt));
  for (auto& name : line.unread()) out.unread.push_back(std::move(name));
  for (const auto& one : out.prompts) (void)prompt_call_parts(one, "");  // refuses other answers
  return out;
}

}  // namespace kvatlas::data
