// SPDX-License-Identifier: Apache-2.0
// What the prompts of each task hold.
#include "data/tasks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "data/haystack.hpp"
#include "data/texts.hpp"
#include "tests/support/error_of.hpp"
#include "tests/unit/data/token_counters.hpp"

namespace kvatlas::data {
namespace {

using testing::AllOf;
using testing::Each;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::UnorderedElementsAreArray;
using testing_support::error_of;

Prompt prompt_of(const std::string& task, std::int64_t length = 2048, double depth = 0.5,
                 std::uint64_t seed = 0) {
  return make_prompt({task, length, depth, seed}, of_prompts(count_quads));
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

/// What stands after `before` and up to `after`, each time.
std::vector<std::string> all_between(const std::string& text, const std::string& before,
                                     const std::string& after) {
  std::vector<std::string> found;
  for (std::size_t at = text.find(before); at != text.npos; at = text.find(before, at)) {
    at += before.size();
    found.push_back(text.substr(at, text.find(after, at) - at));
  }
  return found;
}

TEST(Tasks, PromptsSayWhatTheyWereAskedFor) {
  const Prompt needle = prompt_of("needle:keys=4", 1000, 0.125, 17);
  EXPECT_EQ(needle.id, "needle:keys=4/1000/0.125/17");
  EXPECT_EQ(needle.task, "needle:keys=4");
  EXPECT_EQ(needle.length, 1000);
  EXPECT_EQ(needle.depth, 0.125);
  EXPECT_EQ(needle.seed, 17);
  EXPECT_EQ(needle.group, "needle:keys=4/17");
  EXPECT_EQ(prompt_of("needle").id, "needle/2048/0.50/0");
  EXPECT_EQ(prompt_of("passkey", 500, 1).id, "passkey/500/1.00/0");
  const Prompt words = prompt_of("cwe");
  EXPECT_EQ(words.id, "cwe/2048/0");
  EXPECT_EQ(words.depth, -1);
}

TEST(Tasks, EveryExampleIsATaskWithItsAnswers) {
  std::set<std::string_view> names;
  for (const auto& task : tasks()) {
    names.insert(task.name);
    EXPECT_EQ(&task_info(task.example), &task);
    EXPECT_THAT(std::string(task.summary), EndsWith("."));
    const Prompt prompt = prompt_of(std::string(task.example));
    EXPECT_EQ(prompt.depth >= 0, task.has_depth);
    const bool asks = answer_tokens(task.example) > 0;
    EXPECT_EQ(!prompt.answers.empty(), asks);
    EXPECT_EQ(!prompt.input.empty(), asks);
    EXPECT_EQ(prompt.text.empty(), asks);
  }
  EXPECT_THAT(names,
              UnorderedElementsAreArray({"needle", "passkey", "vt", "cwe", "fwe", "running-total",
                                         "list-edit", "state-tracking", "tools", "prose", "code"}));
}

TEST(Tasks, AnswerTokensHaveRoomForTheAnswers) {
  for (const char* task :
       {"needle", "needle:values=4,queries=4", "needle:keys_are=uuids,values_are=uuids",
        "needle:values=4,values_are=words", "passkey:digits=128", "vt:hops=9", "cwe:words=20",
        "fwe"}) {
    std::int64_t needed = 0;  // a digit a token, letters in pairs, and a comma
    for (const auto& answer : prompt_of(task, 8000).answers)
      needed += std::isdigit(answer[0]) ? count_bytes(answer) + 2 : count_bytes(answer) / 2 + 2;
    EXPECT_GE(answer_tokens(task), needed) << task;
    EXPECT_LE(answer_tokens(task), 4 * needed + 40) << task;
  }
}

// The same on every platform: a change here changes everybody's prompts.
TEST(Tasks, PromptsStayTheSame) {
  const auto hash = [](const Prompt& prompt) {
    std::uint64_t value = 0xcbf29ce484222325;  // FNV-1a
    for (const char c : prompt.as_text())
      value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return value;
  };
  const std::map<std::string, std::uint64_t> pinned = {
      {"needle", 0xedcc69a8b54175d5},
      {"needle:keys=4,values=2,queries=2", 0xeffcd098be44a2b9},
      {"passkey", 0xf16ffe362bc944f2},
      {"vt:chains=2", 0x97c5f74c239076b6},
      {"cwe", 0xd42184b16e29933e},
      {"fwe", 0x22c61f19669dc1cc},
      {"running-total", 0x0bd9a7478f83a021},
      {"list-edit:items=4", 0x9a5302bc5400fa37},
      {"state-tracking", 0x0a0314209184af90},
      {"tools:functions=3,turns=2", 0xfaaf3329fc89488a},
      {"prose", 0xc540a69d0ace6c08},
      {"code", 0xaff59a2569b08011}};
  for (const auto& [task, expected] : pinned)
    EXPECT_EQ(hash(prompt_of(task, 2048, 0.3, 5)), expected) << task;
  EXPECT_THAT(prompt_of("passkey", 2048, 0.3, 1).answers, testing::ElementsAre("6086146"));
}

TEST(Tasks, TheSeedAloneChoosesTheAnswers) {
  for (const char* task : {"needle:queries=2", "passkey", "vt", "cwe", "running-total", "list-edit",
                           "state-tracking", "tools", "tools:functions=8,arguments=6"}) {
    const auto answers = prompt_of(task).answers;
    EXPECT_EQ(prompt_of(task, 2048, 0.9).answers, answers) << task;
    EXPECT_EQ(prompt_of(task, 3000, 0.1).answers, answers) << task;
    EXPECT_NE(prompt_of(task, 2048, 0.5, 1).answers, answers) << task;
  }
}

TEST(Tasks, TurnsAreQuestionsOnOneText) {
  std::vector<Prompt> turns;
  for (std::int64_t turn = 1; turn <= 3; ++turn)
    turns.push_back(
        make_prompt({"needle:turns=3,queries=2", 1000, 0.3, 5, turn}, of_prompts(count_quads)));
  std::set<std::string> answers;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const Prompt& prompt = turns[i];
    EXPECT_EQ(prompt.id, str("needle:turns=3,queries=2/1000/0.30/5/", i + 1));
    EXPECT_EQ(prompt.turn, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(prompt.depth, i == 0 ? 0.3 : -1);  // the needles of the others lie elsewhere
    EXPECT_EQ(prompt.group, turns[0].group);
    EXPECT_EQ(prompt.context, turns[0].context);
    EXPECT_THAT(prompt.answers, SizeIs(2));
    for (const auto& answer : prompt.answers) {
      EXPECT_THAT(prompt.context, HasSubstr(answer));
      EXPECT_TRUE(answers.insert(answer).second) << answer;
    }
    ASSERT_THAT(prompt.earlier, SizeIs(i));
    for (std::size_t before = 0; before < i; ++before) {
      EXPECT_EQ(prompt.earlier[before].input, turns[before].input);
      EXPECT_EQ(prompt.earlier[before].answer,
                turns[before].answers[0] + " and " + turns[before].answers[1] + ".");
    }
  }
  EXPECT_EQ(turns_of("needle:turns=3"), 3);
  EXPECT_EQ(turns_of("needle"), 1);
  EXPECT_EQ(turns_of("prose"), 1);
  for (const std::int64_t turn : {0, 4})
    EXPECT_THAT(error_of([&] {
                  make_prompt({"needle:turns=3", 1000, 0.5, 0, turn}, of_prompts(count_quads));
                }),
                HasSubstr("expected 1 to 3"));
}

/// What the steps of a prompt say, one after the other.
std::vector<std::string> steps_of(const Prompt& prompt) {
  std::vector<std::string> steps;
  for (std::size_t i = 1; i <= prompt.answers.size(); ++i) {
    const auto found = all_between(prompt.context, "Step " + std::to_string(i) + ": ", ".");
    EXPECT_THAT(found, SizeIs(1)) << i;
    steps.push_back(found.at(0));
  }
  return steps;
}

TEST(Tasks, RunningTotalsAreTheSumsOfTheirSteps) {
  for (const std::uint64_t seed : {0, 1, 2}) {
    const Prompt prompt = prompt_of("running-total:steps=40,digits=3", 2048, 0.4, seed);
    ASSERT_THAT(prompt.answers, SizeIs(40));
    std::int64_t total =
        std::stoll(all_between(prompt.context, "The total is ", " at first").at(0));
    const auto steps = steps_of(prompt);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::int64_t by = std::stoll(steps[i].substr(steps[i].rfind(' ')));
      EXPECT_TRUE(by >= 1 && by <= 999) << steps[i];
      total += steps[i].starts_with("add ") ? by : -by;
      EXPECT_GE(total, 0);
      EXPECT_EQ(prompt.answers[i], std::to_string(total));
    }
    EXPECT_THAT(prompt.input, EndsWith("Step 1:"));
    EXPECT_EQ(prompt.metric, "steps");
  }
}

TEST(Tasks, ListsAreEditedStepByStep) {
  std::set<std::string> kinds;
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    const Prompt prompt = prompt_of("list-edit:steps=30,items=4", 2048, 0.4, seed);
    ASSERT_THAT(prompt.answers, SizeIs(30));
    const auto items_of = [](const std::string& text) {
      std::vector<std::string> items;
      for (std::string word : words_of(text)) {
        if (word.back() == ',') word.pop_back();
        items.push_back(word);
      }
      return items;
    };
    auto list = items_of(all_between(prompt.context, "The list is ", " at first").at(0));
    const auto steps = steps_of(prompt);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto words = words_of(steps[i]);
      kinds.insert(words[0] + (words[0] == "move" ? words.back() : ""));
      const auto place = [&](const std::string& item) {
        return std::find(list.begin(), list.end(), item);
      };
      if (words[0] == "put") {
        *place(words.back()) = words[1];
      } else if (words[0] == "move") {
        list.erase(place(words[1]));
        list.insert(words.back() == "front" ? list.begin() : list.end(), words[1]);
      } else if (words[0] == "let") {
        std::iter_swap(place(words[1]), place(words[3]));
      } else {
        std::reverse(list.begin(), list.end());
      }
      EXPECT_EQ(items_of(prompt.answers[i]), list) << steps[i];
      EXPECT_THAT(std::set<std::string>(list.begin(), list.end()), SizeIs(4));
    }
  }
  EXPECT_THAT(kinds, UnorderedElementsAreArray({"put", "movefront", "moveend", "let", "turn"}));
}

TEST(Tasks, TheThingAskedForGoesFromHandToHand) {
  std::set<std::string> holders;
  for (const std::uint64_t seed : {0, 1, 2}) {
    const Prompt prompt = prompt_of("state-tracking:steps=40,people=4", 2048, 0.4, seed);
    std::map<std::string, std::string> holds;  // by thing
    for (const auto& thing : all_between(prompt.context, " holds the ", ".")) {
      const auto at = prompt.context.find(" holds the " + thing);
      holds[thing] = words_of(prompt.context.substr(0, at)).back();
    }
    ASSERT_THAT(holds, SizeIs(4));
    const std::string asked = all_between(prompt.input, "who holds the ", " after").at(0);
    const auto steps = steps_of(prompt);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto words = words_of(steps[i]);
      ASSERT_NE(words[0], words[2]);
      for (auto& [thing, holder] : holds)
        holder = holder == words[0] ? words[2] : holder == words[2] ? words[0] : holder;
      EXPECT_EQ(prompt.answers[i], holds.at(asked)) << steps[i];
      holders.insert(holds.at(asked));
    }
  }
  EXPECT_GT(holders.size(), 3u);
}

TEST(Tasks, LongAnswersHaveRoom) {
  for (const std::string task :
       {"running-total:steps=64", "list-edit:steps=20,items=7", "state-tracking:steps=64"}) {
    const Prompt prompt = prompt_of(task, 8000);
    std::int64_t needed = 0;  // a digit a token, letters in threes
    for (const auto& answer : prompt.answers)
      needed += 7 + (std::isdigit(answer[0]) ? count_bytes(answer) : count_bytes(answer) / 3 + 1);
    EXPECT_GE(answer_tokens(task), needed) << task;
    EXPECT_LE(answer_tokens(task), 2 * needed + 40) << task;
    EXPECT_GE(answer_tokens(task), 500) << task;
  }
}

TEST(Tasks, EverySeedDrawsItsOwnText) {
  for (const char* task :
       {"needle", "passkey", "needle:haystack=repeat", "passkey:haystack=prose"}) {
    std::set<std::string> begins;
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      const Prompt prompt = prompt_of(task, 1000, 1, seed);
      const std::size_t begin = prompt.context.find("\n\n") + 2;
      begins.insert(prompt.context.substr(begin, 80));
      EXPECT_EQ(prompt.group, task + ("/" + std::to_string(seed)));
      EXPECT_EQ(prompt_of(task, 2000, 0.3, seed).group, prompt.group);
    }
    EXPECT_THAT(begins, SizeIs(8)) << task;
  }
}

TEST(Tasks, TheDepthMovesTheNeedleAndNothingElse) {
  for (const char* task : {"needle", "passkey", "needle:haystack=repeat", "passkey:haystack=prose"})
    for (const double depth : {0.0, 0.1, 0.25, 0.5, 0.77, 1.0}) {
      const Prompt prompt = prompt_of(task, 4000, depth, 3);
      const std::string needle =
          task[0] == 'n' ? "One of the special" : "The pass key is " + prompt.answers[0];
      const std::string needle_end =
          prompt.answers[0] + (task[0] == 'n' ? "." : " is the pass key.");
      const std::size_t begin = prompt.context.find("\n\n") + 2;
      const std::size_t at = prompt.context.find(needle, begin);
      const auto size = static_cast<double>(prompt.context.size() - begin);
      // Sentences of the prose are up to 800 bytes long, 5 % of this haystack; half of that is off.
      EXPECT_NEAR(static_cast<double>(at - begin) / size, depth, 0.03) << prompt.id;
      const std::size_t end = prompt.context.find(needle_end, at);
      EXPECT_EQ(depth == 0, at == begin) << prompt.id;
      EXPECT_EQ(depth == 1, end + needle_end.size() == prompt.context.size()) << prompt.id;
      EXPECT_EQ(prompt.input, prompt_of(task, 4000, 0.6, 3).input);
    }
}

TEST(Needle, EachNumberOnceAndAskedKeysHaveAllTheirs) {
  struct Case {
    const char* task;
    std::size_t keys, values, queries;
  };
  for (const auto& [task, keys, values, queries] :
       {Case{"needle", 1, 1, 1}, Case{"needle:keys=4", 4, 1, 1}, Case{"needle:values=4", 1, 4, 1},
        Case{"needle:queries=4", 4, 1, 4}, Case{"needle:keys=6,values=2,queries=3", 6, 2, 3},
        Case{"needle:keys=64,queries=64", 64, 1, 64}}) {
    const Prompt prompt = prompt_of(task, 8000, 0.5, 2);
    std::map<std::string, std::vector<std::string>> numbers;
    for (const auto& needle :
         all_between(prompt.context, "One of the special magic numbers for ", ".")) {
      const auto words = words_of(needle);  // KEY is NUMBER
      ASSERT_EQ(words.size(), 3u) << needle;
      numbers[words[0]].push_back(words[2]);
    }
    EXPECT_THAT(numbers, SizeIs(keys)) << task;
    std::vector<std::string> asked;
    for (const auto& [key, its] : numbers) {
      EXPECT_THAT(its, SizeIs(values)) << task;
      if (prompt.input.find(key) != std::string::npos)
        asked.insert(asked.end(), its.begin(), its.end());
    }
    EXPECT_THAT(prompt.answers, UnorderedElementsAreArray(asked)) << task;
    EXPECT_THAT(prompt.answers, SizeIs(queries * values)) << task;
    EXPECT_THAT(prompt.answers, Each(SizeIs(7)));
    for (const auto& answer : prompt.answers) EXPECT_EQ(occurrences(prompt.as_text(), answer), 1);
  }
}

TEST(Needle, KeysAndValuesOfOtherKinds) {
  const std::string uuid = "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}";
  const std::map<std::string, std::regex> kinds = {{"numbers", std::regex("[1-9][0-9]{6}")},
                                                   {"words", std::regex("[a-z]+-[a-z]+")},
                                                   {"uuids", std::regex(uuid)}};
  for (const std::string keys : {"words", "uuids"})
    for (const std::string values : {"numbers", "words", "uuids"}) {
      const Prompt prompt = prompt_of(
          "needle:keys=4,values=3,queries=2,keys_are=" + keys + ",values_are=" + values, 3000);
      const auto needles =
          all_between(prompt.context, "One of the special magic " + values + " for ", ".");
      EXPECT_THAT(needles, SizeIs(12));
      std::set<std::string> different;
      for (const auto& needle : needles) {
        const auto words = words_of(needle);
        ASSERT_THAT(words, SizeIs(3)) << needle;
        EXPECT_TRUE(std::regex_match(words[0], kinds.at(keys))) << words[0];
        EXPECT_TRUE(std::regex_match(words[2], kinds.at(values))) << words[2];
        different.insert({words[0], words[2]});
      }
      EXPECT_THAT(different, SizeIs(16));
      EXPECT_THAT(prompt.answers, SizeIs(6));
      EXPECT_THAT(prompt.input, HasSubstr("The special magic " + values + " for "));
    }
  EXPECT_THAT(prompt_of("needle:values_are=words").input,
              testing::StartsWith("What is the special magic word for "));
}

TEST(Needle, AsksInWords) {
  const std::string one = prompt_of("needle").input;
  const std::string key = all_between(one, "number for ", "?").at(0);
  EXPECT_EQ(one, "What is the special magic number for " + key + "? The special magic number for " +
                     key + " is");
  const std::string three = prompt_of("needle:queries=3").input;
  const std::string keys = all_between(three, "numbers for ", "?").at(0);
  EXPECT_EQ(three, "What are all the special magic numbers for " + keys +
                       "? The special magic numbers for " + keys + " are");
  EXPECT_THAT(words_of(keys), testing::ElementsAre(EndsWith(","), testing::_, "and", testing::_));
}

TEST(Passkey, StandsTwiceAndHasItsDigits) {
  for (const int digits : {1, 7, 64, 128}) {
    const Prompt prompt = prompt_of("passkey:digits=" + std::to_string(digits), 1000);
    ASSERT_THAT(prompt.answers, SizeIs(1));
    EXPECT_THAT(prompt.answers[0], SizeIs(digits));
    EXPECT_THAT(prompt.answers[0],
                Each(testing::Truly([](char c) { return c >= '0' && c <= '9'; })));
    EXPECT_NE(prompt.answers[0][0], '0');
    EXPECT_EQ(occurrences(prompt.as_text(), prompt.answers[0]), 2);
    EXPECT_THAT(prompt.input, EndsWith("The pass key is"));
  }
}

/// The variables of `context` that have a number, in the order of their assignments.
std::map<std::string, std::vector<std::string>> variables_by_value(const std::string& context) {
  std::map<std::string, std::string> value_of;
  std::map<std::string, std::vector<std::string>> variables;
  const auto words = words_of(context);
  for (std::size_t i = 0; i + 3 < words.size(); ++i) {
    if (words[i] != "VAR" || words[i + 2] != "=") continue;
    const std::string& name = words[i + 1];
    // A chain is in order: what a variable is assigned from has its value by then.
    const std::string source = words[i + 3] == "VAR" ? words.at(i + 4) : words[i + 3];
    EXPECT_THAT(source, EndsWith("."));
    const std::string word = source.substr(0, source.size() - 1);
    const std::string value = words[i + 3] == "VAR" ? value_of.at(word) : word;
    EXPECT_TRUE(value_of.emplace(name, value).second) << name << " is assigned twice";
    variables[value].push_back(name);
  }
  return variables;
}

TEST(VariableTracking, ChainsLeadToTheAnswers) {
  struct Case {
    const char* task;
    std::size_t chains, variables;
  };
  for (const auto& [task, chains, variables] : {Case{"vt", 1, 5}, Case{"vt:chains=3,hops=2", 3, 3},
                                                Case{"vt:hops=16,haystack=prose", 1, 17}})
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const Prompt prompt = prompt_of(task, 1500, 0, seed);
      const auto found = variables_by_value(prompt.context);
      EXPECT_THAT(found, SizeIs(chains)) << prompt.id;
      const auto asked = all_between(prompt.input, "the value ", " ");
      EXPECT_EQ(found.at(asked.at(0)), prompt.answers) << prompt.id;
      EXPECT_THAT(prompt.answers, SizeIs(variables));
    }
}

/// How often each word stands in the list or text of a prompt, the greatest first.
std::vector<std::pair<int, std::string>> ranking(const Prompt& prompt) {
  const std::string list = prompt.context.substr(prompt.context.find("\n\n"));
  std::map<std::string, int> times;
  for (const auto& word : words_of(list))
    if (std::isalpha(word[0])) ++times[word];
  std::vector<std::pair<int, std::string>> ranked;
  for (const auto& [word, count] : times) ranked.emplace_back(count, word);
  std::sort(ranked.rbegin(), ranked.rend());
  return ranked;
}

TEST(WordLists, AnswersAreTheMostFrequentWords) {
  for (const char* task : {"cwe", "cwe:words=1", "cwe:words=50", "fwe"})
    for (const std::int64_t length : {3500, 20'000, 150'000}) {
      const Prompt prompt = prompt_of(task, length, 0, 4);
      const auto ranked = ranking(prompt);
      const std::size_t asked = prompt.answers.size();
      ASSERT_GT(ranked.size(), asked) << prompt.id;
      std::vector<std::string> first;
      for (std::size_t i = 0; i < asked; ++i) first.push_back(ranked[i].second);
      EXPECT_THAT(prompt.answers, UnorderedElementsAreArray(first)) << prompt.id;
      EXPECT_GT(ranked[asked - 1].first, ranked[asked].first) << prompt.id;
    }
}

TEST(CommonWords, StandOftenAndAreNumbered) {
  const auto times = [](std::int64_t length) {
    const auto ranked = ranking(prompt_of("cwe", length));
    return std::pair(ranked[0].first, ranked[10].first);
  };
  EXPECT_EQ(times(2048), std::pair(6, 1));
  EXPECT_EQ(times(8192), std::pair(30, 3));
  const auto [common, uncommon] = times(1'000'000);  // more entries than three times the words
  EXPECT_EQ(common, 10 * uncommon);
  EXPECT_GT(uncommon, 3);
  EXPECT_THAT(prompt_of("cwe").context, HasSubstr("\n\n1. "));
  EXPECT_EQ(occurrences(prompt_of("cwe").context, " 100. "), 1);
}

TEST(FrequentWords, FollowZipfsLaw) {
  const auto ranked = ranking(prompt_of("fwe", 40'000));
  const double first = ranked[0].first;
  for (const int rank : {2, 3, 5, 10})
    EXPECT_NEAR(ranked[rank - 1].first, first / (rank * rank), 1.5) << rank;
}

TEST(Stretches, AreOfTheText) {
  for (const auto& [task, text] :
       {std::pair("prose", prose_text()), std::pair("code", code_text())}) {
    std::set<std::string> different;
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      const Prompt prompt = prompt_of(task, 300, 0, seed);
      EXPECT_NE(text.find(prompt.text), text.npos) << prompt.id;
      EXPECT_THAT(prompt.answers, IsEmpty());
      different.insert(prompt.text);
    }
    EXPECT_GT(different.size(), 5u);
  }
}

TEST(Tasks, WrongRequestsSayWhatThereIs) {
  const auto wrong = [](const std::string& task) { return error_of([&] { task_info(task); }); };
  EXPECT_THAT(wrong("haystack"), AllOf(HasSubstr("'haystack'"),
                                       HasSubstr("needle, passkey, vt, cwe, fwe, running-total, "
                                                 "list-edit, state-tracking, tools, prose and "
                                                 "code")));
  EXPECT_THAT(wrong(""), HasSubstr("no task ''"));
  EXPECT_THAT(wrong("needle:key=4"), AllOf(HasSubstr("'key'"), HasSubstr("keys, values, queries")));
  EXPECT_THAT(wrong("needle:"), HasSubstr("''"));
  EXPECT_THAT(wrong("needle:keys=4,"), HasSubstr("''"));
  EXPECT_THAT(wrong("fwe:words=3"), HasSubstr("none"));
  EXPECT_THAT(wrong("needle:keys=4,keys=4"), HasSubstr("twice"));
  for (const char* value : {"0", "65", "", "x", "4x", "-1", "4.5", "99999999999999999999"})
    EXPECT_THAT(wrong(std::string("needle:keys=") + value), HasSubstr("1 to 64")) << value;
  for (const char* value : {"", "pro", "prose|repeat", "|", "PROSE"})
    EXPECT_THAT(wrong(std::string("passkey:haystack=") + value), HasSubstr("prose|repeat"))
        << value;
  EXPECT_THAT(wrong("needle:values_are=words,keys_are=numbers"), HasSubstr("words|uuids"));
  EXPECT_THAT(wrong("needle:keys=5,values=2,queries=5,haystack=repeat"), IsEmpty());

  const auto refused = [](const TaskRequest& request) {
    return error_of([&] { make_prompt(request, of_prompts(count_words)); });
  };
  EXPECT_THAT(refused({"needle", 0}), HasSubstr("0 tokens"));
  EXPECT_THAT(refused({"needle", kLongestPrompt + 1}), HasSubstr("16777216"));
  EXPECT_THAT(refused({"needle", 500, -0.1}), HasSubstr("depth of -0.1"));
  EXPECT_THAT(refused({"needle", 500, std::nan("")}), HasSubstr("depth"));
  EXPECT_THAT(refused({"needle", 500, 0.5, std::numeric_limits<std::uint64_t>::max()}),
              HasSubstr("2^63"));
  EXPECT_THAT(refused({"needle:keys=64,values=8,values_are=words", 9000}),
              HasSubstr("576 different words: expected at most 512"));
  EXPECT_THAT(refused({"passkey", 10}),
              HasSubstr("task 'passkey': a prompt of 10 tokens is too short"));
  try {
    task_info("x");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::usage);
  }
}

}  // namespace
}  // namespace kvatlas::data
