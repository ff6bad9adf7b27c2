// SPDX-License-Identifier: Apache-2.0
#include <iostream>
#include <memory>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/options.hpp"
#include "base/plain_text.hpp"
#include "data/commands.hpp"
#include "data/longbench.hpp"
#include "data/tasks.hpp"

namespace kvatlas {
namespace {

using json = nlohmann::ordered_json;

struct TasksOptions {
  data::TaskRequest request;
  bool as_json = false;
};

json option_json(const data::TaskOption& option) {
  json out = {{"name", option.name}, {"meaning", option.meaning}};
  if (option.choices.empty())
    out.update({{"default", std::stoll(std::string(option.standard))},
                {"lowest", option.lowest},
                {"most", option.most}});
  else
    out.update({{"default", option.standard}, {"choices", option.choices}});
  return out;
}

json tasks_json() {
  json made = json::array(), longbench = json::array();
  for (const auto& task : data::tasks()) {
    json options = json::array();
    for (const auto& option : task.options) options.push_back(option_json(option));
    made.push_back({{"name", task.name},
                    {"summary", task.summary},
                    {"options", options},
                    {"has_depth", task.has_depth},
                    {"answer_tokens", data::answer_tokens(task.name)},
                    {"example", task.example}});
  }
  for (const auto& dataset : data::longbench_datasets())
    longbench.push_back({{"name", dataset.name},
                         {"about", dataset.about},
                         {"language", dataset.language},
                         {"metric", dataset.metric},
                         {"answer_tokens", dataset.answer_tokens},
                         {"first_line", dataset.first_line},
                         {"chat", dataset.chat}});
  return {{"tasks", made}, {"longbench", longbench}};
}

void print_longbench() {
  const auto row = [](const std::string& name, const std::string& language,
                      const std::string& metric, const std::string& answer_tokens,
                      const std::string& about) {
    std::cout << row_text(
        {{name, 20}, {language, 8}, {metric, 15}, {answer_tokens, 6}, {about, 41}}, 2);
  };
  std::cout << "\nDatasets of LongBench, read from its files (docs/tasks.md)\n";
  row("name", "language", "metric", "answer tokens", "about");
  for (const auto& dataset : data::longbench_datasets())
    row(dataset.name, dataset.language, dataset.metric, std::to_string(dataset.answer_tokens),
        dataset.about);
}

void print_tasks() {
  for (const auto& task : data::tasks()) {
    std::cout << task.name << '\n' << "  " << task.summary << '\n';
    for (const auto& option : task.options)
      std::cout << row_text(
          {{std::string(option.name), 10},
           {str(option.meaning, " (", values_text(option), "; default ", option.standard, ")"),
            84}},
          4);
    if (!task.options.empty()) std::cout << "  Example: " << task.example << '\n';
  }
  print_longbench();
}

/// Without a model there is no tokenizer: four tokens for three words, as usual in English.
std::int64_t estimated_tokens(const data::Prompt& prompt) {
  std::int64_t words = 0;
  bool in_word = false;
  for (const char c : prompt.as_text()) {
    const bool space = c == ' ' || c == '\n';
    words += !space && !in_word;
    in_word = !space;
  }
  return (4 * words + 2) / 3;
}

void run(const TasksOptions& options, bool one_prompt) {
  if (one_prompt)
    std::cout << prompt_line(make_prompt(options.request, estimated_tokens)) << '\n';
  else if (options.as_json)
    std::cout << tasks_json().dump(2) << '\n';
  else
    print_tasks();
}

}  // namespace

void add_tasks_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("tasks", "List the tasks that prompts can be generated for");
  auto options = std::make_shared<TasksOptions>();
  auto& request = options->request;
  auto* task = add_option(*command, "--task", request.task, "NAME[:OPTION=VALUE,...]",
                          "print one prompt of this task as a line of JSON instead");
  const auto of_task = [&](CLI::Option* option, const char* type) {
    option->needs(task)->type_name(type)->capture_default_str();
  };
  of_task(command->add_option("--length", request.length,
                              "most tokens; without a model they are estimated, as 4 for 3 words"),
          "TOKENS");
  of_task(
      command->add_option("--depth", request.depth, "where the answer lies in the prompt, 0 to 1"),
      "SHARE");
  of_task(command->add_option("--seed", request.seed, "seed of the prompt")
              ->check(CLI::NonNegativeNumber),
          "NUMBER");
  of_task(
      command->add_option("--turn", request.turn, "which question, of a task with several turns"),
      "NUMBER");
  command->add_flag("--json", options->as_json, "print the list as JSON")->excludes(task);
  command->footer(
      "Examples:\n"
      "  kvatlas tasks\n"
      "  kvatlas tasks --task needle:keys=4 --length 512 --depth 0.3 --seed 1");
  command->callback([options, task] { run(*options, task->count() > 0); });
}

}  // namespace kvatlas
