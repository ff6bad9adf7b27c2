// SPDX-License-Identifier: Apache-2.0
#include "calibrate/search/questions.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/free_memory.hpp"
#include "calibrate/methods/trials.hpp"
#include "data/tasks.hpp"

namespace kvatlas::calibrate {
namespace {

// Attention rows of every layer and head that DynamicKV, SnapKV and PoD decide by.
constexpr std::int64_t kUsualRows = 16;

/// Its context alone.
data::Prompt without_question(const data::Prompt& prompt) {
  if (prompt.context.empty())
    fail(ErrorCode::usage, printable(prompt.id),
         ": --compress-context needs prompts with a context and a question beside it");
  data::Prompt bare = prompt;
  bare.tokens.clear();
  bare.input.clear();
  bare.input_messages.clear();
  bare.answer_prefix.clear();
  bare.earlier.clear();
  return bare;
}

/// With how many tokens of a prompt this part of it begins. `lost` are missing from its middle.
std::int64_t tokens_of_part(const data::Prompt& part, const Question& question, std::int64_t lost,
                            const capture::RunOptions& run, const model::ModelFile& model) {
  const auto& prompt = question.prompt;
  const model::Chat chat(run.chat, model.tokenizer().get());
  const auto without = capture::encode_prompt(part, model, chat);
  const auto whole = capture::encode_prompt(prompt, model, chat);
  const auto same = std::mismatch(without.begin(), without.end(), whole.begin(), whole.end());
  const auto count = static_cast<std::int64_t>(same.first - without.begin()) - lost;
  const auto left = static_cast<std::int64_t>(question.tokens.size());
  // The middle that was lost has to lie within the context.
  if (count < std::max<std::int64_t>(1, lost > 0 ? left / 2 : 0) || count >= left)
    fail(ErrorCode::usage, printable(prompt.id),
         ": what the cache is cut behind cannot be told from what follows");
  return count;
}

}  // namespace

std::vector<Question> make_questions(std::vector<capture::ProfilePrompt> prompts,
                                     const QuestionOptions& options, const capture::RunOptions& run,
                                     const model::ModelFile& model) {
  std::vector<Question> questions;
  for (auto& one : prompts) {
    Question question{std::move(one.prompt), std::move(one.tokens)};
    question.chat = run.chat;
    question.max_new = options.max_new > 0 ? options.max_new : data::answer_tokens(question.prompt);
    const auto& prompt = question.prompt;
    const bool follows = prompt.follows && !prompt.earlier.empty();
    if (options.compress_context || follows)
      question.context_tokens =
          tokens_of_part(options.compress_context ? without_question(prompt) : prompt.first_turn(),
                         question, one.cut_tokens, run, model);
    questions.push_back(std::move(question));
  }
  return questions;
}

void set_memory(capture::EngineOptions& engine, const std::vector<Question>& questions,
                const model::ModelFile& model, SimulateOptions& simulate) {
  for (const auto& question : questions)
    engine.longest = std::max(engine.longest,
                              static_cast<std::int64_t>(question.tokens.size()) + question.max_new);
  engine.copy_bytes = simulate.copy_bytes;
  const model::Config& config = model.config();
  const auto plan_for = [&](std::size_t prompts) {
    simulate.prompts_together = prompts;
    const auto count = static_cast<std::int64_t>(prompts);
    engine.all_tokens = count * engine.longest;
    engine.other_bytes = 4 * count * kUsualRows * config.n_layers * config.n_heads * engine.longest;
    return capture::plan_memory(model, engine);
  };
  const capture::MemoryPlan alone = plan_for(1);
  const std::int64_t room = engine.memory_budget > 0 ? engine.memory_budget : free_memory();
  const auto fits = [&](const capture::MemoryPlan& plan) {
    return plan.streaming == alone.streaming && plan.total_bytes <= room;
  };
  std::size_t prompts = kPromptsTogether;
  while (!fits(plan_for(prompts)) && prompts > 1) prompts /= 2;
  simulate.copy_bytes = capture::room_for_copies(engine);
  simulate.within_budget = engine.memory_budget > 0;
}

}  // namespace kvatlas::calibrate
