// SPDX-License-Identifier: Apache-2.0
// `kvatlas tasks` as a user runs it.
#include <algorithm>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "data/longbench.hpp"
#include "data/prompts.hpp"
#include "data/tasks.hpp"
#include "tests/support/run_program.hpp"
#include "tests/unit/data/parse_prompt.hpp"

namespace kvatlas::data {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing_support::run_kvatlas;

TEST(TasksCommand, ListsEveryTaskAndOption) {
  const auto finished = run_kvatlas({"tasks"});
  EXPECT_EQ(finished.status, 0);
  EXPECT_THAT(finished.err, IsEmpty());
  std::istringstream lines(finished.out);
  std::string words;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100u) << line;
    words += line.substr(std::min(line.size(), line.find_first_not_of(' '))) + ' ';
  }
  for (const auto& task : tasks()) {
    EXPECT_THAT(finished.out, HasSubstr(std::string(task.summary)));
    for (const auto& option : task.options)
      EXPECT_THAT(finished.out, HasSubstr("    " + std::string(option.name) + " "));
  }
  for (const auto& dataset : longbench_datasets()) {
    EXPECT_THAT(finished.out, HasSubstr("\n  " + dataset.name + " "));
    EXPECT_THAT(words, HasSubstr(" " + dataset.about + " "));
  }
}

TEST(TasksCommand, ListsAsJson) {
  const auto finished = run_kvatlas({"tasks", "--json"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  const json all = json::parse(finished.out);
  const json& list = all.at("tasks");
  ASSERT_EQ(list.size(), tasks().size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(list[i].at("name"), tasks()[i].name);
    EXPECT_EQ(list[i].at("has_depth"), tasks()[i].has_depth);
    EXPECT_EQ(list[i].at("options").size(), tasks()[i].options.size());
  }
  const json& keys = list.at(0).at("options").at(0);
  EXPECT_EQ(keys.at("name"), "keys");
  EXPECT_EQ(keys.at("default"), 1);
  EXPECT_EQ(keys.at("most"), 64);
  EXPECT_EQ(list.at(1).at("options").at(1).at("choices"), json({"prose", "repeat"}));
  const json& datasets = all.at("longbench");
  ASSERT_EQ(datasets.size(), longbench_datasets().size());
  EXPECT_EQ(datasets.at(0).at("name"), "narrativeqa");
  EXPECT_EQ(datasets.at(0).at("metric"), "f1");
  EXPECT_EQ(datasets.at(0).at("answer_tokens"), 128);
}

TEST(TasksCommand, PrintsAPromptThatReadsBack) {
  const auto finished = run_kvatlas(
      {"tasks", "--task", "needle:keys=4", "--length", "512", "--depth", "0.3", "--seed", "1"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  const Prompt prompt = parse_prompt(finished.out);
  EXPECT_EQ(prompt.id, "needle:keys=4/512/0.30/1");
  EXPECT_EQ(prompt.length, 512);
  EXPECT_EQ(prompt.depth, 0.3);
  EXPECT_EQ(prompt.seed, 1);
  EXPECT_THAT(prompt.context, HasSubstr(prompt.answers.at(0)));
  const auto second = run_kvatlas({"tasks", "--task", "needle:turns=2", "--turn", "2"});
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(parse_prompt(second.out).turn, 2);
  EXPECT_EQ(parse_prompt(second.out).earlier.size(), 1u);
  EXPECT_THAT(run_kvatlas({"tasks", "--task", "prose", "--length", "60"}).out,
              HasSubstr("\"text\":"));
}

TEST(TasksCommand, RefusesWrongUse) {
  const auto refusal = [](std::vector<std::string> words) {
    words.insert(words.begin(), "tasks");
    const auto finished = run_kvatlas(words);
    EXPECT_EQ(finished.status, 2) << finished.out;
    EXPECT_THAT(finished.out, IsEmpty());
    return finished.err;
  };
  EXPECT_THAT(refusal({"--task", "nedle"}), HasSubstr("there are needle, passkey"));
  EXPECT_THAT(refusal({"--task", "needle", "--length", "20"}), HasSubstr("it needs"));
  EXPECT_THAT(refusal({"--length", "20"}), HasSubstr("--task"));
  EXPECT_THAT(refusal({"--task", "needle", "--json"}), HasSubstr("--json"));
  EXPECT_THAT(refusal({"--task", "needle", "--seed", "-1"}), HasSubstr("--seed"));
  EXPECT_THAT(refusal({"--task", "needle", "--turn", "2"}), HasSubstr("expected 1 to 1"));
}

}  // namespace
}  // namespace kvatlas::data
