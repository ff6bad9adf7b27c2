// SPDX-License-Identifier: Apache-2.0
#include "data/tasks.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/error.hpp"
#include "base/plain_text.hpp"
#include "data/longbench.hpp"
#include "data/tasks_impl.hpp"

namespace kvatlas::data {
namespace {

constexpr std::string_view kHaystacks[] = {"prose", "repeat"};
constexpr TaskOption haystack_option(std::string_view standard) {
  return {"haystack", "what hides it: the bundled prose, or five sentences repeated",
          standard,   0,
          0,          kHaystacks};
}

constexpr std::string_view kKeyKinds[] = {"words", "uuids"};
constexpr std::string_view kValueKinds[] = {"numbers", "words", "uuids"};

constexpr TaskOption kNeedleOptions[] = {
    {"keys", "keys in the text (MK of RULER); as many as are asked for at least", "1", 1, 64},
    {"values", "values that each key has (MV)", "1", 1, 64},
    {"queries", "keys that are asked for (MQ)", "1", 1, 64},
    {"turns", "questions on one text, each for other keys", "1", 1, 64},
    {"keys_are", "what the keys are made of", "words", 0, 0, kKeyKinds},
    {"values_are", "what is found by a key", "numbers", 0, 0, kValueKinds},
    haystack_option("prose")};
constexpr TaskOption kPasskeyOptions[] = {{"digits", "digits of the pass key", "7", 1, 128},
                                          haystack_option("repeat")};
constexpr TaskOption kVariableOptions[] = {
    {"chains", "chains of variables, of which one is asked for", "1", 1, 16},
    {"hops", "variables of a chain beside its first", "4", 1, 16},
    haystack_option("repeat")};
constexpr TaskOption kCommonOptions[] = {{"words", "words that are common", "10", 1, 50}};

constexpr TaskOption steps_option(std::string_view standard) {
  return {"steps", "steps, each with a value of its own", standard, 1, 512};
}
constexpr TaskOption kTotalOptions[] = {
    steps_option("32"),
    {"digits", "most digits of the numbers that are added and taken away", "2", 1, 6},
    haystack_option("repeat")};
constexpr TaskOption kListOptions[] = {
    steps_option("16"), {"items", "things in the list", "5", 2, 12}, haystack_option("repeat")};
constexpr TaskOption kStateOptions[] = {steps_option("32"),
                                        {"people", "people, each with a thing", "5", 2, 10},
                                        haystack_option("repeat")};
constexpr TaskOption kToolOptions[] = {
    {"functions", "functions in the list; 0: more, the longer the prompt is", "0", 0, 128},
    {"arguments", "arguments of a function", "3", 1, 6},
    {"notes", "notes with the arguments of a function each", "4", 1, 16},
    {"turns", "questions on one text, each for another function", "1", 1, 16},
    haystack_option("prose")};

struct Kind {
  TaskInfo info;
  MakeTask make;
  // For tokenizers that write each digit as a token, and models that say the question again.
  std::int64_t (*answer_tokens)(const Options&);
};

const std::array<Kind, 11> kKinds = {
    {{{"needle",
       "Find what some keys stand for in a long text (RULER's needle in a haystack: S, MK, MV, "
       "MQ).",
       kNeedleOptions, true, "needle:keys=4"},
      make_needle,
      [](const Options& o) {
        const std::int64_t key = o.word("keys_are") == "uuids" ? 38 : 6;
        const std::int64_t value = o.word("values_are") == "uuids" ? 38 : 10;
        return 16 + o.number("queries") * (key + value * o.number("values"));
      }},
     {{"passkey", "Repeat the one number that is hidden in a long text.", kPasskeyOptions, true,
       "passkey:digits=64"},
      make_passkey,
      [](const Options& o) { return 8 + o.number("digits"); }},
     {{"vt",
       "Name all variables that have a value, along chains of assignments (RULER's variable "
       "tracking).",
       kVariableOptions, false, "vt:hops=2"},
      make_variable_tracking,
      [](const Options& o) { return 30 + 8 * (o.number("hops") + 1); }},
     {{"cwe", "Name the words that stand in a long list most often (RULER's common words).",
       kCommonOptions, false, "cwe:words=5"},
      make_common_words,
      [](const Options& o) { return 30 + 8 * o.number("words"); }},
     {{"fwe",
       "Name the three most frequent words of a text in made-up words (RULER's frequent words).",
       {},
       false,
       "fwe"},
      make_frequent_words,
      [](const Options&) { return std::int64_t{50}; }},
     {{"running-total",
       "Say the total after each of many additions and subtractions: a long answer, worked out.",
       kTotalOptions, true, "running-total:steps=64"},
      make_running_total,
      [](const Options& o) { return 16 + o.number("steps") * (10 + o.number("digits")); }},
     {{"list-edit", "Say the whole list after each of many changes: a long answer, worked out.",
       kListOptions, true, "list-edit:items=8"},
      make_list_edit,
      [](const Options& o) { return 16 + o.number("steps") * (8 + 3 * o.number("items")); }},
     {{"state-tracking",
       "Say who holds a thing after each of many exchanges: a long answer, worked out.",
       kStateOptions, true, "state-tracking:people=3"},
      make_state_tracking,
      [](const Options& o) { return 16 + 12 * o.number("steps"); }},
     {{"tools",
       "Call the right function of a long list, with arguments that earlier calls gave back.",
       kToolOptions, true, "tools:functions=8"},
      make_tools,
      [](const Options& o) { return 60 + 24 * o.number("arguments"); }},
     {{"prose", "A stretch of the bundled prose, without a question.", {}, false, "prose"},
      make_prose,
      [](const Options&) { return std::int64_t{0}; }},
     {{"code", "A stretch of the bundled source code, without a question.", {}, false, "code"},
      make_code,
      [](const Options&) { return std::int64_t{0}; }}}};

template <class Items>
std::string names_of(const Items& items) {
  std::vector<std::string> names;
  for (const auto& item : items) names.emplace_back(item.name);
  return list_in_words(names);
}

struct ParsedTask {
  const Kind& kind;
  Options options;
};

ParsedTask parse_task(std::string_view task) {
  const auto colon = task.find(':');
  const auto name = task.substr(0, colon);
  for (const auto& kind : kKinds)
    if (kind.info.name == name) return {kind, Options(kind.info, task.substr(name.size()))};
  if (longbench_dataset(task))
    fail(ErrorCode::usage, quoted(task),
         " is a dataset of LongBench: its prompts are read from a file, not made");
  fail(ErrorCode::usage, "there is no task ", quoted(name), "; there are ", names_of(tasks()));
}

std::int64_t turns_of(const ParsedTask& task) {
  const auto& given = task.kind.info.options;
  return std::any_of(given.begin(), given.end(), [](const auto& o) { return o.name == "turns"; })
             ? task.options.number("turns")
             : 1;
}

/// 0.5 as "0.50", 0.125 as "0.125".
std::string depth_text(double depth) {
  char text[16];
  const auto end = std::to_chars(text, text + sizeof text, depth, std::chars_format::fixed, 6).ptr;
  std::string out(text, end);
  while (out.size() > 4 && out.back() == '0') out.pop_back();
  return out;
}

void check(const TaskRequest& request) {
  if (request.length < 1 || request.length > kLongestPrompt)
    fail(ErrorCode::usage, "a prompt of ", request.length, " tokens: expected 1 to ",
         kLongestPrompt);
  if (!(request.depth >= 0 && request.depth <= 1))
    fail(ErrorCode::usage, "a depth of ", request.depth,
         ": expected 0 (the beginning) to 1 (the end)");
  if (request.seed > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    fail(ErrorCode::usage, "a seed of ", request.seed, ": expected one below 2^63");
}

}  // namespace

Options::Options(const TaskInfo& info, std::string_view given) {
  for (const auto& option : info.options) set(option, option.standard);
  std::vector<std::string_view> seen;
  while (!given.empty()) {
    given.remove_prefix(1);  // ':' or ','
    const auto setting = given.substr(0, given.find(','));
    given.remove_prefix(setting.size());
    const auto equals = std::min(setting.find('='), setting.size());
    const auto name = setting.substr(0, equals);
    const auto option = std::find_if(info.options.begin(), info.options.end(),
                                     [&](const TaskOption& o) { return o.name == name; });
    if (option == info.options.end())
      fail(ErrorCode::usage, "the task '", info.name, "' has no option ", quoted(name), "; it has ",
           info.options.empty() ? "none" : names_of(info.options));
    if (std::find(seen.begin(), seen.end(), name) != seen.end())
      fail(ErrorCode::usage, "the task '", info.name, "' is given ", name, " twice");
    seen.push_back(name);
    in_context(str("task '", info.name, "'"),
               [&] { set(*option, setting.substr(std::min(equals + 1, setting.size()))); });
  }
}

void Options::set(const TaskOption& option, std::string_view value) {
  const std::string name(option.name);
  const auto& choices = option.choices;
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) {
    words_[name] = value;
    return;
  }
  std::int64_t number = 0;
  const char* end = value.data() + value.size();
  const auto read = std::from_chars(value.data(), end, number);
  if (!choices.empty() || read.ec != std::errc() || read.ptr != end || number < option.lowest ||
      number > option.most)
    fail(ErrorCode::usage, name, "=", printable(value), ": expected ", values_text(option));
  numbers_[name] = number;
}

std::string values_text(const TaskOption& option) {
  if (option.choices.empty()) return str(option.lowest, " to ", option.most);
  return join(option.choices, "|");
}

std::string random_digits(Random& random, std::int64_t digits) {
  std::string out(1, static_cast<char>('1' + random.below(9)));
  while (static_cast<std::int64_t>(out.size()) < digits)
    out += static_cast<char>('0' + random.below(10));
  return out;
}

std::string list_in_words(const std::vector<std::string>& items) {
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += i + 1 == items.size() ? " and " : ", ";
    out += items[i];
  }
  return out;
}

std::span<const TaskInfo> tasks() {
  static const auto kInfos = [] {
    std::vector<TaskInfo> infos;
    for (const auto& kind : kKinds) infos.push_back(kind.info);
    return infos;
  }();
  return kInfos;
}

const TaskInfo& task_info(std::string_view task) {
  return tasks()[&parse_task(task).kind - kKinds.data()];
}

std::int64_t turns_of(std::string_view task) { return turns_of(parse_task(task)); }

bool is_generated(std::int64_t seed, std::string_view task) { return seed >= 0 && is_task(task); }

bool is_task(std::string_view task) {
  const auto name = task.substr(0, task.find(':'));
  return std::any_of(tasks().begin(), tasks().end(),
                     [&](const TaskInfo& info) { return info.name == name; });
}

std::int64_t answer_tokens(std::string_view task) {
  if (const auto* dataset = longbench_dataset(task)) return dataset->answer_tokens;
  const auto [kind, options] = parse_task(task);
  return kind.answer_tokens(options);
}

std::int64_t answer_tokens(const Prompt& prompt) {
  constexpr std::int64_t kUsualAnswer = 32;
  if (prompt.max_new_tokens > 0) return prompt.max_new_tokens;
  const bool known = longbench_dataset(prompt.task) || is_task(prompt.task);
  const std::int64_t tokens = known ? answer_tokens(prompt.task) : 0;
  return tokens > 0 ? tokens : kUsualAnswer;
}

Prompt make_prompt(const TaskRequest& request, const CountTokens& count) {
  const ParsedTask task = parse_task(request.task);
  const TaskInfo& info = task.kind.info;
  check(request);
  const std::int64_t turns = turns_of(task);
  if (request.turn < 1 || request.turn > turns)
    fail(ErrorCode::usage, "turn ", request.turn, " of the task ", quoted(request.task),
         ": expected 1 to ", turns);
  Prompt prompt = in_context(str("task ", quoted(request.task)),
                             [&] { return task.kind.make(request, task.options, count); });
  prompt.task = request.task;
  prompt.length = request.length;
  if (info.has_depth && request.turn == 1) prompt.depth = request.depth;
  prompt.seed = static_cast<std::int64_t>(request.seed);
  prompt.group = str(request.task, "/", request.seed);
  prompt.id = info.has_depth ? str(request.task, "/", request.length, "/",
                                   depth_text(request.depth), "/", request.seed)
                             : str(request.task, "/", request.length, "/", request.seed);
  if (turns > 1) {
    prompt.turn = request.turn;
    prompt.id += str("/", request.turn);
  }
  return prompt;
}

}  // namespace kvatlas::data
