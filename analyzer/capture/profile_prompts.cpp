// SPDX-License-Identifier: Apache-2.0
#include "analyzer/capture/profile_prompts.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/options.hpp"
#include "base/parallel.hpp"
#include "data/longbench.hpp"
#include "data/tasks.hpp"

namespace kvatlas::capture {
namespace {

/// A hash of all token ids: what a resumed run must have in common with the first.
std::string fingerprint(const std::vector<ProfilePrompt>& prompts) {
  Fnv1a hash;
  for (const auto& prompt : prompts) {
    hash.add(std::uint64_t{prompt.tokens.size()});
    for (const auto token : prompt.tokens) hash.add(static_cast<std::uint64_t>(token));
  }
  return hash.hex();
}

/// What stands in for options that were not given.
PromptOptions with_standards(PromptOptions options, const model::Config& config) {
  if (options.tasks.empty()) {
    options.tasks = {"needle", "prose"};
    if (!options.quick) options.tasks = {"needle", "passkey", "vt", "cwe", "fwe", "prose", "code"};
  }
  if (options.depths.empty()) {
    options.depths = {0.1, 0.5, 0.9};
    if (!options.quick) options.depths = {0.1, 0.3, 0.5, 0.7, 0.9};
  }
  if (options.seeds == 0) options.seeds = static_cast<std::int64_t>(options.depths.size());
  if (options.lengths.empty()) {
    options.lengths = {1024};
    if (!options.quick) options.lengths.push_back(2048);
    std::erase_if(options.lengths,
                  [&](std::int64_t length) { return length > config.context_length; });
    if (options.lengths.empty()) options.lengths = {config.context_length};
  }
  return options;
}

std::vector<data::TaskRequest> requests(const PromptOptions& options) {
  std::vector<data::TaskRequest> all;
  for (const auto& task : options.tasks) {
    const bool has_depth = data::task_info(task).has_depth;
    const std::int64_t turns = data::turns_of(task);
    for (const auto length : options.lengths)
      for (const double depth : has_depth ? options.depths : std::vector<double>{0})
        for (std::int64_t i = 0; i < options.seeds; ++i)
          for (std::int64_t turn = 1; turn <= turns; ++turn)
            all.push_back(
                {task, length, depth, static_cast<std::uint64_t>(options.seed + i), turn});
  }
  return all;
}

}  // namespace

void truncate_prompt(ProfilePrompt& prompt, std::int64_t most_tokens, std::int64_t new_tokens,
                     const model::Config& config) {
  if (most_tokens == 0)
    most_tokens =
        config.context_length - (new_tokens > 0 ? new_tokens : data::answer_tokens(prompt.prompt));
  const auto before = static_cast<std::int64_t>(prompt.tokens.size());
  if (most_tokens < 1 || before <= most_tokens) return;
  prompt.tokens = data::truncate_middle(prompt.tokens, most_tokens);
  prompt.cut_tokens += before - most_tokens;
}

void add_prompt_options(CLI::App& command, PromptOptions& options, RunOptions& run) {
  command.option_defaults()->group("Prompts");
  add_option(command, "--task", options.tasks, "TASK",
             "generated prompts, such as needle or passkey:digits=64 (see kvatlas tasks); may "
             "be repeated")
      ->default_str("a mixture");
  add_option(command, "--lengths", options.lengths, "N,...",
             "lengths of generated prompts, in tokens")
      ->delimiter(',')
      ->default_str("1024,2048")
      ->check(whole_range(1, std::int64_t{1} << 24));
  add_option(command, "--depths", options.depths, "D,...",
             "where the answer lies in the prompt, 0 to 1")
      ->delimiter(',')
      ->default_str("0.1,0.3,0.5,0.7,0.9")
      ->check(real_range(0.0, 1.0));
  add_option(command, "--seeds", options.seeds, "N",
             "texts of each task; each is made at every length and depth")
      ->default_str("as many as depths")
      ->check(whole_range(1, std::int64_t{1} << 20));
  add_number(command, "--seed", options.seed, "N", "seed of the first text", 0,
             std::int64_t{1} << 40);
  command.add_flag(
      "--quick", options.quick,
      "fewer and shorter generated prompts, for a first look: too few to calibrate from without "
      "--seeds 5 or more");
  add_option(command, "-p,--prompt", run.prompt_texts, "TEXT",
             "a prompt of your own; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_option(command, "--prompts", run.prompts_file, "FILE", kPromptsFile);
  add_number(command, "--max-tokens", options.most_tokens, "N",
             "most tokens of a prompt: longer ones lose their middle; 0: what the model's context "
             "leaves beside the answer",
             0, std::int64_t{1} << 24);
  command.option_defaults()->group("Options");
}

PlannedPrompts plan_prompts(const PromptOptions& given, const RunOptions& run,
                            const model::ModelFile& model) {
  using nlohmann::json;
  const bool own = run.has_own_prompts();
  if (own &&
      (!given.tasks.empty() || !given.lengths.empty() || !given.depths.empty() || given.quick))
    fail(ErrorCode::usage,
         "--task, --lengths, --depths and --quick make prompts: give them, or prompts of your own");
  const model::Chat chat(run.chat, model.tokenizer().get());
  PlannedPrompts plan;
  json described = {{"chat", chat.name()}};
  if (own) {
    for (auto& prompt : collect_prompts(run)) plan.prompts.push_back({std::move(prompt), {}});
    described["from"] = run.prompts_file.empty() ? "--prompt" : "--prompts";
  } else {
    if (!model.tokenizer())
      fail(ErrorCode::usage, "the model has no tokenizer that can be used",
           model.tokenizer_problem().empty() ? "" : " (" + model.tokenizer_problem() + ")",
           ", so no prompts can be made: give token ids with --prompts FILE.jsonl");
    const PromptOptions options = with_standards(given, model.config());
    const auto wanted = requests(options);
    plan.prompts.resize(wanted.size());
    parallel_for(static_cast<std::int64_t>(wanted.size()), [&](std::int64_t i, int) {
      const auto count = [&](const data::Prompt& prompt) {
        return static_cast<std::int64_t>(encode_prompt(prompt, model, chat).size());
      };
      plan.prompts[i].prompt = data::make_prompt(wanted[i], count);
    });
    described["from"] = "tasks";
    described["tasks"] = options.tasks;
    described["lengths"] = options.lengths;
    described["depths"] = options.depths;
    described["seeds"] = options.seeds;
    described["seed"] = options.seed;
  }
  if (given.conversation && std::none_of(plan.prompts.begin(), plan.prompts.end(),
                                         [](const auto& one) { return one.prompt.turn > 0; }))
    fail(ErrorCode::usage,
         "--conversation needs prompts of several turns: those of --task needle:turns=4, or a file "
         "in SCBench's layout (docs/tasks.md)");
  for (auto& one : plan.prompts)
    in_context(printable(one.prompt.id), [&] {
      one.prompt.follows = given.conversation;
      if (given.conversation)
        for (const auto& turn : one.prompt.earlier)
          if (turn.answer.empty())
            fail(ErrorCode::usage, "the turn that asks ", quoted(turn.input, 40),
                 " has no answer, which --conversation needs for the turns behind it");
      // Better to refuse it here than after the forward pass.
      if (one.prompt.has_zero_byte())
        fail(ErrorCode::usage,
             "its id, task or an answer, or another of its texts, holds a zero byte, which no "
             "profile can keep");
      one.tokens = encode_prompt(one.prompt, model, chat);
      if (one.tokens.empty()) fail(ErrorCode::usage, "the prompt has no tokens");
      truncate_prompt(one, given.most_tokens, given.new_tokens, model.config());
    });
  if (given.most_tokens > 0) described["max_tokens"] = given.most_tokens;
  described["prompts"] = plan.prompts.size();
  described["fingerprint"] = fingerprint(plan.prompts);
  plan.description = described.dump();
  return plan;
}

}  // namespace kvatlas::capture
